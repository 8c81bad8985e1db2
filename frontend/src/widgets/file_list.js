// Files and folders as buttons; one of them is in the order of Tab, arrows and letters move along the others.

import { make } from "../elements.js";
import { listening } from "../model.js";

/** @import { Render } from "../types" */

/** @type {Render} */
export function render({ model, el }) {
  const list = make("ul", "ptynb-files");
  list.dataset.lmSuppressShortcuts = "true";
  el.append(list);

  /** @type {HTMLButtonElement | null} */
  let pressed = null;
  const buttons = () => [...list.querySelectorAll("button")];
  const reach = (/** @type {HTMLButtonElement} */ button) => buttons().forEach((other) => (other.tabIndex = other === button ? 0 : -1));
  const mark = () => {
    for (const button of buttons()) {
      const current = button.dataset.key === model.get("current");
      button.toggleAttribute("aria-current", current);
      if (current) {
        button.setAttribute("aria-current", "true");
        reach(button);
      }
    }
  };
  const fill = () => {
    const focused = list.contains(document.activeElement);
    list.replaceChildren(
      ...model.get("items").map((/** @type {string[]} */ [key, kind, name, size, date]) => {
        const title = kind === "folder" ? `Opens the folder ${name}` : `${name}, ${size}, ${date}`;
        const button = make("button", `ptynb-files-${kind}`, { type: "button", title });
        button.dataset.key = key;
        const texts = [kind === "folder" ? `${name}/` : name, size, date.split(" ")[0]];
        button.append(...texts.map((textContent) => make("span", "", { textContent })));
        const item = make("li");
        item.append(button);
        return item;
      }),
    );
    const [first] = buttons();
    if (first) reach(first);
    mark();
    if (focused) (buttons().find(({ tabIndex }) => tabIndex === 0) ?? list).focus();
  };
  const buttonAt = (/** @type {Event} */ { target }) => /** @type {Element} */ (target).closest("button");
  const label = () => list.setAttribute("aria-label", model.get("label"));

  list.addEventListener("click", (event) => {
    const button = buttonAt(event);
    if (!button) return;
    reach(button);
    button.focus();
    if (event.detail > 1) return;
    pressed = button;
    model.send({ open: button.dataset.key });
  });
  list.addEventListener("dblclick", (event) => {
    // After the first click on a folder another item may lie there.
    if (pressed !== null && pressed === buttonAt(event)) {
      model.send({ open: pressed.dataset.key, twice: true });
    }
  });
  list.addEventListener("keydown", (event) => {
    const all = buttons();
    const at = all.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    /** @type {Record<string, number>} */
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1, PageDown: at + 10, PageUp: at - 10 };
    /** @type {number | undefined} */
    let next = to[event.key];
    if (event.key === "Backspace") model.send({ up: true });
    else if (event.key.length === 1 && event.key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const after = [...all.slice(at + 1), ...all.slice(0, at + 1)];
      const found = after.find((one) => one.textContent.toLowerCase().startsWith(event.key.toLowerCase()));
      next = found ? all.indexOf(found) : undefined;
    } else if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (next === undefined || all.length === 0) return;
    const button = all[Math.max(0, Math.min(next, all.length - 1))];
    reach(button);
    button.focus();
  });

  label();
  fill();
  return listening(model, { "change:items": fill, "change:current": mark, "change:label": label });
}
