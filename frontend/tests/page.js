// A page for tests of what needs elements.

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
