// A list of the settings in a form: entries are added, switched on and off, moved and removed.

import { useState } from "preact/hooks";

import { Act, Check, Message, Select } from "../../page/parts.jsx";
import { FieldRow } from "./field.jsx";

/** @import { VNode } from "preact" */
/** @import { EntryValues, Form, GroupSchema, KindSchema } from "./values" */

/** An entry: a check box, its fields, and buttons to move and remove it.
 * @type {(given: { form: Form, kind: KindSchema, entry: EntryValues }) => VNode} */
function Entry({ form, kind, entry }) {
  const { entryFields } = form.use().schema;
  const { name, on, problem } = entry;
  const button = (/** @type {string} */ text, /** @type {string} */ tip, /** @type {string} */ command) => (
    <Act of={form} call={command} given={{ entry: name }} text={text} title={`${kind.title}: ${tip}`} />
  );
  return (
    <div class="ptynb-entry">
      <div class="ptynb-row">
        <Check
          class="ptynb-entry-on"
          label={kind.title}
          title={`${kind.about} Off: it is not part of the settings.`}
          checked={on}
          onCommit={(checked) => form.call("switch_entry", { entry: name, on: checked })}
        />
        {button("Move up", "move before the previous entry", "move_up")}
        {button("Remove", "remove this entry", "remove")}
      </div>
      <div class="ptynb-small">{kind.about}</div>
      {kind.fields.map((index) => <FieldRow key={index} form={form} field={entryFields[index]} entry={name} />)}
      <Message text={problem && `${problem}.`} />
    </div>
  );
}

/** @type {(given: { form: Form, group: GroupSchema }) => VNode} */
export function Entries({ form, group: { name, title, about, kinds = [] } }) {
  const { entries } = form.use();
  const [chosen, choose] = useState(kinds[0].kind);
  const singular = title.toLowerCase().replace(/s$/, "");
  const kindOf = (/** @type {string} */ kind) => /** @type {KindSchema} */ (kinds.find((one) => one.kind === kind));
  return (
    <div>
      <div>{about}.</div>
      {entries[name].map((entry) => (
        <Entry key={entry.name} form={form} kind={kindOf(entry.kind)} entry={entry} />
      ))}
      <div class="ptynb-row">
        <Select
          class="ptynb-entry-kind"
          label={`New ${singular}`}
          options={kinds.map(({ kind, title: text }) => [kind, text])}
          value={chosen}
          onCommit={choose}
        />
        <Act of={form} call="add" given={{ list_name: name, kind: chosen }} text="Add" title={`Adds a ${singular} of this kind`} />
      </div>
      <div class="ptynb-small ptynb-entry-about">{kindOf(chosen).about}</div>
    </div>
  );
}
