// The history of a reconstruction: checkpoints and branches, which can be restored, compared and continued.

import { useLayoutEffect, useState } from "preact/hooks";

import { Parts } from "../page/part.jsx";
import { Act, ListBox, Message, Select, TextField } from "../page/parts.jsx";

/** @import { Drawing, Mark, Option } from "../page/types" */

/** @typedef {{ key: string, name: string, epoch: string, loss: string, branch: string, written: string, size: string, stays: boolean }} Checkpoint */
/** @typedef {{ checkpoints: Checkpoint[], branches: string[], present: string, over: boolean, message: string, notice: string, comparison: Mark | null }} Values */

const NOW = "now";
const NOW_NAME = "current state";
/** Titles of the columns of the list, and their widths [characters].
 * @type {[string, number][]} */
const COLUMNS = [["epoch", 11], ["loss", 11], ["branch", 18], ["written", 9], ["size", 9], ["", 9]];

/** Texts below the titles of their columns, with spaces that HTML does not collapse.
 * @type {(texts: string[]) => string} */
const columnsOf = (texts) => texts.map((text, index) => text.padEnd(COLUMNS[index][1])).join("").replaceAll(" ", "\u00a0");

/** @type {(checkpoint: Checkpoint) => Option} */
function optionOf({ key, epoch, loss, branch, written, size, stays }) {
  const short = branch.length < 17 ? branch : `${branch.slice(0, 15)}…`;
  return [key, columnsOf([epoch, loss, short, written, size, stays ? "permanent" : ""])];
}

/** What is selected, and what the buttons would do with it.
 * @type {(names: string[]) => string} */
function selectedText(names) {
  if (names.length === 0) return "Nothing is selected.";
  const text = `Selected: ${names.join(", ")}.`;
  if (names.length > 1) return `${text} Restore and Branch use one: select it alone.`;
  return `${text} Select a second one (Ctrl and click, or Shift and an arrow key) to compare.`;
}

/** @type {Drawing<Values>} */
export function History({ element }) {
  const values = element.use();
  const { checkpoints, branches, present, over, message, notice, comparison } = values;
  const [selected, select] = useState([NOW]);
  const [name, setName] = useState("");
  const [aim, setAim] = useState({ from: "", branch: "" });
  useLayoutEffect(() => setName(""), [present]); // the branch of this name has been created
  const names = new Map([[NOW, NOW_NAME], ...checkpoints.map(/** @type {(one: Checkpoint) => Option} */ (one) => [one.key, one.name])]);
  const chosen = selected.filter((key) => names.has(key));
  const alone = !over && chosen.length === 1;
  const branch = aim.from === present && branches.includes(aim.branch) ? aim.branch : present;
  return (
    <div class="ptynb-history">
      <div class="ptynb-history-beside">
        <ListBox
          class="ptynb-history-list"
          label="Checkpoints"
          title="Ctrl and click, or Shift and an arrow key, selects several to compare"
          head={columnsOf(COLUMNS.map(([title]) => title))}
          options={[[NOW, `${NOW_NAME}, branch ${present}`], ...checkpoints.map(optionOf)]}
          rows={6}
          chosen={chosen}
          onChoose={select}
        />
        <div class="ptynb-history-controls">
          <div role="status" class="ptynb-history-selected">{selectedText(chosen.map((key) => names.get(key) ?? ""))}</div>
          <div class="ptynb-wrapped">
            <Act
              of={element} call="restore" given={{ checkpoint: chosen[0] }} text="Restore" icon="undo"
              title="Restores the selected checkpoint" disabled={!alone || chosen[0] === NOW}
            />
            <Act
              of={element} call="compare" given={{ checkpoints: chosen }} text="Compare" icon="columns"
              title="Shows the selected checkpoints (two or more) side by side" disabled={chosen.length < 2}
            />
            <Act of={element} call="save" text="Save now" icon="save" title="Writes a checkpoint now" disabled={over} />
          </div>
          <div class="ptynb-wrapped">
            <TextField class="ptynb-history-name" label="Branch name" placeholder="optional" value={name} each onCommit={setName} />
            <Act
              of={element} call="branch" given={{ checkpoint: chosen[0], name }} text="Branch" icon="git-branch"
              title="Creates a branch at the selected checkpoint and switches to it" disabled={!alone}
            />
          </div>
          <div class="ptynb-wrapped">
            <Select label="Branch" options={branches} value={branch} onCommit={(key) => setAim({ from: present, branch: key })} />
            <Act
              of={element} call="switch" given={{ name: branch }} text="Switch" icon="shuffle"
              title="Restores the latest checkpoint of this branch" disabled={over || branch === present}
            />
          </div>
          <Message text={message} />
          <Message text={notice} role="status" />
        </div>
      </div>
      <Parts page={element.page} of={comparison} />
    </div>
  );
}
