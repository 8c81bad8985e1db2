// Shows a page of the kernel in a node of a notebook's output.

import { render } from "preact";

import { Page } from "./elements.js";
import { Part } from "./part.jsx";

/** @import { Channel, Shown } from "./types" */

/** @type {WeakMap<Channel, Page>} */
const pages = new WeakMap();

/** @param {{ page: Page }} given */
function Root({ page }) {
  return <Part key={page.root.value} page={page} name={page.root.value} />;
}

/** The page of a channel, which all its views share.
 * @type {(channel: Channel) => Page} */
export function pageOf(channel) {
  const page = pages.get(channel) ?? new Page(channel);
  pages.set(channel, page);
  return page;
}

/** JupyterLab has no shortcuts where they are suppressed, so that keys do not delete cells; that to save is given to it.
 * @type {(event: KeyboardEvent) => void} */
function saved(event) {
  if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
  const outside = /** @type {HTMLElement} */ (event.currentTarget).parentElement;
  if (outside && !outside.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
}

/** JupyterLab matches the element with the focus before it looks whether shortcuts are suppressed further out: it needs
 * the mark itself, so that "d, d" on a button does not delete the cell.
 * @type {(event: FocusEvent) => void} */
function marked({ target }) {
  /** @type {HTMLElement} */ (target).dataset.lmSuppressShortcuts = "true";
}

/** Shows the page of a channel; returns a function that removes it.
 * @type {(shown: Shown) => () => void} */
export function show({ channel, model, el }) {
  const page = pageOf(channel);
  page.model = model;
  el.classList.add("ptynb-page");
  el.dataset.lmSuppressShortcuts = "true";
  el.addEventListener("keydown", saved);
  el.addEventListener("focusin", marked);
  render(<Root page={page} />, el);
  return () => render(null, el);
}
