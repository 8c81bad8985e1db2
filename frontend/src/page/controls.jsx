// Controls, texts and boxes, with the look of Jupyter's own widgets.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { components } from "../components.js";
import { elementsIn } from "../elements.js";
import { icons } from "./icons.js";

/** @import { TargetedKeyboardEvent, VNode } from "preact" */
/**
 * @import {
 *   BoxValues, ButtonValues, CheckboxValues, ControlValues, Drawing, DropdownValues, ElementValues, FieldGiven, HtmlValues,
 *   Layout, Limits, Mark, MultipleValues, NumberValues, PartGiven, ProgressValues, Rendering, TabValues, AccordionValues, TextareaValues, TextValues,
 *   ToggleValues,
 * } from "./types"
 */
/** @import { Element, Page } from "./elements.js" */

const STEPS = new Map([["ArrowRight", 1], ["ArrowLeft", -1], ["Home", -Infinity], ["End", Infinity]]);
const NUMBER = /^\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*$/i;

/** After which time the elements of tabs that are not shown are asked for: those that are shown have been drawn. */
const AFTER_MS = 100;

let identities = 0;

/** An identity for a node, which no other page of the document has either. */
function useIdentity() {
  const [identity] = useState(() => `ptynb-${++identities}`);
  return identity;
}

/** CSS properties of a layout: `flex_flow` is `flexFlow` here.
 * @type {(layout: Layout) => Record<string, string>} */
function styleOf(layout) {
  /** @type {(name: string) => string} */
  const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(layout).map(([name, value]) => [camel(name), value]));
}

/** Attributes of the outermost node of an element.
 * @type {(values: ElementValues, names: string) => { class: string, style: Record<string, string>, title?: string }} */
function outer(values, names) {
  return {
    class: ["ptynb-element", names, ...values.classes].filter(Boolean).join(" "),
    style: styleOf(values.layout),
    title: values.tooltip || undefined,
  };
}

/** The icon and the text of a button.
 * @type {(given: { values: ButtonValues | ToggleValues }) => VNode} */
function Caption({ values: { icon, description } }) {
  return (
    <>
      {icon && <span class="ptynb-button-icon" aria-hidden="true" dangerouslySetInnerHTML={{ __html: icons[icon] }} />}
      {icon && " "}
      {description}
    </>
  );
}

/** The label before a field.
 * @type {(given: { values: ControlValues, id: string }) => VNode | null} */
function Label({ values, id }) {
  if (!values.description) return null;
  const width = values.style.description_width;
  return (
    <label class="ptynb-label" for={id} title={values.description} style={width && { width }}>
      {values.description}
    </label>
  );
}

/** A line with a label and a field, which `children` draws from its attributes.
 * @type {<V extends ControlValues>(given: FieldGiven<V>) => VNode} */
function Field({ element, values, kind, children }) {
  const id = useIdentity();
  useEffect(() => {
    const focus = () => document.getElementById(id)?.focus();
    element.on("msg:custom", focus);
    return () => element.off("msg:custom", focus);
  }, [element, id]);
  const title = values.description ? undefined : values.tooltip || undefined;
  return (
    <div {...outer(values, `ptynb-line ${kind}`)}>
      <Label values={values} id={id} />
      {children({ id, title, disabled: values.disabled })}
    </div>
  );
}

/** A reference to a node with this tag, which is there whenever it is used: in effects, and in what a user does.
 * @template {keyof HTMLElementTagNameMap} N
 * @param {N} _tag */
function useNode(_tag) {
  return useRef(/** @type {HTMLElementTagNameMap[N]} */ (/** @type {unknown} */ (null)));
}

/** A field whose text follows a value, except while it is edited without a change of that.
 * @template {"input" | "textarea"} N
 * @param {N} tag @param {string} text */
function useText(tag, text) {
  const field = useNode(tag);
  useLayoutEffect(() => {
    if (field.current.value !== text) field.current.value = text;
  }, [field, text]);
  return field;
}

/** @type {Drawing<HtmlValues>} */
function Html({ element }) {
  const values = element.use();
  return (
    <div {...outer(values, "ptynb-line ptynb-html")}>
      <div class="ptynb-html-content" dangerouslySetInnerHTML={{ __html: values.value }} />
    </div>
  );
}

/** Listens for the key Enter, at which JupyterLab keeps the browser from an event "change".
 * @type {(act: () => void) => { onKeyDown: (event: KeyboardEvent) => void }} */
const atEnter = (act) => ({ onKeyDown: ({ key }) => void (key === "Enter" && act()) });

/** A field whose text is the value of an element: its reference, what sends the text, and the event that does it.
 * @template {"input" | "textarea"} N
 * @param {N} tag @param {{ put: (name: "value", value: string) => void }} element @param {TextValues} values */
function useValue(tag, element, values) {
  const field = useText(tag, values.value);
  const send = () => element.put("value", field.current.value);
  return { field, send, typed: values.continuous_update ? { onInput: send } : { onChange: send } };
}

/** @type {Drawing<TextValues>} */
function Text({ element }) {
  const values = element.use();
  const { field, send, typed } = useValue("input", element, values);
  return (
    <Field element={element} values={values} kind="ptynb-text">
      {(given) => <input {...given} {...typed} {...atEnter(send)} ref={field} type="text" placeholder={values.placeholder} />}
    </Field>
  );
}

/** @type {Drawing<TextareaValues>} */
function Textarea({ element }) {
  const values = element.use();
  const { field, typed } = useValue("textarea", element, values);
  return (
    <Field element={element} values={values} kind="ptynb-textarea">
      {(given) => <textarea {...given} {...typed} ref={field} placeholder={values.placeholder} rows={values.rows ?? undefined} />}
    </Field>
  );
}

/** The number in a text within limits, which may be null; null for another text.
 * @type {(text: string, limits: Limits) => number | null} */
function numberOf(text, { min, max }) {
  if (!NUMBER.test(text)) return null;
  return Math.min(Math.max(Number(text), min ?? -Infinity), max ?? Infinity);
}

/** @type {Drawing<NumberValues>} */
function NumberField({ element }) {
  const values = element.use();
  const field = useText("input", `${values.value}`);
  const send = () => {
    const number = numberOf(field.current.value, values);
    if (number !== null) element.put("value", number);
    field.current.value = `${number ?? element.get("value")}`;
  };
  const limits = { min: values.min ?? undefined, max: values.max ?? undefined, step: values.step ?? "any" };
  return (
    <Field element={element} values={values} kind="ptynb-text">
      {(given) => <input {...given} {...limits} ref={field} type="number" onChange={send} {...atEnter(send)} />}
    </Field>
  );
}

/** @type {Drawing<CheckboxValues>} */
function Checkbox({ element }) {
  const values = element.use();
  const width = values.style.description_width;
  const label = values.description_allow_html
    ? { dangerouslySetInnerHTML: { __html: values.description } }
    : { children: values.description };
  return (
    <div {...outer(values, "ptynb-line ptynb-checkbox")}>
      {values.indent && <span class="ptynb-label" style={width && { width }} />}
      <label class="ptynb-checkbox-label">
        <input
          type="checkbox"
          checked={values.value}
          disabled={values.disabled}
          onChange={(event) => element.put("value", event.currentTarget.checked)}
        />
        <span {...label} />
      </label>
    </div>
  );
}

/** @type {Drawing<ButtonValues>} */
function Button({ element }) {
  const values = element.use();
  const colour = values.button_style && ` ptynb-${values.button_style}`;
  return (
    <button
      {...outer(values, `ptynb-button${colour}`)}
      type="button"
      disabled={values.disabled}
      onClick={() => element.send({ click: true })}
    >
      <Caption values={values} />
    </button>
  );
}

/** @type {Drawing<ToggleValues>} */
function Toggle({ element }) {
  const values = element.use();
  return (
    <button
      {...outer(values, "ptynb-button ptynb-toggle")}
      type="button"
      aria-pressed={values.value}
      disabled={values.disabled}
      onClick={() => element.put("value", !element.get("value"))}
    >
      <Caption values={values} />
    </button>
  );
}

/** @type {Drawing<DropdownValues>} */
function Dropdown({ element }) {
  const values = element.use();
  const field = useNode("select");
  useLayoutEffect(() => {
    field.current.selectedIndex = values.index ?? -1;
  }, [field, values.index, values.labels]);
  const options = values.labels.map((label, index) => (
    <option key={index} value={index}>
      {label}
    </option>
  ));
  return (
    <Field element={element} values={values} kind="ptynb-dropdown">
      {(given) => (
        <select {...given} ref={field} onChange={() => element.put("index", field.current.selectedIndex)}>
          {options}
        </select>
      )}
    </Field>
  );
}

/** @type {Drawing<MultipleValues>} */
function Multiple({ element }) {
  const values = element.use();
  const field = useNode("select");
  const chosen = () => Array.from(field.current.selectedOptions, (option) => Number(option.value));
  return (
    <Field element={element} values={values} kind="ptynb-multiple">
      {(given) => (
        <select {...given} ref={field} multiple size={values.rows} onChange={() => element.put("index", chosen())}>
          {values.labels.map((label, index) => (
            <option key={index} value={index} selected={values.index.includes(index)}>
              {label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** @type {Drawing<ProgressValues>} */
function Progress({ element }) {
  const values = element.use();
  return (
    <Field element={element} values={values} kind="ptynb-progress">
      {({ id }) => <progress id={id} max={values.max - values.min} value={values.value - values.min} />}
    </Field>
  );
}

/** @param {{ page: Page, children: Mark[] }} given */
function Children({ page, children }) {
  return children.map(({ $element: key }) => <Part key={key} page={page} name={key} />);
}

/** @type {(names: string) => Drawing<BoxValues>} */
const box = (names) =>
  function Box({ element }) {
    const values = element.use();
    return (
      <div {...outer(values, names)}>
        <Children page={element.page} children={values.children} />
      </div>
    );
  };

/** Moves the focus along the tabs of a list.
 * @type {(event: TargetedKeyboardEvent<HTMLElement>) => void} */
function moved(event) {
  const step = STEPS.get(event.key);
  if (step === undefined) return;
  const tabs = elementsIn(event.currentTarget, "[role=tab]");
  const index = tabs.findIndex((tab) => tab === document.activeElement) + step;
  tabs[Math.min(Math.max(index, 0), tabs.length - 1)].focus();
  event.preventDefault();
}

/** Pages of which one is shown; one is drawn when it is shown for the first time, and kept then.
 * @type {Drawing<TabValues>} */
function Tab({ element }) {
  const values = element.use();
  const id = useIdentity();
  const selected = values.selected_index ?? -1;
  const [opened, open] = useState(new Set());
  if (!opened.has(selected)) open(new Set([...opened, selected]));
  const more = values.sent.includes(null);
  useEffect(() => {
    const asking = more ? setTimeout(() => element.send({ more: true }), AFTER_MS) : undefined;
    return () => clearTimeout(asking);
  }, [element, more]);
  return (
    <div {...outer(values, "ptynb-tab")}>
      <div class="ptynb-tab-list" role="tablist" onKeyDown={moved}>
        {values.titles.map((title, index) => (
          <button
            key={title}
            id={`${id}-${index}`}
            type="button"
            role="tab"
            aria-selected={index === selected}
            aria-controls={`${id}-page`}
            tabIndex={index === selected ? 0 : -1}
            onClick={() => element.put("selected_index", index)}
          >
            {title}
          </button>
        ))}
      </div>
      <div class="ptynb-tab-contents" id={`${id}-page`} role="tabpanel" aria-labelledby={`${id}-${selected}`}>
        {values.sent.map((child, index) => (
          <div key={index} class="ptynb-tab-page" hidden={index !== selected}>
            {child && opened.has(index) && <Part key={child.$element} page={element.page} name={child.$element} />}
          </div>
        ))}
      </div>
    </div>
  );
}

/** @type {Drawing<AccordionValues>} */
function Accordion({ element }) {
  const values = element.use();
  /** @type {(index: number, open: boolean) => void} */
  const chosen = (index, open) => {
    if (open) element.put("selected_index", index);
    else if (element.get("selected_index") === index) element.put("selected_index", null);
  };
  return (
    <div {...outer(values, "ptynb-accordion")}>
      {values.children.map(({ $element: key }, index) => (
        <details
          key={key}
          open={index === values.selected_index}
          onToggle={(event) => chosen(index, event.currentTarget.open)}
        >
          <summary>{values.titles[index]}</summary>
          {index === values.selected_index && <Part page={element.page} name={key} />}
        </details>
      ))}
    </div>
  );
}

/** What a script of its own draws; see `components`.
 * @type {(given: { element: Element, render: Rendering }) => VNode} */
function Drawn({ element, render }) {
  const node = useNode("div");
  const values = element.use();
  useLayoutEffect(() => render({ model: element, el: node.current }), [element, node, render]);
  return <div {...outer(values, "ptynb-drawn")} ref={node} />;
}

/** @type {Record<string, Drawing>} */
const CONTROLS = {
  html: Html, text: Text, textarea: Textarea, number: NumberField, checkbox: Checkbox, button: Button, toggle: Toggle,
  dropdown: Dropdown, multiple: Multiple, progress: Progress, box: box("ptynb-box"), hbox: box("ptynb-box ptynb-hbox"),
  vbox: box("ptynb-box ptynb-vbox"), tab: Tab, accordion: Accordion,
};

/** An element by its key; it is drawn again when its own values change, not with what is around it.
 * @type {(given: PartGiven) => VNode | null} */
export function Part({ page, name }) {
  const element = page.element(name);
  if (!element) return null;
  const Control = CONTROLS[element.component];
  if (Control) return <Control element={element} />;
  return <Drawn element={element} render={components[element.component]} />;
}
