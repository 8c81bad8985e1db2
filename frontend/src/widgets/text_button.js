// A button with a text, and an icon before it (of `icons`), which is not read to anybody.

import { icons } from "../page/icons.js";

/** icon: its name; "": none. The element has no style, class or listener yet. */
export function textButton(text, icon) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.lmSuppressShortcuts = "true"; // of JupyterLab
  if (icon) {
    const mark = document.createElement("span");
    mark.className = "ptynb-button-icon";
    mark.setAttribute("aria-hidden", "true");
    mark.innerHTML = icons[icon];
    button.append(mark, " ");
  }
  button.append(text);
  return button;
}
