// Lines of Python that can be read, selected and copied.

import { make } from "../elements.js";
import { listening } from "../model.js";

/** @import { Render } from "../types" */

/** @type {Render} */
export function render({ model, el }) {
  const root = make("div", "ptynb-code");
  const copy = make("button", "ptynb-code-copy ptynb-button", { type: "button", textContent: "Copy" });
  const said = make("span", "ptynb-code-said");
  said.setAttribute("role", "status");
  const text = make("pre", "", { tabIndex: 0 });
  text.setAttribute("role", "region");
  text.setAttribute("aria-label", "Lines of Python");
  const code = make("code");
  text.append(code);
  root.append(copy, said, text);
  el.append(root);

  const update = () => {
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    code.textContent = model.get("lines").join("\n");
    if (atEnd) text.scrollTop = text.scrollHeight;
  };

  copy.addEventListener("click", async () => {
    // Pages that are not served from this machine or by https have no clipboard; a selection can be copied anywhere.
    document.getSelection()?.selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = "copied";
    } catch {
      said.textContent = document.execCommand("copy") ? "copied" : "selected; press Ctrl+C";
    }
  });
  update();
  return listening(model, { "change:lines": update });
}
