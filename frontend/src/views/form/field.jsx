// A field of a form: its value in one of its units, what is said of it, and the range in which it is tuned.

import { useState } from "preact/hooks";

import { Button, Check, Message, Select, TextField, classes } from "../../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { FieldSchema, Form, Mark, RangeValues, Shown } from "./values" */

const FIXED = "fixed during a run";

/** @type {(shown: Shown, unit: number) => string} */
const textOf = (shown, unit) => (typeof shown === "string" ? shown : shown !== null && typeof shown === "object" ? shown.texts[unit] : "");

/** A value in words.
 * @type {(field: FieldSchema, shown: Shown, unit: number) => string} */
function wordsOf({ choices, units, unit: only }, shown, unit) {
  if (typeof shown === "boolean") return shown ? "on" : "off";
  if (choices) return choices.find(([key]) => key === shown)?.[1] ?? "none";
  return [textOf(shown, unit) || "none", units ? units[unit] : only].filter(Boolean).join(" ");
}

/** What holds for a field besides its value. revision: shows the value again; source: whose value was changed; reason: why the source has it. */
/** @typedef {{ revision?: number, mark?: Mark, source: string, reason?: string, fixed?: string, note?: string, entry?: number }} Marks */

/** The field itself.
 * @type {(given: { form: Form, field: FieldSchema, shown: Shown, unit: number, marks: Marks }) => VNode} */
function Control({ form, field, shown, unit, marks }) {
  const { name, label, about, units, choices } = field;
  const line = { class: classes("ptynb-row-field", units && "ptynb-row-measured"), label, title: about, disabled: Boolean(marks.fixed) };
  const enter = (/** @type {string | boolean} */ value) => form.call("enter", { name, value, unit: units?.[unit] ?? "", entry: marks.entry ?? null });
  if (choices) return <Select {...line} options={choices} value={typeof shown === "string" ? shown : null} onCommit={enter} />;
  if (field.kind === "switch") return <Check {...line} checked={shown === true} indent={true} onCommit={enter} />;
  const placeholder = field.optional ? "none" : "";
  return <TextField {...line} value={textOf(shown, unit)} version={marks.revision} placeholder={placeholder} onCommit={enter} />;
}

/** What is said of a field, in a line that is cut off until the field has the focus, and its problem.
 * @type {(given: { field: FieldSchema, unit: number, marks: Marks }) => VNode} */
function About({ field, unit, marks }) {
  const { was, problem } = marks.mark ?? {};
  const whole = [field.about, field.limits?.[unit]].filter(Boolean).join("; ");
  const said = [
    field.unit,
    was !== undefined ? <><b>● changed</b> ({marks.source}: {wordsOf(field, was, unit)})</> : marks.reason && <><b>◆ {marks.source}</b>: {marks.reason}</>,
    ...[marks.fixed, marks.note].map((text) => text && <i>{text}</i>),
    <span class="ptynb-muted">{whole}</span>,
  ].filter(Boolean);
  return (
    <div class="ptynb-row-about">
      <div class="ptynb-clip" title={[marks.reason, whole].filter(Boolean).join(". ")}>
        {said.map((part, index) => (index ? [" · ", part] : part))}
      </div>
      {problem && (
        <div class="ptynb-problem" role="alert">
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
    <div class="ptynb-range" role="group" aria-label={chosen ? `${label}: values to try` : `${label}: range`}>
      {chosen && <span>Try</span>}
      {chosen && options.map(([key, text]) => <Check key={text} label={text} checked={chosen.includes(key)} onCommit={(on) => tick(key, on)} />)}
      {low && end("lowest", low, "low")}
      {high && end("highest", high, "high")}
      {low && <Check label="logarithmic" title={`${label}: sample the logarithm uniformly`} checked={logarithmic === true} onCommit={(on) => set({ logarithmic: on })} />}
      <Message text={range.problem} />
    </div>
  );
}

/** A row with a field, its unit, what freezes or resets it, and what is said of it; tick: whether it can be tuned.
 * @type {(given: { form: Form, field: FieldSchema, shown: Shown, marks: Marks, tick?: boolean, range?: RangeValues,
 *   frozen?: { on: boolean, rate: number } }) => VNode} */
export function Row({ form, field, shown, marks, tick = false, range, frozen }) {
  const [unit, choose] = useState(shown !== null && typeof shown === "object" ? shown.fit : 0);
  const { name, label, units } = field;
  const changed = marks.mark?.was !== undefined;
  const row = (
    <div class="ptynb-row">
      {tick && (
        <input
          class="ptynb-row-tick"
          type="checkbox"
          aria-label={`Tune ${label}`}
          title={`Tune ${label}`}
          checked={range !== undefined}
          onChange={(event) => form.call("tune", { name, on: event.currentTarget.checked })}
        />
      )}
      <Control {...{ form, field, shown, unit, marks }} />
      {units && <span class="ptynb-row-in">in</span>}
      {units && (
        <Select class="ptynb-row-unit" title={`Unit of ${label}`} options={units} value={units[unit]} onCommit={(one) => choose(units.indexOf(one))} />
      )}
      {frozen && (
        <Button
          class="ptynb-row-freeze"
          text={frozen.on ? "Unfreeze" : "Freeze"}
          title={`${label}: set to ${frozen.rate}`}
          disabled={frozen.on && frozen.rate === 0}
          onClick={() => form.call("freeze", { name })}
        />
      )}
      <Button
        class={classes("ptynb-row-reset", !(changed && !marks.fixed) && "ptynb-invisible")}
        icon="undo"
        title={`${label}: reset to ${marks.source}`}
        onClick={() => form.call("reset", { name, entry: marks.entry ?? null })}
      />
      <About {...{ field, unit, marks }} />
    </div>
  );
  return range ? (
    <div>
      {row}
      <Range {...{ form, field, range, unit }} />
    </div>
  ) : row;
}

/** A field of the settings by its schema, as the form has it now.
 * @type {(given: { form: Form, field: FieldSchema }) => VNode} */
export function FieldRow({ form, field }) {
  const { mode, values, marks, revisions, source, tuned, frozen } = form.use();
  const fixed = mode === "live" && !field.live ? FIXED : "";
  const note = mode === "live with Apply" && !field.live ? "with Apply" : "";
  const { name } = field;
  return (
    <Row
      {...{ form, field, shown: values[name], range: tuned[name], frozen: frozen[name], tick: mode === "ranges" }}
      marks={{ fixed, note, mark: marks[name], revision: revisions[name], source: source.title, reason: source.reasons[name] }}
    />
  );
}
