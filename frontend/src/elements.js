// Elements of a page.

/** @import { ChoiceField, Context, NumberField } from "./types" */

/** An element; JupyterLab's shortcuts are disabled in those that take the focus.
 * @type {<N extends keyof HTMLElementTagNameMap>(name: N, classes?: string, properties?: object) => HTMLElementTagNameMap[N]} */
export function make(name, className, properties = {}) {
  const element = document.createElement(name);
  if (className) element.className = className;
  Object.assign(element, properties);
  if (["INPUT", "SELECT", "BUTTON", "SUMMARY"].includes(element.tagName) || element.tabIndex >= 0) {
    element.dataset.lmSuppressShortcuts = "true";
  }
  return element;
}

/** Sets an attribute for screen readers if it differs, so that the page does nothing where nothing changed.
 * @type {(element: Element, name: string, text: string) => void} */
export function describe(element, name, text) {
  if (element.getAttribute(`aria-${name}`) !== String(text)) element.setAttribute(`aria-${name}`, text);
}

/** Sets a text if it differs.
 * @type {(element: Node, text: string) => void} */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of an SVG; attributes, not styles, which the policy of a report forbids.
 * @type {(name: string, attributes: Record<string, string | number>, text?: string) => SVGElement} */
export function drawn(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A button with a text.
 * @type {(text: string, label: string, act: () => void) => HTMLButtonElement} */
export function button(text, label, act) {
  const made = make("button", "ptynb-tool-button", { type: "button", textContent: text, title: label });
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

/** @type {(made: Element, on: boolean) => void} */
export function press(made, on) {
  made.setAttribute("aria-pressed", String(on));
}

/** @type {(label: string, range: object, take: (value: number) => void) => NumberField} */
export function numberField(label, range, take) {
  const field = make("label", "ptynb-tool");
  const input = make("input", "", { type: "number", ...range });
  const text = make("span", "", { textContent: label });
  field.append(text, input);
  input.addEventListener("change", () => take(input.valueAsNumber));
  return { field, input, text };
}

/** said: the words for a screen reader.
 * @type {(label: string, said: string, options: string[][], take: (value: string) => void) => ChoiceField} */
export function choiceField(label, said, options, take) {
  const field = make("label", "ptynb-tool");
  const select = make("select");
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  select.setAttribute("aria-label", said);
  select.addEventListener("change", () => take(select.value));
  field.append(make("span", "", { textContent: label }), select);
  return { field, select };
}

/** Copies a text; without the clipboard API, which pages opened from a file do not have.
 * @type {(text: string, place: Element) => void} */
export function copyText(text, place) {
  const field = make("textarea", "ptynb-copied", { value: text });
  place.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** What draws on a canvas.
 * @type {(canvas: HTMLCanvasElement, options?: CanvasRenderingContext2DSettings) => Context} */
export function contextOf(canvas, options) {
  return /** @type {Context} */ (canvas.getContext("2d", options));
}

/** The first element for a selector.
 * @type {(root: ParentNode | null | undefined, selector: string) => HTMLElement | null} */
export const elementIn = (root, selector) => root?.querySelector(selector) ?? null;

/** All elements for a selector.
 * @type {(root: ParentNode | null | undefined, selector: string) => HTMLElement[]} */
export const elementsIn = (root, selector) => [...(root?.querySelectorAll(/** @type {"div"} */ (selector)) ?? [])];
