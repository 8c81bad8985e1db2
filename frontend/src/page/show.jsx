// Shows a page of the kernel in a node of a notebook's output.

import { render } from "preact";

import { Part } from "./controls.jsx";
import { Page } from "./elements.js";

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

/** Shows the page of a channel; returns a function that removes it.
 * @type {(shown: Shown) => () => void} */
export function show({ channel, model, el }) {
  const page = pageOf(channel);
  page.model = model;
  el.classList.add("ptynb-page");
  el.dataset.lmSuppressShortcuts = "true";
  render(<Root page={page} />, el);
  return () => render(null, el);
}
