// The buttons of a drawer: each shows its page, or hides it. Which page is shown is an attribute of the drawer's
// element, which the style sheet follows.

import { make } from "../elements.js";
import { listening } from "../model.js";
import { textButton } from "./text_button.js";

/** @import { Render } from "../types" */

const drawerOf = (/** @type {Element} */ el) => /** @type {HTMLElement | null} */ (el.closest(".ptynb-drawer"));

/** Scrolls as little as shows the page that a click has opened, which may be below the window.
 * @type {(drawer: HTMLElement | null) => void} */
function reveal(drawer) {
  const page = drawer?.querySelector(`:scope > .ptynb-drawer-page-${drawer.dataset.shown}`);
  requestAnimationFrame(() => page?.scrollIntoView({ block: "nearest" }));
}

/** @type {Render} */
export function render({ model, el }) {
  const group = make("div", "ptynb-drawer-buttons");
  group.setAttribute("role", "group");
  el.append(group);

  const follow = () => {
    const shown = model.get("shown");
    [...group.children].forEach((button, index) => button.setAttribute("aria-expanded", String(index + 1 === shown)));
    const drawer = drawerOf(el);
    if (!drawer) return;
    drawer.dataset.shown = String(shown);
    // A page that is longer than its place is scrolled by keys, too.
    drawer.querySelectorAll(":scope > .ptynb-drawer-page").forEach((page, index) => {
      page.setAttribute("tabindex", "0");
      page.setAttribute("role", "region");
      page.setAttribute("aria-label", model.get("titles")[index]);
    });
  };
  const fill = () => {
    group.setAttribute("aria-label", model.get("description"));
    group.replaceChildren(
      ...model.get("titles").map((/** @type {string} */ title, /** @type {number} */ index) => {
        const button = textButton(title, model.get("icons")[index]);
        button.className = "ptynb-drawer-button";
        button.addEventListener("click", () => {
          model.set("shown", model.get("shown") === index + 1 ? 0 : index + 1);
          model.save_changes();
          reveal(drawerOf(el));
        });
        return button;
      }),
    );
    follow();
  };
  // The drawer's element is known once this one is part of the page.
  const placed = new ResizeObserver(follow);
  placed.observe(el);
  fill();
  const end = listening(model, { "change:titles change:icons change:description": fill, "change:shown": follow });
  return () => {
    placed.disconnect();
    end();
  };
}
