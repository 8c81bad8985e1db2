// A list of the settings in a form: entries are added, switched on and off, moved and removed.

import { useState } from "preact/hooks";

import { Button, Check, Message, Select } from "../../page/parts.jsx";
import { Row } from "./field.jsx";

/** @import { VNode } from "preact" */
/** @import { EntryValues, Form, GroupSchema, KindSchema } from "./values" */

/** An entry: a check box, its fields, and buttons to move and remove it.
 * @type {(given: { form: Form, kind: KindSchema, entry: EntryValues, fixed: string }) => VNode} */
function Entry({ form, kind, entry, fixed }) {
  const { schema, revisions } = form.use();
  const { number } = entry;
  const disabled = Boolean(fixed);
  return (
    <div class="ptynb-entry">
      <div class="ptynb-row">
        <Check
          class="ptynb-entry-on"
          label={kind.title}
          title={`${kind.about} Off: it is not part of the settings.`}
          checked={entry.on}
          disabled={disabled}
          onCommit={(on) => form.call("switch_entry", { entry: number, on })}
        />
        <Button text="Move up" title={`${kind.title}: move before the previous entry`} disabled={disabled} onClick={() => form.call("move_up", { entry: number })} />
        <Button text="Remove" title={`${kind.title}: remove this entry`} disabled={disabled} onClick={() => form.call("remove", { entry: number })} />
      </div>
      <div class="ptynb-small">{kind.about}</div>
      {kind.fields.map((index) => {
        const field = schema.entryFields[index];
        const { name } = field;
        const marks = { fixed, entry: number, mark: entry.marks[name], revision: revisions[`${number}.${name}`], source: "default" };
        return <Row key={name} form={form} field={field} shown={entry.values[name]} marks={marks} />;
      })}
      <Message text={entry.problem} />
    </div>
  );
}

/** @type {(given: { form: Form, group: GroupSchema }) => VNode} */
export function Entries({ form, group: { name, title, about, live, kinds = [] } }) {
  const { entries, mode } = form.use();
  const [chosen, choose] = useState(kinds[0].kind);
  const singular = title.toLowerCase().replace(/s$/, "");
  const fixed = mode.startsWith("live") && !live ? "fixed during a run" : "";
  const kindOf = (/** @type {string} */ kind) => /** @type {KindSchema} */ (kinds.find((one) => one.kind === kind));
  return (
    <div>
      <div>
        {about}. {fixed}
      </div>
      {entries[name].map((entry) => (
        <Entry key={entry.number} form={form} kind={kindOf(entry.kind)} entry={entry} fixed={fixed} />
      ))}
      <div class="ptynb-row">
        <Select
          class="ptynb-entry-kind"
          label={`New ${singular}`}
          options={kinds.map(({ kind, title: text }) => [kind, text])}
          value={chosen}
          disabled={Boolean(fixed)}
          onCommit={choose}
        />
        <Button text="Add" title={`Adds a ${singular} of this kind`} disabled={Boolean(fixed)} onClick={() => form.call("add", { list_name: name, kind: chosen })} />
      </div>
      <div class="ptynb-small ptynb-entry-about">{kindOf(chosen).about}</div>
    </div>
  );
}
