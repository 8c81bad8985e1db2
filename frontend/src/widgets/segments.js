// A choice as buttons side by side: a group of radio buttons for the keyboard and for screen readers. Tab goes to the
// chosen one, arrows choose the next and the previous one.

import { make } from "../elements.js";
import { listening } from "../model.js";
import { textButton } from "./text_button.js";

/** @import { Render } from "../types" */

/** @type {Record<string, number>} */
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** @type {Render} */
export function render({ model, el }) {
  const group = make("div", "ptynb-segments");
  group.setAttribute("role", "radiogroup");
  el.append(group);

  /** @type {HTMLButtonElement[]} */
  let buttons = [];
  const follow = () => {
    const chosen = model.get("options").indexOf(model.get("chosen"));
    buttons.forEach((button, index) => {
      button.setAttribute("aria-checked", String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
    });
  };
  const choose = (/** @type {number} */ index) => {
    model.set("chosen", model.get("options")[index]);
    model.save_changes();
  };
  const fill = () => {
    group.setAttribute("aria-label", model.get("description"));
    buttons = model.get("options").map((/** @type {string} */ option, /** @type {number} */ index) => {
      const button = textButton(option, model.get("icons")[index]);
      button.setAttribute("role", "radio");
      button.addEventListener("click", () => choose(index));
      return button;
    });
    group.replaceChildren(...buttons);
    follow();
  };
  group.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = buttons.findIndex((button) => button === document.activeElement);
    const next = (at + step + buttons.length) % buttons.length;
    choose(next);
    buttons[next].focus();
  });
  fill();
  return listening(model, { "change:options change:icons change:description": fill, "change:chosen": follow });
}
