// Draws the elements of a page.

import { useLayoutEffect } from "preact/hooks";

import { components, views } from "../components.js";
import { useNode } from "./parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Mark, PartGiven, Rendering } from "./types" */
/** @import { Element, Page } from "./elements.js" */

/** What a script of its own draws; see `components`.
 * @type {(given: { element: Element, render: Rendering }) => VNode} */
function Drawn({ element, render }) {
  const node = useNode("div");
  useLayoutEffect(() => render({ model: element, el: node.current }), [element, node, render]);
  return <div class="ptynb-element ptynb-drawn" ref={node} />;
}

/** An element by its key; it is drawn again when its own values change, not with what is around it.
 * @type {(given: PartGiven) => VNode | null} */
export function Part({ page, name }) {
  const element = page.element(name);
  if (!element) return null;
  const Drawing = views[element.component];
  if (Drawing) return <Drawing element={element} />;
  return <Drawn element={element} render={components[element.component]} />;
}

/** The elements of marks in a value; null or undefined: nothing.
 * @type {(given: { page: Page, of: Mark | (Mark | null)[] | null | undefined }) => VNode} */
export function Parts({ page, of }) {
  const marks = [of ?? []].flat().filter((mark) => mark !== null);
  return <>{marks.map(({ $element: key }) => <Part key={key} page={page} name={key} />)}</>;
}
