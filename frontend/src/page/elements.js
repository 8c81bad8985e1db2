// The elements of a page: their values, as the kernel has them, and messages about them.

import { signal } from "@preact/signals";

/** @import { BrowserMessage, Channel, KernelMessage, Shower, Tree, Values } from "./types" */

/** Of this page in the browser, so that it can tell its own changes from those of others. */
const BROWSER = Math.random().toString(36).slice(2);
/** Time for an answer, which has all elements and is thus not asked for again with each message until then. */
const PATIENCE_MS = 2000;

/** A part of the view, with the interface of a model of anywidget for scripts that draw it by themselves.
 * @template [V=any] */
export class Element {
  /** @param {Page} page @param {string} key @param {string} component @param {V} values */
  constructor(page, key, component, values) {
    this.page = page;
    this.key = key;
    this.component = component;
    this.values = values;
    this.version = signal(0);
    /** @type {Values} */
    this.unsent = {};
    /** Sent since the page has asked for all elements; the answer is from before.
     * @type {Values} */
    this.mine = {};
    /** @type {Map<string, ((...given: any[]) => void)[]>} */
    this.listeners = new Map();
  }

  /** The values; a component that calls this is drawn again when one of them changes. */
  use() {
    this.version.value; // is watched from now on
    return this.values;
  }

  /** @type {<N extends keyof V & string>(name: N) => V[N]} */
  get(name) {
    return this.values[name];
  }

  /** @type {<N extends keyof V & string>(name: N, value: V[N]) => void} */
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

  /** Sets a value, and sends it.
   * @type {<N extends keyof V & string>(name: N, value: V[N]) => void} */
  put(name, value) {
    this.set(name, value);
    this.save_changes();
  }

  /** Calls a command of the kernel's element.
   * @type {(command: string, given?: Values) => void} */
  call(command, given = {}) {
    this.page.channel.send({ to: this.key, command, arguments: given });
  }

  /** @type {(content: object, callbacks?: unknown, buffers?: ArrayBuffer[]) => void} */
  send(content, _callbacks, buffers) {
    this.page.channel.send({ to: this.key, content }, undefined, buffers);
  }

  /** Calls a function at each of these events, which are separated by spaces.
   * @type {(events: string, act: (...given: any[]) => void) => void} */
  on(events, act) {
    for (const event of events.split(" ")) this.listeners.set(event, [...(this.listeners.get(event) ?? []), act]);
  }

  /** @type {(events: string, act: (...given: any[]) => void) => void} */
  off(events, act) {
    for (const event of events.split(" ")) {
      const others = (this.listeners.get(event) ?? []).filter((other) => other !== act);
      this.listeners.set(event, others);
    }
  }

  /** @type {(event: string, ...given: unknown[]) => void} */
  fire(event, ...given) {
    for (const act of this.listeners.get(event) ?? []) act(...given);
  }

  /** @type {(values: Values) => void} */
  update(values) {
    const whole = Object.entries(values).map(([name, value]) => [name, changedBy(value, this.values[/** @type {keyof V} */ (name)])]);
    this.values = { ...this.values, ...Object.fromEntries(whole) };
    this.version.value += 1;
    for (const name of Object.keys(values)) this.fire(`change:${name}`);
  }
}

/** The elements of one page of the kernel; `channel` is its model, which all views of the page share. */
export class Page {
  /** The widget that shows it.
   * @type {Shower | null} */
  model = null;

  /** @param {Channel} channel */
  constructor(channel) {
    this.channel = channel;
    /** @type {Map<string, Element>} */
    this.elements = new Map();
    this.root = signal("");
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

  /** @type {(key: string) => Element | undefined} */
  element(key) {
    return this.elements.get(key);
  }

  /** @type {(tree: Tree) => void} */
  take(tree) {
    const before = this.elements;
    this.elements = new Map();
    for (const [key, { component, values }] of Object.entries(tree.elements)) {
      const whole = wholeOf(tree.defaults, component, values);
      const known = before.get(key);
      this.elements.set(key, known ?? new Element(this, key, component, whole));
      known?.update({ ...whole, ...(this.waiting && known.mine), ...known.unsent });
    }
    this.number = tree.number;
    this.root.value = tree.root;
  }

  /** @type {(message: KernelMessage, buffers: DataView[]) => void} */
  receive(message, buffers) {
    if (message.session) this.askedAt = -Infinity; // of a new connection: what the last one has got, nobody knows
    else if (message.number <= this.number) return; // contained in the elements as they were taken
    const own = buffers.slice(message.given);
    const plain = withBuffers(message, buffers);
    if ("tree" in plain) {
      if (message.session || plain.tree.number > this.number) this.take(plain.tree); // or else another browser has asked
      this.number = message.number;
      this.askedAt = -Infinity;
      return;
    }
    if (message.number > this.number + 1) {
      if (!this.waiting) this.ask();
      return;
    }
    this.number = message.number;
    if ("to" in plain) {
      this.elements.get(plain.to)?.fire("msg:custom", plain.content, own);
      return;
    }
    for (const [key, { component, values }] of Object.entries(plain.new)) {
      this.elements.set(key, new Element(this, key, component, wholeOf(plain.defaults, component, values)));
    }
    if (plain.from !== BROWSER) {
      for (const [key, values] of plain.changes) this.elements.get(key)?.update(values);
    }
    for (const key of plain.gone ?? []) this.elements.delete(key);
  }
}

/** A value of the kernel; of a dictionary it may be what has changed in the one before.
 * @type {(value: any, before: any) => unknown} */
function changedBy(value, before) {
  if (value === null || typeof value !== "object" || !("$changed" in value)) return value;
  const whole = { ...before, ...value.$changed };
  for (const key of value.$removed) delete whole[key];
  return whole;
}

/** All values of an element, of which a message has those that are not the defaults.
 * @type {(defaults: Record<string, Values> | undefined, component: string, values: Values) => any} */
function wholeOf(defaults, component, values) {
  return { ...defaults?.[component], ...values };
}

/** Replaces the marks of bytes in a value by the buffers.
 * @type {<T>(value: T, buffers: DataView[]) => T} */
export function withBuffers(value, buffers) {
  return filled(value, buffers);
}

/** @type {(value: any, buffers: DataView[]) => any} */
function filled(value, buffers) {
  if (Array.isArray(value)) return value.map((one) => filled(one, buffers));
  if (value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  if ("$buffer" in value) return buffers[value.$buffer];
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, filled(one, buffers)]));
}
