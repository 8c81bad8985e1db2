// A field of a form: its value in one of its units, what is said of it, and the range in which it is tuned.

import { useState } from "preact/hooks";

import { Act, Check, classes, Message, TextField } from "../../page/parts.jsx";
import { ValueField } from "../option_fields.jsx";

/** @import { VNode } from "preact" */
/** @import { FieldSchema, Form, Mark, RangeValues, Shown } from "./values" */

/** @type {(shown: Shown, unit: number) => string} */
const textOf = (shown, unit) => (typeof shown === "string" ? shown : shown !== null && typeof shown === "object" ? shown.texts[unit] : "");

/** The index of the unit in which a value is shown at first.
 * @type {(shown: Shown) => number} */
const fitting = (shown) => (shown !== null && typeof shown === "object" ? shown.fit : 0);

/** A value in words.
 * @type {(field: FieldSchema, shown: Shown, unit: number) => string} */
function wordsOf({ choices, units, unit: only }, shown, unit) {
  if (typeof shown === "boolean") return shown ? "on" : "off";
  if (choices) return choices.find(([key]) => key === shown)?.[1] ?? "none";
  return [textOf(shown, unit) || "none", units ? units[unit] : only].filter(Boolean).join(" ");
}

/** What is said of a field, in a line that is cut off until the field has the focus, and its problem.
 * @type {(given: { field: FieldSchema, unit: number, mark: Mark, source: string, reason?: string, note: string }) => VNode} */
function About({ field, unit, mark: { was, problem }, source, reason, note }) {
  const whole = [field.about, field.limits?.[unit]].filter(Boolean).join("; ");
  const said = [
    field.unit,
    was !== undefined ? <><b>● changed</b> ({source}: {wordsOf(field, was, unit)})</> : reason && <><b>◆ {source}</b>: {reason}</>,
    note && <i>{note}</i>,
    <span class="ptynb-muted">{whole}</span>,
  ].filter(Boolean);
  return (
    <div class="ptynb-row-about ptynb-small">
      <div class="ptynb-clip" title={[reason, whole].filter(Boolean).join(". ")}>
        {said.map((part, index) => (index ? [" · ", part] : part))}
      </div>
      {problem && (
        <div class="ptynb-row-problem" role="alert">
          ⚠ {problem}
        </div>
      )}
    </div>
  );
}

/** The range of a ticked field: its ends, or the choices to try.
 * @type {(given: { form: Form, field: FieldSchema, range: RangeValues, unit: number }) => VNode} */
function Range({ form, field: { name, label, kind, choices, units }, range, unit }) {
  const set = (/** @type {object} */ given) => form.call("set_range", { name, unit: units?.[unit] ?? "", ...given });
  const { chosen, low, high, logarithmic } = range;
  /** @type {[string | boolean, string][]} */
  const options = kind === "switch" ? [[false, "off"], [true, "on"]] : choices ?? [];
  const tick = (/** @type {string | boolean} */ key, /** @type {boolean} */ on) =>
    set({ chosen: options.map(([one]) => one).filter((one) => (one === key ? on : chosen?.includes(one))) });
  /** @type {(text: string, texts: string[], end: string) => VNode} */
  const end = (text, texts, at) => (
    <TextField
      label={text}
      title={`${label}: ${text}`}
      placeholder={text}
      value={texts[unit] ?? texts[0]}
      onCommit={(typed) => set({ [at]: typed })}
    />
  );
  return (
    <div class="ptynb-range ptynb-wrapped" role="group" aria-label={chosen ? `${label}: values to try` : `${label}: range`}>
      {chosen && <span>Try</span>}
      {chosen && options.map(([key, text]) => <Check key={text} label={text} checked={chosen.includes(key)} onCommit={(on) => tick(key, on)} />)}
      {low && end("lowest", low, "low")}
      {high && end("highest", high, "high")}
      {low && <Check label="logarithmic" title={`${label}: sample the logarithm uniformly`} checked={logarithmic === true} onCommit={(on) => set({ logarithmic: on })} />}
      <Message text={range.problem} />
    </div>
  );
}

/** A row with a field, its unit, what freezes or resets it, and what is said of it; entry: the name of its entry in a list.
 * @type {(given: { form: Form, field: FieldSchema, entry?: string }) => VNode} */
export function FieldRow({ form, field, entry }) {
  const { mode, values, revisions, marks, source: { title, reasons }, tuned, frozen } = form.use();
  const { label, units } = field;
  const name = entry ? `${entry}.${field.name}` : field.name;
  const shown = values[name];
  const [unit, choose] = useState(() => fitting(shown));
  const [mark, range, freezing, source] = [marks[name] ?? {}, tuned[name], frozen[name], entry ? "default" : title];
  const note = mode === "live" && !field.live && !entry ? "with Apply" : "";
  return (
    <div>
      <div class="ptynb-row">
        {mode === "ranges" && (
          <input
            class="ptynb-row-tick"
            type="checkbox"
            aria-label={`Tune ${label}`}
            title={`Tune ${label}`}
            checked={range !== undefined}
            onChange={(event) => form.call("tune", { name, on: event.currentTarget.checked })}
          />
        )}
        <ValueField
          field={field} value={typeof shown === "object" ? textOf(shown, unit) : shown} unit={units?.[unit]} version={revisions[name]}
          onEnter={(value) => form.call("enter", { name, value, unit: units?.[unit] ?? "" })} onUnit={(one) => choose(units?.indexOf(one) ?? 0)}
        />
        {freezing && (
          <Act
            of={form} call="freeze" given={{ name }} class="ptynb-row-freeze" text={freezing.on ? "Unfreeze" : "Freeze"}
            title={`${label}: set to ${freezing.rate}`} disabled={freezing.on && freezing.rate === 0}
          />
        )}
        <Act
          of={form} call="reset" given={{ name }}
          class={classes("ptynb-row-reset", mark.was === undefined && "ptynb-invisible")} icon="undo"
          title={`${label}: reset to ${source}`}
        />
        <About {...{ field, unit, mark, source, reason: reasons[name], note }} />
      </div>
      {range && <Range {...{ form, field, range, unit }} />}
    </div>
  );
}
