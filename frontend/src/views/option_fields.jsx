// Fields of options with what is said about them; the kernel makes numbers of texts and units.

import { useEffect, useState } from "preact/hooks";

import { Check, classes, Fold, Message, Select, TextField } from "../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../page/elements.js" */
/** @import { ElementValues } from "../page/types" */

/** @typedef {{ name: string, title: string, help: string, placeholder: string, kind: "text" | "choice" | "check",
 *   choices: [string, string][], units: string[] }} Option */
/** @typedef {ElementValues & { fields: Option[], values: Record<string, any>, units: Record<string, string>,
 *   notes: Record<string, { text: string, needed: boolean }>, problems: Record<string, string>, folded: string[],
 *   hidden: string[], disabled: string[], more: string, line: string }} OptionValues */

/** @type {(given: { element: Element<OptionValues>, option: Option }) => VNode} */
function OptionField({ element, option: { name, title, help, placeholder, kind, choices, units } }) {
  const values = element.use();
  const value = values.values[name];
  const note = values.notes[name];
  const given = { label: title, title: help, name: `${element.key}-${name}`, disabled: values.disabled.includes(name) };
  const enter = (/** @type {string | boolean} */ entered) => element.call("enter", { name, value: entered });
  return (
    <div class="ptynb-option-field">
      <div class="ptynb-option-line">
        {kind === "check" && <Check {...given} label={title} checked={value} indent onCommit={enter} />}
        {kind === "choice" && <Select {...given} options={choices} value={value} onCommit={enter} />}
        {kind === "text" && (
          <TextField {...given} class={units.length ? "ptynb-option-number" : ""} {...{ value, placeholder }} onCommit={enter} />
        )}
        {units.length > 0 && (
          <Select
            class="ptynb-option-unit"
            label="in"
            title={`Unit of ${title}`}
            options={units}
            value={values.units[name]}
            disabled={given.disabled}
            onCommit={(unit) => element.call("enter", { name, unit })}
          />
        )}
        {note && <span class={classes("ptynb-option-note ptynb-small", note.needed && "ptynb-option-needed")}>{note.needed ? `● ${note.text}` : note.text}</span>}
      </div>
      <Message text={values.problems[name] ?? ""} />
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
  const draw = (/** @type {Option} */ option) => <OptionField key={option.name} {...{ element, option }} />;
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
