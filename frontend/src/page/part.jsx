// Draws the elements of a page.

import { useEffect, useLayoutEffect } from "preact/hooks";

import { components, views } from "../components.js";
import { CONTROLS } from "./controls.jsx";
import { classes, useNode } from "./parts.jsx";

/** @import { VNode } from "preact" */
/** @import { ElementValues, Line, Mark, PartGiven, Rendering } from "./types" */
/** @import { Element, Page } from "./elements.js" */

/** CSS properties of a layout: `flex_flow` is `flexFlow` here.
 * @type {(layout: Record<string, string>) => Record<string, string>} */
function styleOf(layout) {
  /** @type {(name: string) => string} */
  const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(layout).map(([name, value]) => [camel(name), value]));
}

/** Class and style of the outermost node of an element.
 * @type {(values: ElementValues, names?: string) => Required<Line>} */
export function lineOf(values, names) {
  return { class: classes(names, ...values.classes), style: styleOf(values.layout) };
}

/** Moves the focus to the field of a name when the kernel asks for it: `element.send({"focus": name})`.
 * @type {(element: Element) => void} */
export function useFocusing(element) {
  useEffect(() => {
    /** @type {(content: { focus?: string }) => void} */
    const focus = (content) => {
      if (content.focus) requestAnimationFrame(() => document.getElementsByName(/** @type {string} */ (content.focus))[0]?.focus());
    };
    element.on("msg:custom", focus);
    return () => element.off("msg:custom", focus);
  }, [element]);
}

/** What a script of its own draws; see `components`.
 * @type {(given: { element: Element, render: Rendering }) => VNode} */
function Drawn({ element, render }) {
  const node = useNode("div");
  const { class: names, style } = lineOf(element.use(), "ptynb-element ptynb-drawn");
  useLayoutEffect(() => render({ model: element, el: node.current }), [element, node, render]);
  return <div class={names} style={style} ref={node} />;
}

/** An element by its key; it is drawn again when its own values change, not with what is around it.
 * @type {(given: PartGiven) => VNode | null} */
export function Part({ page, name }) {
  const element = page.element(name);
  if (!element) return null;
  const Drawing = CONTROLS[element.component] ?? views[element.component];
  if (Drawing) return <Drawing element={element} />;
  return <Drawn element={element} render={components[element.component]} />;
}

/** The elements of marks in a value; null or undefined: nothing.
 * @type {(given: { page: Page, of: Mark | (Mark | null)[] | null | undefined }) => VNode} */
export function Parts({ page, of }) {
  const marks = [of ?? []].flat().filter((mark) => mark !== null);
  return <>{marks.map(({ $element: key }) => <Part key={key} page={page} name={key} />)}</>;
}
