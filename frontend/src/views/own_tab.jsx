// A button that shows a view in a tab of JupyterLab of its own. A notebook's context can add a sibling to its tab,
// which is what JupyterLab's own "Create New View for Cell Output" does, but here the tab has the whole window.
//
// JupyterLab does not know such a tab and cannot restore it after the page is loaded again. The session of the browser's
// tab remembers which views were open; the button, which comes back with the notebook's output, opens its view again.

import { useEffect } from "preact/hooks";

/** @import { VNode } from "preact" */
/** @import { Page } from "../page/elements.js" */
/** @import { Shower } from "../page/types" */

const REMEMBERED = "ptynb-own-tabs";
const RESTORING_MS = 30_000;

/** Views that are open on this page, by name.
 * @type {Map<string, any>} */
const opened = new Map();
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

/** @type {(page: Page, shower: Shower, title: string) => Promise<void>} */
async function openTab(page, shower, title) {
  const name = nameOf(page);
  if (opened.has(name)) {
    const there = opened.get(name);
    there?.parent?.activateWidget?.(there);
    return;
  }
  opened.set(name, null);
  let panel, view, Widget;
  try {
    const manager = shower.widget_manager;
    view = (await manager.create_view(await manager.get_model(shower.get("own")))).luminoWidget;
    // In a widget of Lumino, from which the view's is derived: the view's own layout would undo the tab's place.
    Widget = Object.getPrototypeOf(view.constructor);
    panel = new Widget();
  } catch (error) {
    opened.delete(name);
    remember(name, false);
    throw error;
  }
  panel.id = `ptynb-${Math.random().toString(36).slice(2)}`;
  panel.title.label = title;
  panel.title.closable = true;
  panel.addClass("ptynb-own-tab");
  opened.set(name, panel);
  panel.disposed.connect(() => {
    opened.delete(name);
    if (!pageEnds) remember(name, false);
    view.dispose();
  });
  shower.widget_manager.context.addSibling(panel, { mode: "tab-after" });
  Widget.attach(view, panel.node);
  remember(name, true);
}

/** Of a page in this tab of the browser.
 * @type {(page: Page) => string} */
const nameOf = (page) => page.channel.model_id ?? "";

/** What can add a tab to JupyterLab; null elsewhere.
 * @type {(page: Page) => Shower | null} */
function showerOf({ model }) {
  const can = document.querySelector(".jp-LabShell") && typeof model?.widget_manager.context?.addSibling === "function";
  return can ? model : null;
}

/** A button that opens its page in a tab of JupyterLab; nothing elsewhere.
 * @type {(given: { page: Page, title: string }) => VNode | null} */
export function OwnTab({ page, title }) {
  const shower = showerOf(page);
  useEffect(() => {
    let gone = false;
    if (shower && remembered().includes(nameOf(page))) {
      restored().then(() => void (gone || openTab(page, shower, title)));
    }
    return () => void (gone = true);
  }, [page, shower, title]);
  if (!shower) return null;
  const label = "Open in a tab of its own";
  return (
    <button class="ptynb-own-tab-button" type="button" title={label} aria-label={label} onClick={() => openTab(page, shower, title)}>
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
        <path fill="none" stroke="currentColor" stroke-width="1.5" d="M9 2h5v5M14 2L7.5 8.5M12 9.5V14H2V4h4.5" />
      </svg>
    </button>
  );
}
