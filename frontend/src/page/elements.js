// The elements of a page: their values, as the kernel has them, and messages about them.

import { signal } from "@preact/signals";

/** Of this page in the browser, so that it can tell its own changes from those of others. */
const BROWSER = Math.random().toString(36).slice(2);
/** Time for an answer, which has all elements and is thus not asked for again with each message until then. */
const PATIENCE_MS = 2000;

/** A part of the view, with the interface of a model of anywidget for scripts that draw it by themselves. */
export class Element {
  constructor(page, key, component, values) {
    Object.assign(this, { page, key, component, values });
    this.version = signal(0);
    this.unsent = {};
    this.mine = {}; // sent since the page has asked for all elements; the answer is from before
    this.listeners = new Map();
  }

  /** The values; a component that calls this is drawn again when one of them changes. */
  use() {
    return this.version.value >= 0 && this.values;
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    if (JSON.stringify(this.values[name]) === JSON.stringify(value)) return;
    this.unsent[name] = value;
    this.update({ [name]: value });
  }

  save_changes() {
    const set = this.unsent;
    if (Object.keys(set).length === 0) return;
    this.unsent = {};
    Object.assign(this.mine, set);
    this.page.channel.send({ to: this.key, set, from: BROWSER });
  }

  /** Sets a value, and sends it. */
  put(name, value) {
    this.set(name, value);
    this.save_changes();
  }

  send(content, _callbacks, buffers) {
    this.page.channel.send({ to: this.key, content }, undefined, buffers);
  }

  /** Calls a function at each of these events, which are separated by spaces. */
  on(events, act) {
    for (const event of events.split(" ")) this.listeners.set(event, [...(this.listeners.get(event) ?? []), act]);
  }

  off(events, act) {
    for (const event of events.split(" ")) {
      const others = (this.listeners.get(event) ?? []).filter((other) => other !== act);
      this.listeners.set(event, others);
    }
  }

  fire(event, ...given) {
    for (const act of this.listeners.get(event) ?? []) act(...given);
  }

  update(values) {
    this.values = { ...this.values, ...values };
    this.version.value += 1;
    for (const name of Object.keys(values)) this.fire(`change:${name}`);
  }
}

/** The elements of one page of the kernel; `channel` is its model, which all views of the page share. */
export class Page {
  constructor(channel) {
    this.channel = channel;
    this.elements = new Map();
    this.root = signal(null);
    this.number = 0;
    this.askedAt = -Infinity;
    channel.on("msg:custom", (message, buffers) => this.receive(message, buffers ?? []));
    this.take(channel.get("tree"));
    this.ask(); // what came before this script was loaded
  }

  /** Asks for all elements if a message was missed. */
  ask() {
    this.askedAt = Date.now();
    for (const element of this.elements.values()) element.mine = {};
    this.channel.send({ seen: this.number });
  }

  get waiting() {
    return Date.now() - this.askedAt < PATIENCE_MS;
  }

  element(key) {
    return this.elements.get(key);
  }

  take(tree) {
    const before = this.elements;
    this.elements = new Map();
    for (const [key, { component, values }] of Object.entries(tree.elements)) {
      const whole = { ...tree.defaults[component], ...values };
      const known = before.get(key);
      this.elements.set(key, known ?? new Element(this, key, component, whole));
      known?.update({ ...whole, ...(this.waiting && known.mine), ...known.unsent });
    }
    this.number = tree.number;
    this.root.value = tree.root;
  }

  receive(message, buffers) {
    if (message.number <= this.number) return; // contained in the elements as they were taken
    const own = buffers.slice(message.given);
    const plain = withBuffers(message, buffers);
    if (plain.tree) {
      if (plain.tree.number > this.number) this.take(plain.tree); // or else another browser has asked
      this.number = message.number;
      this.askedAt = -Infinity;
      return;
    }
    if (message.number > this.number + 1) {
      if (!this.waiting) this.ask();
      return;
    }
    this.number = message.number;
    if (plain.to) {
      this.elements.get(plain.to)?.fire("msg:custom", plain.content, own);
      return;
    }
    for (const [key, { component, values }] of Object.entries(plain.new)) {
      this.elements.set(key, new Element(this, key, component, { ...plain.defaults[component], ...values }));
    }
    if (plain.from !== BROWSER) {
      for (const [key, values] of plain.changes) this.elements.get(key)?.update(values);
    }
    for (const key of plain.gone ?? []) this.elements.delete(key);
  }
}

/** Replaces the marks of bytes in a value by the buffers. */
export function withBuffers(value, buffers) {
  if (Array.isArray(value)) return value.map((one) => withBuffers(one, buffers));
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  if ("$buffer" in value) return buffers[value.$buffer];
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withBuffers(one, buffers)]));
}
