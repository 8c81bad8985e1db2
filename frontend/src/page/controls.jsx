// Elements that are a control, a text or a box.

import { useEffect } from "preact/hooks";

import { lineOf, Parts, useFocusing } from "./part.jsx";
import { Button, Check, Drawer, Fold, Html, NumberField, Progress, Segments, Select, Tabs, TextArea, TextField } from "./parts.jsx";

/**
 * @import {
 *   AccordionValues, BoxValues, ButtonValues, CheckboxValues, ControlValues, Drawing, DrawerValues, DropdownValues,
 *   HtmlValues, LineGiven, NumberValues, ProgressValues, SegmentsValues, TabValues, TextareaValues, TextValues, ToggleValues,
 * } from "./types"
 */
/** @import { Element } from "./elements.js" */

/** After which time the elements of tabs that are not shown are asked for: those that are shown have been drawn. */
const AFTER_MS = 100;

/** What the line of a control is drawn with; the kernel moves the focus to its field by its key.
 * @type {(element: Element, values: ControlValues) => LineGiven & { disabled: boolean }} */
function useLine(element, values) {
  useFocusing(element);
  const { description: label, style, tooltip, disabled } = values;
  return { ...lineOf(values), label, labelWidth: style.description_width, title: tooltip ?? undefined, disabled, name: element.key };
}

/** @type {Drawing<HtmlValues>} */
function HtmlElement({ element }) {
  const values = element.use();
  return <Html value={values.value} {...lineOf(values)} />;
}

/** @type {Drawing<TextValues>} */
function Text({ element }) {
  const values = element.use();
  const line = useLine(element, values);
  const { value, placeholder, continuous_update: each } = values;
  return <TextField {...line} value={value} placeholder={placeholder} each={each} onCommit={(text) => element.put("value", text)} />;
}

/** @type {Drawing<TextareaValues>} */
function Textarea({ element }) {
  const values = element.use();
  const line = useLine(element, values);
  const { value, placeholder, continuous_update: each } = values;
  const rows = values.rows ?? undefined;
  return <TextArea {...line} {...{ value, placeholder, each, rows }} onCommit={(text) => element.put("value", text)} />;
}

/** @type {Drawing<NumberValues>} */
function Number({ element }) {
  const values = element.use();
  const line = useLine(element, values);
  const { value, min, max, step } = values;
  return <NumberField {...line} {...{ value, min, max, step }} onCommit={(number) => element.put("value", number)} />;
}

/** @type {Drawing<CheckboxValues>} */
function Checkbox({ element }) {
  const values = element.use();
  const { label, ...line } = useLine(element, values);
  return <Check {...line} label={label ?? ""} checked={values.value} indent={values.indent} onCommit={(on) => element.put("value", on)} />;
}

/** @type {(values: ButtonValues) => Omit<Parameters<typeof Button>[0], "onClick">} */
function buttonOf(values) {
  const { description: text, icon, button_style: kind, tooltip, disabled } = values;
  return { ...lineOf(values), text, icon, kind, title: tooltip ?? undefined, disabled };
}

/** @type {Drawing<ButtonValues>} */
function ButtonElement({ element }) {
  return <Button {...buttonOf(element.use())} onClick={() => element.send({ click: true })} />;
}

/** @type {Drawing<ToggleValues>} */
function Toggle({ element }) {
  const values = element.use();
  return <Button {...buttonOf(values)} pressed={values.value} onClick={() => element.put("value", !element.get("value"))} />;
}

/** @type {Drawing<DropdownValues>} */
function Dropdown({ element }) {
  const values = element.use();
  const line = useLine(element, values);
  const options = values.labels.map((label, index) => /** @type {[string, string]} */ ([`${index}`, label]));
  const value = values.index === null ? null : `${values.index}`;
  return <Select {...line} options={options} value={value} onCommit={(key) => element.put("index", parseInt(key))} />;
}

/** @type {Drawing<ProgressValues>} */
function ProgressElement({ element }) {
  const values = element.use();
  const line = useLine(element, values);
  return <Progress {...line} max={values.max - values.min} value={values.value - values.min} />;
}

/** @type {(names: string) => Drawing<BoxValues>} */
const box = (names) =>
  function Box({ element }) {
    const values = element.use();
    return (
      <div {...lineOf(values, `ptynb-element ${names}`)}>
        <Parts page={element.page} of={values.children} />
      </div>
    );
  };

/** @type {Drawing<TabValues>} */
function Tab({ element }) {
  const values = element.use();
  const more = values.sent.includes(null);
  useEffect(() => {
    const asking = more ? setTimeout(() => element.send({ more: true }), AFTER_MS) : undefined;
    return () => clearTimeout(asking);
  }, [element, more]);
  return (
    <Tabs
      {...lineOf(values)}
      titles={values.titles}
      selected={values.selected_index ?? -1}
      onSelect={(index) => element.put("selected_index", index)}
      page={(index) => <Parts page={element.page} of={values.sent[index]} />}
    />
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
    <div {...lineOf(values, "ptynb-element ptynb-accordion")}>
      {values.children.map((child, index) => (
        <Fold
          key={child.$element}
          title={values.titles[index]}
          open={index === values.selected_index}
          onToggle={(open) => chosen(index, open)}
        >
          <Parts page={element.page} of={child} />
        </Fold>
      ))}
    </div>
  );
}

/** @type {Drawing<SegmentsValues>} */
function SegmentsElement({ element }) {
  const { description: label, options, icons, chosen } = element.use();
  return <Segments {...{ label, options, icons, chosen }} onChoose={(option) => element.put("chosen", option)} />;
}

/** @type {Drawing<DrawerValues>} */
function DrawerElement({ element }) {
  const { description, titles, icons, pages, beside, shown } = element.use();
  const content = (/** @type {number} */ index) => () => <Parts page={element.page} of={pages[index]} />;
  const drawn = titles.map((title, index) => ({ title, icon: icons[index], content: content(index) }));
  return (
    <Drawer label={description} pages={drawn} shown={shown ?? ""} onShow={(title) => element.put("shown", title || null)}>
      <Parts page={element.page} of={beside} />
    </Drawer>
  );
}

/** @type {Record<string, Drawing>} */
export const CONTROLS = {
  html: HtmlElement, text: Text, textarea: Textarea, number: Number, checkbox: Checkbox, button: ButtonElement, toggle: Toggle,
  dropdown: Dropdown, progress: ProgressElement, box: box("ptynb-box"), hbox: box("ptynb-box ptynb-hbox"),
  vbox: box("ptynb-box ptynb-vbox"), tab: Tab, accordion: Accordion, segments: SegmentsElement, drawer: DrawerElement,
};
