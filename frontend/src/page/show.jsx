// Shows a page of the kernel in a node of a notebook's output.

import { render } from "preact";

import { Part } from "./controls.jsx";
import { Page } from "./elements.js";

const pages = new WeakMap();

function Root({ page, name }) {
  return <Part key={name ?? page.root.value} page={page} name={name ?? page.root.value} />;
}

/** The page of a channel, which all its views share. */
export function pageOf(channel) {
  if (!pages.has(channel)) pages.set(channel, new Page(channel));
  return pages.get(channel);
}

/** Shows the element of this key, or all, of the page of a channel; returns a function that removes it. */
export function show({ channel, model, el, name }) {
  const page = pageOf(channel);
  page.model = model;
  page.show = (node, key) => show({ channel, model, el: node, name: key });
  el.classList.add("ptynb-page");
  el.dataset.lmSuppressShortcuts = "true";
  render(<Root page={page} name={name} />, el);
  return () => render(null, el);
}
