// A list that sends the keys of selected options; native, so that keyboards and screen readers support it.

import { make, write } from "../elements.js";
import { listening } from "../model.js";

/** @import { Render } from "../types" */

/** @type {Render} */
export function render({ model, el }) {
  const whole = make("div", "ptynb-choice");
  const name = make("label", "ptynb-choice-name");
  const column = make("span", "ptynb-choice-column");
  const head = make("span", "ptynb-choice-head");
  head.setAttribute("aria-hidden", "true");
  const select = make("select");
  // Beside the list, not around it: otherwise its accessible name would include all options.
  select.id = `ptynb-choice-${Math.random().toString(36).slice(2)}`;
  name.htmlFor = select.id;
  column.append(head, select);
  whole.append(name, column);
  el.append(whole);

  /** @type {Map<string, HTMLOptionElement>} */
  const made = new Map();
  const choose = () => {
    const chosen = new Set(model.get("chosen"));
    for (const [key, option] of made) {
      if (option.selected !== chosen.has(key)) option.selected = chosen.has(key);
    }
    if (chosen.size === 0) select.selectedIndex = -1;
  };
  // Unchanged options keep their elements, and thus the scroll position.
  const list = () => {
    /** @type {[string, string][]} */
    const options = model.get("options");
    const wanted = new Set(options.map(([key]) => key));
    for (const [key, option] of made) {
      if (!wanted.has(key)) {
        option.remove();
        made.delete(key);
      }
    }
    options.forEach(([key, text], index) => {
      const option = made.get(key) ?? make("option");
      made.set(key, option);
      option.value = key;
      write(option, text);
      if (select.children[index] !== option) select.insertBefore(option, select.children[index] ?? null);
    });
    choose();
  };
  const dress = () => {
    name.textContent = model.get("description");
    head.textContent = model.get("head");
    head.hidden = head.textContent === "";
    select.multiple = model.get("several");
    select.toggleAttribute("size", model.get("rows") > 1);
    if (model.get("rows") > 1) select.size = model.get("rows");
    select.disabled = model.get("disabled");
    select.title = model.get("tooltip") ?? "";
    choose();
  };
  select.addEventListener("change", () => {
    model.set("chosen", Array.from(select.selectedOptions, (option) => option.value));
    model.save_changes();
  });

  dress();
  list();
  return listening(model, {
    "change:options": list,
    "change:chosen": choose,
    "change:description change:head change:several change:rows change:disabled change:tooltip": dress,
  });
}
