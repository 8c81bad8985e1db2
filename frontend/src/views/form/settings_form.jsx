// The form of the settings: groups with a line each, of which fields are unfolded, or the fields that have some words.

import { useState } from "preact/hooks";

import { Act, Button, Check, classes, Message, Select, TextField } from "../../page/parts.jsx";
import { Entries } from "./entries.jsx";
import { FieldRow } from "./field.jsx";

/** @import { VNode } from "preact" */
/** @import { Drawing, Option } from "../../page/types" */
/** @import { FieldSchema, Form, FormValues, GroupSchema, GroupState } from "./values" */

const CHANGED = "changed";
/** The last group of the left column. */
const LAST_OF_LEFT = "aberrations";

/** The fields below the line of a group. In the view of a run only those that were changed are there while it is folded.
 * @type {(group: GroupSchema, on: boolean, open: boolean, values: FormValues) => FieldSchema[]} */
function shownFields({ fields = [], first }, on, open, { mode, marks }) {
  if (open) return fields;
  if (mode === "live") return fields.filter(({ name }) => marks[name]?.was !== undefined);
  return on ? fields.slice(0, first) : [];
}

/** The line of a group, and its fields.
 * @type {(given: { form: Form, group: GroupSchema }) => VNode} */
function Group({ form, group }) {
  const [open, unfold] = useState(false);
  const values = form.use();
  const { name, title, about } = group;
  const state = values.groups[name];
  const live = values.mode === "live";
  return (
    <div class="ptynb-group" style={live ? { order: orderOf(state) } : undefined}>
      <div class="ptynb-group-line">
        <Button icon={open ? "chevron-down" : "chevron-right"} title={`${title}: all settings`} pressed={open} onClick={() => unfold(!open)} />
        {group.switch ? (
          <Check
            class="ptynb-group-title"
            label={title}
            title={`${about}: on or off`}
            checked={state.on === true}
            onCommit={(on) => form.call("switch", { part: name, on })}
          />
        ) : (
          <b class="ptynb-group-title">{title}</b>
        )}
        <div class="ptynb-clip" title={state.summary}>
          {state.changed > 0 && <b>● {state.changed} changed </b>}
          {state.summary}
        </div>
      </div>
      {shownFields(group, state.on !== false, open, values).map((field) => (
        <FieldRow key={field.name} form={form} field={field} />
      ))}
      {open && group.kinds && <Entries form={form} group={group} />}
    </div>
  );
}

/** Beside pictures, what was changed comes first, and what is off last.
 * @type {(state: GroupState) => string} */
const orderOf = ({ changed, on }) => (changed ? "-1" : on === false ? "1" : "0");

/** The groups of both columns.
 * @type {(groups: GroupSchema[]) => GroupSchema[][]} */
function columnsOf(groups) {
  const left = groups.findIndex(({ name }) => name === LAST_OF_LEFT) + 1;
  return [groups.slice(0, left), groups.slice(left)];
}

/** Whether all words are in texts.
 * @type {(words: string[], ...texts: (string | undefined)[]) => boolean} */
const matches = (words, ...texts) => words.every((word) => texts.join(" ").toLowerCase().includes(word));

/** The fields and lists that have these words in their names or descriptions.
 * @type {(given: { form: Form, words: string[], groups: GroupSchema[] }) => VNode} */
function Found({ form, words, groups }) {
  const texts = (/** @type {FieldSchema} */ one) => [one.label, one.name, one.about, one.unit, ...(one.units ?? []), ...(one.choices ?? []).flat()];
  const fields = groups.flatMap((group) => group.fields ?? []).filter((field) => matches(words, ...texts(field)));
  const lists = groups.filter(({ title, kinds }) => kinds?.some((kind) => matches(words, title, kind.title, kind.kind, kind.about)));
  if (fields.length + lists.length === 0) return <div>No setting has these words in its name or description.</div>;
  return (
    <div>
      {fields.map((field) => <FieldRow key={field.name} form={form} field={field} />)}
      {lists.map((group) => <Entries key={group.name} form={form} group={group} />)}
    </div>
  );
}

/** @type {(given: { form: Form }) => VNode} */
function Sources({ form }) {
  const { sources, source } = form.use();
  const options = sources.map((name) => /** @type {Option} */ ([`source ${name}`, name]));
  if (source.changed) options.push([CHANGED, `${source.name}, changed`]);
  return (
    <Select
      class="ptynb-form-preset"
      label="Preset"
      title="Settings for a kind of scan; a choice replaces all settings"
      options={options}
      value={source.changed ? CHANGED : `source ${source.name}`}
      onCommit={(key) => key !== CHANGED && form.call("choose", { source: key.slice("source ".length) })}
    />
  );
}

/** Changes for which engines are interrupted.
 * @type {(given: { form: Form }) => VNode | null} */
function Waiting({ form }) {
  const { changes, problem } = form.use().waiting;
  if (changes.length === 0) return null;
  return (
    <div class="ptynb-form-top ptynb-wrapped">
      <Act
        of={form} call="apply" text="Apply" kind="primary"
        title="Restarts all engines from their current state with these settings" disabled={problem !== ""}
      />
      <Act of={form} call="discard" text="Discard" title="Shows the current settings again" />
      <div role="status">
        Waiting for Apply:{" "}
        {changes.map(([label, change], index) => (
          <span key={label}>
            {index > 0 && ", "}
            <b>{label}</b> {change}
          </span>
        ))}
      </div>
      <Message text={problem} />
    </div>
  );
}

/** @type {Drawing<FormValues>} */
export function SettingsForm({ element: form }) {
  const values = form.use();
  const [find, look] = useState("");
  const live = values.mode === "live";
  const groups = values.schema.groups.filter((group) => !(values.mode === "ranges" && group.kinds));
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  return (
    <div class="ptynb-element ptynb-settings-form">
      <div class="ptynb-form-top ptynb-wrapped">
        {!live && <Sources form={form} />}
        <TextField
          class="ptynb-form-find"
          label="Find"
          title="Shows settings with these words in their name or description"
          placeholder="learning rate, blur ..."
          value={find}
          each={true}
          onCommit={look}
        />
        <TextField
          class="ptynb-form-file"
          label="Settings file"
          title="YAML file of settings, relative to the folder of the notebook"
          value={values.file}
          onCommit={(text) => form.put("file", text)}
        />
        <Act of={form} call="load" text="Load" icon="folder-open" title="Loads the settings in this file" />
        <Act of={form} call="save" text="Save" icon="save" title="Writes the settings to this file" />
      </div>
      {!live && values.source.about && <div class="ptynb-form-about">{values.source.about}</div>}
      <Message text={values.invalid} />
      <Message text={values.message} />
      <Waiting form={form} />
      {words.length > 0 && <Found form={form} words={words} groups={groups} />}
      <div class={classes("ptynb-groups", live && "ptynb-compact")} hidden={words.length > 0}>
        {columnsOf(groups).map((column, index) => (
          <div key={index} class="ptynb-group-column">
            {column.map((group) => <Group key={group.name} form={form} group={group} />)}
          </div>
        ))}
      </div>
    </div>
  );
}
