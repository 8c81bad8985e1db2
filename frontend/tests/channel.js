// The channel of a page in place of a kernel's, as `page.py` has it, and what draws its elements.

import assert from "node:assert/strict";

import { Window } from "happy-dom";
import { h } from "preact";

import { openPage } from "./page.js";

globalThis.window = new Window(); // which some of the next look at while they are loaded
export const { pageOf, show } = await import("../src/page/show.jsx");
export const { components, views } = await import("../src/components.js");
const { TextField } = await import("../src/page/parts.jsx");
const { Parts } = await import("../src/page/part.jsx");
export const DEFAULTS = { text: { value: "", placeholder: "" }, words: { value: "" }, box: { children: [] } };

/** Elements of tests alone: a field that sends each key, words, and a box with others. */
views.text = ({ element }) => h(TextField, { ...element.use(), each: true, onCommit: (value) => element.put("value", value) });
views.words = ({ element }) => h("p", null, element.use().value);
views.box = ({ element }) => h("div", null, h(Parts, { page: element.page, of: element.use().children }));

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
