// The channel of a page in place of a kernel's, as `page.py` has it, and what draws its elements.

import assert from "node:assert/strict";

import { Window } from "happy-dom";

import { openPage } from "./page.js";

globalThis.window = new Window(); // which some of the next look at while they are loaded
export const { pageOf, show } = await import("../src/page/show.jsx");
export const { components } = await import("../src/components.js");
const ELEMENT = { layout: {}, classes: [], tooltip: null };
const CONTROL = { ...ELEMENT, description: "", disabled: false, style: {} };
export const DEFAULTS = {
  html: { ...ELEMENT, value: "" },
  text: { ...CONTROL, value: "", placeholder: "", continuous_update: true },
  textarea: { ...CONTROL, value: "", placeholder: "", continuous_update: true, rows: null },
  number: { ...CONTROL, value: 0, min: null, max: null, step: null, continuous_update: false },
  checkbox: { ...CONTROL, value: false, indent: true },
  button: { ...CONTROL, icon: "", button_style: "" },
  toggle: { ...CONTROL, value: false, icon: "", button_style: "" },
  dropdown: { ...CONTROL, labels: [], index: null },
  progress: { ...CONTROL, value: 0, min: 0, max: 100 },
  box: { ...ELEMENT, children: [] },
  tab: { ...ELEMENT, children: [], titles: [], selected_index: 0 },
  drawer: { ...ELEMENT, titles: [], icons: [], pages: [], beside: [], description: "", shown: null },
  segments: { ...ELEMENT, options: [], icons: [], chosen: "", description: "" },
  accordion: { ...ELEMENT, children: [], titles: [], selected_index: null },
};
export const marks = (...keys) => keys.map((key) => ({ $element: key }));

/** The channel of a kernel whose page has these elements, {key: [component, values]}; the first one is the root. */
export class Channel {
  constructor(elements) {
    this.elements = elements;
    this.number = 0;
    this.acts = [];
    this.sent = [];
  }

  get(name) {
    assert.equal(name, "tree");
    return this.tree();
  }

  tree() {
    const known = Object.entries(this.elements).map(([key, [component, values]]) => [key, { component, values }]);
    return { number: this.number, root: known[0][0], defaults: DEFAULTS, elements: Object.fromEntries(known) };
  }

  on(event, act) {
    assert.equal(event, "msg:custom");
    this.acts.push(act);
  }

  send(content) {
    this.sent.push(content);
  }

  /** A message of the kernel, with the next number unless it has one. */
  say(message, buffers = []) {
    this.number = message.number ?? this.number + 1;
    for (const act of this.acts) act({ given: 0, ...message, number: this.number }, buffers);
  }

  change(key, values, more = {}) {
    this.say({ changes: [[key, values]], new: {}, ...more });
  }

  /** What the browser has set and sent since the last time. */
  taken() {
    return this.sent.splice(0).map(({ from: _, ...content }) => content);
  }
}

/** Draws a page in an empty document, and returns its channel and its node. */
export function drawn(elements) {
  const el = openPage().appendChild(document.createElement("main"));
  const channel = new Channel(elements);
  show({ channel, model: null, el });
  channel.sent = [];
  return { channel, el };
}

export const settled = (ms = 5) => new Promise((done) => setTimeout(done, ms));

/** Sets properties of a node, as a user does, and tells it. */
export function fire(node, type, values = {}) {
  Object.assign(node, values);
  node.dispatchEvent(new window.Event(type, { bubbles: true }));
}
