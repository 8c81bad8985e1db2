// What views are drawn with: fields, buttons and texts with the look of Jupyter's own widgets, from plain values.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { elementsIn } from "../elements.js";
import { icons } from "./icons.js";

/** @import { ComponentChildren, TargetedKeyboardEvent, VNode } from "preact" */
/** @import { Element } from "./elements.js" */
/** @import { IconName } from "./icons.js" */
/** @import { Limits, Line, LineGiven, Mark, Option, OptionsOf, TextGiven, TextLike } from "./types" */

const STEPS = new Map([["ArrowRight", 1], ["ArrowLeft", -1], ["Home", -Infinity], ["End", Infinity]]);
const NUMBER = /^\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*$/i;

let identities = 0;

/** An identity for a node, which no other page of the document has either. */
export function useIdentity() {
  const [identity] = useState(() => `ptynb-${++identities}`);
  return identity;
}

/** A reference to a node with this tag, which is there whenever it is used: in effects, and in what a user does.
 * @template {keyof HTMLElementTagNameMap} N
 * @param {N} _tag */
export function useNode(_tag) {
  return useRef(/** @type {HTMLElementTagNameMap[N]} */ (/** @type {unknown} */ (null)));
}

/** @type {(...names: (string | false | undefined)[]) => string} */
export const classes = (...names) => names.filter(Boolean).join(" ");

/** @type {(given: { name: keyof typeof icons }) => VNode} */
export const Icon = ({ name }) => (
  <span class="ptynb-button-icon" aria-hidden="true" dangerouslySetInnerHTML={{ __html: icons[name] }} />
);

/** The icon and the text of a button.
 * @type {(given: { icon?: IconName, text?: string }) => VNode} */
const Caption = ({ icon, text }) => (
  <>
    {icon && <Icon name={icon} />}
    {icon && text && " "}
    {text}
  </>
);

/** A button, or one that stays pressed if it has `pressed`. kind: "primary", "danger" or none.
 * @type {(given: { text?: string, icon?: IconName, title?: string, kind?: string, pressed?: boolean, disabled?: boolean,
 *   onClick: () => void } & Line) => VNode} */
export function Button({ text, icon, title, kind, pressed, disabled, onClick, ...line }) {
  return (
    <button
      class={classes("ptynb-element ptynb-button", pressed !== undefined && "ptynb-toggle", kind && `ptynb-${kind}`, line.class)}
      style={line.style}
      title={title || undefined}
      aria-label={text ? undefined : title || undefined}
      type="button"
      aria-pressed={pressed}
      disabled={disabled}
      onClick={onClick}
    >
      <Caption icon={icon} text={text} />
    </button>
  );
}

/** A button that calls a command of an element, with these arguments.
 * @type {(given: { of: Element<any>, call: string, given?: Record<string, unknown> } & Omit<Parameters<typeof Button>[0], "onClick">) => VNode} */
export const Act = ({ of, call, given, ...button }) => <Button {...button} onClick={() => void of.call(call, given)} />;

/** The element of a mark, which is there as long as the one that has the mark.
 * @type {(element: Element<any>, mark: Mark) => Element<any>} */
export const elementOf = (element, mark) => /** @type {Element<any>} */ (element.page.element(mark.$element));

/** A table, or nothing without rows. heads: titles of its columns; left: columns of texts among those of numbers.
 * @type {(given: { rows: ComponentChildren[][], heads?: string[], caption?: string, left?: number[] }) => VNode | null} */
export function Table({ rows, heads = [], caption, left }) {
  if (rows.length === 0) return null;
  const side = (/** @type {number} */ column) => (left && !left.includes(column) ? { textAlign: "right" } : undefined);
  return (
    <table class="ptynb-table">
      {caption && <caption>{caption}</caption>}
      {heads.length > 0 && (
        <thead>
          <tr>{heads.map((head, at) => (head ? <th key={head} scope="col" style={side(at)}>{head}</th> : <td key="" />))}</tr>
        </thead>
      )}
      <tbody>
        {rows.map((cells, row) => (
          <tr key={row}>{cells.map((cell, at) => <td key={at} style={side(at)}>{cell}</td>)}</tr>
        ))}
      </tbody>
    </table>
  );
}

/** A line with a label and a field, which `children` draws from its attributes. labelWidth: a CSS length.
 * @type {(given: LineGiven & { kind: string, children: (given: import("./types").Given) => VNode }) => VNode} */
export function Field({ label, labelWidth, title, disabled = false, name, kind, children, ...line }) {
  const id = useIdentity();
  return (
    <div class={classes("ptynb-element ptynb-line", kind, line.class)} style={line.style} title={title || undefined}>
      {label && (
        <label class="ptynb-label" for={id} title={label} style={labelWidth ? { width: labelWidth } : undefined}>
          {label}
        </label>
      )}
      {children({ id, name, title: label ? undefined : title || undefined, "aria-label": label ? undefined : title || undefined, disabled })}
    </div>
  );
}

/** Listens for the key Enter, at which JupyterLab keeps the browser from an event "change".
 * @type {(act: () => void) => { onKeyDown: (event: KeyboardEvent) => void }} */
const atEnter = (act) => ({ onKeyDown: ({ key }) => void (key === "Enter" && act()) });

/** A field whose text follows a value, except while it is edited without a change of that, or of its version.
 * @template {"input" | "textarea"} N
 * @param {N} tag @param {string} text @param {number} [version] */
function useText(tag, text, version) {
  const field = useNode(tag);
  useLayoutEffect(() => {
    if (field.current.value !== text) field.current.value = text;
  }, [field, text, version]);
  return field;
}

/** A field whose text is a value: its reference, what takes the text, and the event that does it.
 * @template {"input" | "textarea"} N
 * @param {N} tag @param {TextGiven} given */
function useTyped(tag, { value, each = false, version, onCommit }) {
  const field = useText(tag, value, version);
  const send = () => onCommit(field.current.value);
  return { field, send, typed: each ? { onInput: send } : { onChange: send } };
}

/** A line of text. each: taken at each key, or else once the user has finished.
 * @type {(given: TextLike) => VNode} */
export function TextField({ value, each, version, onCommit, placeholder, ...line }) {
  const { field, send, typed } = useTyped("input", { value, each, version, onCommit });
  return (
    <Field {...line} kind="ptynb-text">
      {(given) => <input {...given} {...typed} {...atEnter(send)} ref={field} type="text" placeholder={placeholder} />}
    </Field>
  );
}

/** Several lines of text; rows: how many are in sight.
 * @type {(given: TextLike & { rows?: number }) => VNode} */
export function TextArea({ value, each, onCommit, placeholder, rows, ...line }) {
  const { field, typed } = useTyped("textarea", { value, each, onCommit });
  return (
    <Field {...line} kind="ptynb-textarea">
      {(given) => <textarea {...given} {...typed} ref={field} placeholder={placeholder} rows={rows} />}
    </Field>
  );
}

/** The number in a text within limits, which may be null; null for another text.
 * @type {(text: string, limits: Limits) => number | null} */
function numberOf(text, { min, max }) {
  if (!NUMBER.test(text)) return null;
  return Math.min(Math.max(Number(text), min ?? -Infinity), max ?? Infinity);
}

/** A number, which is set to the nearest limit if it is beyond.
 * @type {(given: LineGiven & Partial<Limits> & { value: number, step?: number | null, onCommit: (value: number) => void }) => VNode} */
export function NumberField({ value, min = null, max = null, step = null, onCommit, ...line }) {
  const field = useText("input", `${value}`);
  const send = () => {
    const number = numberOf(field.current.value, { min, max });
    field.current.value = `${number ?? value}`;
    if (number !== null) onCommit(number);
  };
  const limits = { min: min ?? undefined, max: max ?? undefined, step: step ?? "any" };
  return (
    <Field {...line} kind="ptynb-text">
      {(given) => <input {...given} {...limits} ref={field} type="number" onChange={send} {...atEnter(send)} />}
    </Field>
  );
}

/** A check box with its text. indent: below the fields of others, as if there were a label of this width.
 * @type {(given: Line & { label: string, checked: boolean, disabled?: boolean, title?: string, name?: string,
 *   indent?: boolean, labelWidth?: string, onCommit: (checked: boolean) => void }) => VNode} */
export function Check({ label, checked, disabled, title, name, indent = false, labelWidth, onCommit, ...line }) {
  return (
    <div class={classes("ptynb-element ptynb-line ptynb-checkbox", line.class)} style={line.style} title={title || undefined}>
      {indent && <span class="ptynb-label" style={labelWidth ? { width: labelWidth } : undefined} />}
      <label class="ptynb-checkbox-label">
        <input
          type="checkbox"
          name={name}
          checked={checked}
          disabled={disabled}
          onChange={(event) => onCommit(event.currentTarget.checked)}
        />
        <span>{label}</span>
      </label>
    </div>
  );
}

/** @type {(options: OptionsOf) => Option[]} */
const pairsOf = (options) => options.map((option) => (typeof option === "string" ? [option, option] : option));

/** A menu of options, texts or pairs of a key and a text; value: the key of the chosen one, null: none; again: whether the
 * same one may be chosen again, and the value stays shown.
 * @type {(given: LineGiven & { options: OptionsOf, value: string | null, again?: boolean, onCommit: (key: string) => void }) => VNode} */
export function Select({ options, value, again = false, onCommit, ...line }) {
  const pairs = pairsOf(options);
  const field = useNode("select");
  const index = pairs.findIndex(([key]) => key === value);
  const keys = JSON.stringify(pairs);
  useLayoutEffect(() => {
    field.current.selectedIndex = index;
  }, [field, index, keys]);
  const commit = () => {
    const [key] = pairs[field.current.selectedIndex];
    if (again) field.current.selectedIndex = index;
    onCommit(key);
  };
  return (
    <Field {...line} kind="ptynb-dropdown">
      {(given) => (
        <select {...given} ref={field} onChange={commit}>
          {pairs.map(([key, text]) => (
            <option key={key} value={key}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** A list of which several options may be selected, texts or pairs of a key and a text; keys are told, not indices: a list
 * that changes while a user selects from it would have another option there. rows: how many are in sight; head: titles above it.
 * @type {(given: LineGiven & { options: OptionsOf, chosen: string[], rows: number, head?: string, onChoose: (keys: string[]) => void }) => VNode} */
export function ListBox({ options, chosen, rows, head, onChoose, ...line }) {
  const field = useNode("select");
  useLayoutEffect(() => {
    for (const option of field.current.options) option.selected = chosen.includes(option.value);
  });
  const send = () => onChoose([...field.current.options].filter(({ selected }) => selected).map(({ value }) => value));
  return (
    <Field {...line} kind="ptynb-list">
      {(given) => (
        <span class="ptynb-list-column">
          {head && (
            <span class="ptynb-list-head" aria-hidden="true">
              {head}
            </span>
          )}
          <select {...given} ref={field} multiple size={rows} onChange={send}>
            {pairsOf(options).map(([key, text]) => (
              <option key={key} value={key}>
                {text}
              </option>
            ))}
          </select>
        </span>
      )}
    </Field>
  );
}

/** @type {(given: LineGiven & { value: number, max: number }) => VNode} */
export function Progress({ value, max, ...line }) {
  return (
    <Field {...line} kind="ptynb-progress">
      {({ id }) => <progress id={id} max={max} value={value} />}
    </Field>
  );
}

/** An error or a note: its first line beside a bar, the rest as details; nothing for an empty text.
 * @type {(given: { text: string, role?: "alert" | "status" }) => VNode | null} */
export function Message({ text, role = "alert" }) {
  if (!text) return null;
  const [first, ...more] = text.split("\n");
  return (
    <div role={role} class={`ptynb-message ptynb-message-${role}`}>
      {first}
      {more.length > 0 && (
        <details>
          <summary>details</summary>
          <pre>{more.join("\n")}</pre>
        </details>
      )}
    </div>
  );
}

/** What is shown below a title while it is unfolded.
 * @type {(given: Line & { title: ComponentChildren, open: boolean, onToggle: (open: boolean) => void, children: ComponentChildren }) => VNode} */
export function Fold({ title, open, onToggle, children, ...line }) {
  return (
    <details class={classes("ptynb-fold", line.class)} open={open} onToggle={(event) => onToggle(event.currentTarget.open)}>
      <summary>{title}</summary>
      {open && <div>{children}</div>}
    </details>
  );
}

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
 * @type {(given: Line & { titles: string[], selected: number, onSelect: (index: number) => void,
 *   page: (index: number) => ComponentChildren }) => VNode} */
export function Tabs({ titles, selected, onSelect, page, ...line }) {
  const id = useIdentity();
  const [opened, open] = useState(new Set());
  if (!opened.has(selected)) open(new Set([...opened, selected]));
  return (
    <div class={classes("ptynb-element ptynb-tab", line.class)} style={line.style}>
      <div class="ptynb-tab-list" role="tablist" onKeyDown={moved}>
        {titles.map((title, index) => (
          <button
            key={title}
            id={`${id}-${index}`}
            type="button"
            role="tab"
            aria-selected={index === selected}
            aria-controls={`${id}-page`}
            tabIndex={index === selected ? 0 : -1}
            onClick={() => onSelect(index)}
          >
            {title}
          </button>
        ))}
      </div>
      <div class="ptynb-tab-contents" id={`${id}-page`} role="tabpanel" aria-labelledby={`${id}-${selected}`}>
        {titles.map((title, index) => (
          <div key={title} class="ptynb-tab-page" hidden={index !== selected}>
            {opened.has(index) && page(index)}
          </div>
        ))}
      </div>
    </div>
  );
}

/** Buttons side by side of which one is pressed: radio buttons for the keyboard and for screen readers.
 * @type {(given: { label: string, options: string[], icons?: IconName[], chosen: string, onChoose: (option: string) => void }) => VNode} */
export function Segments({ label, options, icons: names = [], chosen, onChoose }) {
  const group = useNode("div");
  /** @type {(event: TargetedKeyboardEvent<HTMLElement>) => void} */
  const step = (event) => {
    const by = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 })[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (options.indexOf(chosen) + by + options.length) % options.length;
    onChoose(options[next]);
    elementsIn(group.current, "button")[next].focus();
  };
  return (
    <div ref={group} class="ptynb-segments" role="radiogroup" aria-label={label} onKeyDown={step}>
      {options.map((option, index) => (
        <button
          key={option}
          type="button"
          role="radio"
          aria-checked={option === chosen}
          tabIndex={option === chosen ? 0 : -1}
          onClick={() => onChoose(option)}
        >
          <Caption icon={names[index]} text={option} />
        </button>
      ))}
    </div>
  );
}

/** @typedef {{ title: string, icon: IconName, content: () => ComponentChildren }} DrawerPage */

/** Pages below a row of buttons, of which one at most is shown; `shown` is its title, "": none.
 * @type {(given: { label: string, pages: DrawerPage[], shown: string,
 *   onShow: (title: string) => void, children?: ComponentChildren }) => VNode} */
export function Drawer({ label, pages, shown, onShow, children }) {
  const drawer = useNode("div");
  const [opened, open] = useState(new Set());
  if (shown && !opened.has(shown)) open(new Set([...opened, shown]));
  const press = (/** @type {string} */ title) => {
    onShow(title === shown ? "" : title);
    // Scrolls as little as shows the page that a click has opened, which may be below the window.
    requestAnimationFrame(() => drawer.current?.querySelector(":scope > .ptynb-drawer-page:not([hidden])")?.scrollIntoView({ block: "nearest" }));
  };
  return (
    <div ref={drawer} class="ptynb-box ptynb-vbox ptynb-drawer">
      <div class="ptynb-box ptynb-hbox ptynb-drawer-row">
        {children}
        <div class="ptynb-drawer-buttons" role="group" aria-label={label}>
          {pages.map(({ title, icon }) => (
            <button
              key={title}
              class="ptynb-drawer-button"
              type="button"
              aria-expanded={title === shown}
              onClick={() => press(title)}
            >
              <Caption icon={icon} text={title} />
            </button>
          ))}
        </div>
      </div>
      {pages.map(({ title, content }) => (
        <div key={title} class="ptynb-drawer-page" role="region" aria-label={title} tabIndex={0} hidden={title !== shown}>
          {opened.has(title) && content()}
        </div>
      ))}
    </div>
  );
}
