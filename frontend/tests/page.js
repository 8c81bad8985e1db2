// A page and a model for tests of what needs elements.

import { Window } from "happy-dom";

/** Makes an empty page the global one, and returns its body. */
export function openPage() {
  const window = new Window();
  for (const name of ["document", "window", "Option", "ResizeObserver", "MutationObserver", "sessionStorage", "localStorage", "Node"]) {
    globalThis[name] = name === "window" ? window : window[name];
  }
  globalThis.requestAnimationFrame = (act) => setTimeout(act, 0);
  return window.document.body;
}

/** Presses a key on the element that has the focus; returns whether something was done. */
export function press(key, options = {}) {
  const event = new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...options });
  document.activeElement.dispatchEvent(event);
  return event.defaultPrevented;
}

/** A model with these values, and what it has got from the page: `saved` values, `sent` messages. */
export class TestModel {
  constructor(values) {
    Object.assign(this, { values, acts: [], saved: [], sent: [] });
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    this.values[name] = value;
    for (const [event, act] of [...this.acts]) if (event === `change:${name}`) act();
  }

  on(event, act) {
    this.acts.push([event, act]);
  }

  off(event, act) {
    this.acts = this.acts.filter((known) => known[0] !== event || known[1] !== act);
  }

  save_changes() {
    this.saved.push({ ...this.values });
  }

  send(message) {
    this.sent.push(message);
  }
}
