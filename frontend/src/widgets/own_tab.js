// A button that shows a view in a tab of JupyterLab of its own. A notebook's context can add a sibling to its tab,
// which is what JupyterLab's own "Create New View for Cell Output" does, but here the tab has the whole window.
//
// JupyterLab does not know such a tab and cannot restore it after the page is loaded again. The session of the browser's
// tab remembers which views were open; the button, which comes back with the notebook's output, opens its view again.

import { make } from "../elements.js";

/** @import { Model, Render } from "../types" */

const MARK =
  '<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path fill="none" stroke="currentColor" ' +
  'stroke-width="1.5" d="M9 2h5v5M14 2L7.5 8.5M12 9.5V14H2V4h4.5"/></svg>';
const REMEMBERED = "ptynb-own-tabs";
const RESTORING_MS = 30_000;

/** Views that are open on this page, by the identifier of their model; each button has this module for itself. */
const opened = /** @type {{ ptynbOwnTabs?: Map<string, any> }} */ (window).ptynbOwnTabs ??= new Map();
let pageEnds = false;
window.addEventListener("pagehide", () => (pageEnds = true));
window.addEventListener("pageshow", () => (pageEnds = false));

/** @type {() => string[]} */
function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(REMEMBERED) ?? "[]");
  } catch {
    return []; // no storage, or not ours
  }
}

/** @type {(target: string, open: boolean) => void} */
function remember(target, open) {
  const others = remembered().filter((other) => other !== target);
  try {
    sessionStorage.setItem(REMEMBERED, JSON.stringify(open ? [...others, target] : others));
  } catch {
    // Without storage, the tab is not restored.
  }
}

/** Waits until JupyterLab has restored its own tabs, of which it shows one at the end; its splash is there until then. */
async function restored() {
  const until = performance.now() + RESTORING_MS;
  do await new Promise((done) => setTimeout(done, 200));
  while (document.getElementById("jupyterlab-splash") && performance.now() < until);
}

/** @type {(model: Model, manager: any, context: any) => Promise<void>} */
async function openTab(model, manager, context) {
  const name = model.get("target");
  if (opened.has(name)) {
    const there = opened.get(name);
    there?.parent?.activateWidget?.(there);
    return;
  }
  opened.set(name, null);
  let panel;
  try {
    const target = await manager.get_model(name);
    const { luminoWidget } = await manager.create_view(target);
    // In a panel (Lumino's, from which the view's box is derived): the view's own layout would undo the tab's place.
    const Panel = Object.getPrototypeOf(luminoWidget.constructor);
    panel = new Panel();
    panel.addWidget(luminoWidget);
  } catch (error) {
    opened.delete(name);
    remember(name, false);
    throw error;
  }
  panel.id = `ptynb-${Math.random().toString(36).slice(2)}`;
  panel.title.label = model.get("title");
  panel.title.closable = true;
  panel.addClass("ptynb-own-tab");
  opened.set(name, panel);
  panel.disposed.connect(() => {
    opened.delete(name);
    if (!pageEnds) remember(name, false);
  });
  context.addSibling(panel, { mode: "tab-after" });
  remember(name, true);
}

/** @type {Render} */
export function render({ model, el }) {
  const manager = model.widget_manager;
  const context = manager?.context;
  if (!document.querySelector(".jp-LabShell") || typeof context?.addSibling !== "function") {
    el.style.display = "none";
    return undefined;
  }
  const button = make("button", "ptynb-own-tab-button", { type: "button", innerHTML: MARK, title: "Open in a tab of its own" });
  button.setAttribute("aria-label", button.title);
  button.addEventListener("click", () => openTab(model, manager, context));
  el.append(button);
  let gone = false;
  if (remembered().includes(model.get("target"))) {
    restored().then(() => {
      if (!gone) openTab(model, manager, context);
    });
  }
  return () => {
    gone = true;
    button.remove();
  };
}
