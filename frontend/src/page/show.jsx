// Shows a page of the kernel in a node of a notebook's output.

import { render } from "preact";

import { Part } from "./controls.jsx";
import { Page } from "./elements.js";

/** @import { Channel, Shown } from "./types" */

/** @type {WeakMap<Channel, Page>} */
const pages = new WeakMap();

/** @param {{ page: Page, name?: string }} given */
function Root({ page, name }) {
  return <Part key={name ?? page.root.value} page={page} name={name ?? page.root.value} />;
}

/** The page of a channel, which all its views share.
 * @type {(channel: Channel) => Page} */
export function pageOf(channel) {
  const page = pages.get(channel) ?? new Page(channel);
  pages.set(channel, page);
  return page;
}

/** Shows the element of this key, or all, of the page of a channel; returns a function that removes it.
 * @type {(shown: Shown) => () => void} */
export function show({ channel, model, el, name }) {
  const page = pageOf(channel);
  page.model = model;
  page.show = (node, key) => show({ channel, model, el: node, name: key });
  el.classList.add("ptynb-page");
  el.dataset.lmSuppressShortcuts = "true";
  render(<Root page={page} name={name} />, el);
  return () => render(null, el);
}
