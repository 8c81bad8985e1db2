// A button with a text, and an icon before it (of `icons`), which is not read to anybody.

import { make } from "../elements.js";
import { icons } from "../page/icons.js";

/** icon: its name; "": none. The element has no style, class or listener yet.
 * @type {(text: string, icon: string) => HTMLButtonElement} */
export function textButton(text, icon) {
  const button = make("button", "", { type: "button" });
  if (icon) {
    const mark = make("span", "ptynb-button-icon");
    mark.setAttribute("aria-hidden", "true");
    mark.innerHTML = icons[icon];
    button.append(mark, " ");
  }
  button.append(text);
  return button;
}
