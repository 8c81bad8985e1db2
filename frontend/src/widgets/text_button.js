// A button with a text, and an icon before it (Font Awesome), which is not read to anybody.

import { make } from "../elements.js";

/** icon: its name; "": none. The element has no style, class or listener yet.
 * @type {(text: string, icon: string) => HTMLButtonElement} */
export function textButton(text, icon) {
  const button = make("button", "", { type: "button" });
  if (icon) {
    const mark = make("i", `fa fa-${icon}`);
    mark.setAttribute("aria-hidden", "true");
    button.append(mark, " ");
  }
  button.append(text);
  return button;
}
