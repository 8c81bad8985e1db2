// Fields of options with what is said about them; the kernel makes numbers of texts and units.

import { useEffect, useState } from "preact/hooks";

import { Check, classes, Fold, Message, Select, TextField } from "../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../page/elements.js" */
/** @import { FieldSchema } from "./form/values" */

/** @typedef {{ fields: FieldSchema[], values: Record<string, any>, units: Record<string, string>,
 *   notes: Record<string, { text: string, needed: boolean }>, problems: Record<string, string>, folded: string[],
 *   hidden: string[], disabled: string[], more: string, line: string }} OptionValues */

/** A switch, a menu of choices or a text, with the unit in which a number is typed; version: as for `TextField`.
 * @type {(given: { field: FieldSchema, value: string | boolean | null, unit?: string, version?: number, name?: string,
 *   disabled?: boolean, onEnter: (value: string | boolean) => void, onUnit: (unit: string) => void }) => VNode} */
export function ValueField({ field, value, unit = "", version, onEnter, onUnit, ...given }) {
  const { label, about, kind, placeholder, choices = [], units = [] } = field;
  const line = { ...given, class: classes("ptynb-field", units.length > 0 && "ptynb-measured"), label, title: about };
  const text = typeof value === "string" ? value : "";
  return (
    <>
      {kind === "switch" ? (
        <Check {...line} checked={value === true} indent onCommit={onEnter} />
      ) : kind === "choice" ? (
        <Select {...line} options={choices} value={typeof value === "string" ? value : null} onCommit={onEnter} />
      ) : (
        <TextField {...line} {...{ version, placeholder }} value={text} onCommit={onEnter} />
      )}
      {units.length > 0 && <span class="ptynb-in">in</span>}
      {units.length > 0 && (
        <Select class="ptynb-unit" title={`Unit of ${label}`} options={units} value={unit} disabled={given.disabled} onCommit={onUnit} />
      )}
    </>
  );
}

/** @type {(given: { element: Element<OptionValues>, field: FieldSchema }) => VNode} */
function OptionField({ element, field }) {
  const { values, units, notes, problems, disabled } = element.use();
  const { name } = field;
  const note = notes[name];
  return (
    <div class="ptynb-option-field">
      <div class="ptynb-row">
        <ValueField
          field={field} value={values[name]} unit={units[name]} name={`${element.key}-${name}`} disabled={disabled.includes(name)}
          onEnter={(value) => element.call("enter", { name, value })} onUnit={(unit) => element.call("enter", { name, unit })}
        />
        {note && <span class={classes("ptynb-option-note ptynb-small", note.needed && "ptynb-option-needed")}>{note.needed ? `● ${note.text}` : note.text}</span>}
      </div>
      <Message text={problems[name] ?? ""} />
    </div>
  );
}

/** The fields of a store, or those with these names, in their order; the folded ones below a title.
 * inRow: side by side where there is place.
 * @type {(given: { element: Element<OptionValues>, names?: string[], inRow?: boolean, class?: string }) => VNode} */
export function OptionFields({ element, names, inRow = false, class: more }) {
  const values = element.use();
  const [open, setOpen] = useState(false);
  const drawn = names?.join();
  const shown = values.fields.filter(({ name }) => !values.hidden.includes(name) && (!names || names.includes(name)));
  const folded = shown.filter(({ name }) => values.folded.includes(name));
  useEffect(() => {
    /** @type {(content: { focus?: string }) => void} */
    const focus = ({ focus: name }) => {
      if (name === undefined || (drawn !== undefined && !drawn.split(",").includes(name))) return;
      if (element.get("folded").includes(name)) setOpen(true);
      const field = () => document.getElementsByName(`${element.key}-${name}`)[0];
      requestAnimationFrame(() => (field() ? field().focus() : requestAnimationFrame(() => field()?.focus())));
    };
    element.on("msg:custom", focus);
    return () => element.off("msg:custom", focus);
  }, [element, drawn]);
  const draw = (/** @type {FieldSchema} */ field) => <OptionField key={field.name} {...{ element, field }} />;
  return (
    <div class={classes("ptynb-option-fields", inRow && "ptynb-option-fields-row", more)}>
      {shown.filter((one) => !folded.includes(one)).map(draw)}
      {folded.length > 0 && (
        <Fold class="ptynb-option-fields-more" title={values.more} open={open} onToggle={setOpen}>
          {folded.map(draw)}
        </Fold>
      )}
    </div>
  );
}

/** A line of Python.
 * @type {(given: { text: string }) => VNode | null} */
export const PythonLine = ({ text }) => (text ? <code class="ptynb-python-line">{text}</code> : null);
