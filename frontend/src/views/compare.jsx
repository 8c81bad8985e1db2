// Results side by side, and the tab of the workbench where they are selected.

import { useState } from "preact/hooks";

import { Curve } from "../page/curve.jsx";
import { Parts } from "../page/part.jsx";
import { Act, Check, ListBox, Message, Select, Tabs, TextField } from "../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Drawing, Mark } from "../page/types" */
/** @import { CurveSpec } from "../types" */

/** Name of a fact, its text for each result, and whether the results differ in it.
 * @typedef {[string, string[], boolean]} Row */
/** @typedef {{ registration: string, curve: CurveSpec, meaning: string } | { problem: string } | Record<string, never>} Difference */
/**
 * @typedef {{
 *   columns: string[], options: Record<string, string[]>, chosen: Record<string, any>, thick: boolean, viewer: Mark,
 *   cuts: Mark | null, busy: boolean, message: string, notes: string[], cut_notes: string[], difference: Difference,
 *   losses: { curve?: CurveSpec, note?: string }, settings: Row[], facts: Row[],
 * }} CompareValues
 */
/** @typedef {{ results: string[], chosen: string[], said: string, comparison: Mark | null }} TabValues */

const SECTIONS = ["Difference", "Losses", "Settings", "Facts"];
/** Labels and tooltips of the fields, by the name of a choice.
 * @type {[string, string, string?][]} */
const MENUS = [
  ["picture", "Show"],
  ["slice", "Slice"],
  ["pair", "Difference"],
  ["slider", "Slider", "Shows two results in one pane, with a slider between them."],
  ["flicker", "Flicker", "Shows two results in one pane, in turn."],
];
/** @type {[string, string, string][]} */
const SWITCHES = [
  ["registered", "Registered", "Aligns all objects with the first one, in position, phase and amplitude."],
  ["positions", "Positions", "Shows positions over the objects, with arrows to the refined ones."],
  ["cuts", "Cuts", "Shows cuts along the beam through all slices, at a crosshair that clicks move."],
];

/** @type {(given: { texts: string[] }) => VNode} */
const Notes = ({ texts }) => <>{texts.map((text) => <Message key={text} text={text} role="status" />)}</>;

/** @type {(given: { values: Difference }) => VNode} */
function DifferenceOf({ values }) {
  if ("problem" in values) return <Message text={values.problem} role="status" />;
  if (!("curve" in values)) return <p>No pair is selected.</p>;
  return (
    <>
      <p>{values.registration}</p>
      <h4>{values.curve.title}</h4>
      <Curve key={values.curve.title} class="ptynb-compare-curve" spec={values.curve} />
      <p>{values.meaning}</p>
    </>
  );
}

/** @type {(given: { values: CompareValues["losses"] }) => VNode | null} */
function Losses({ values: { curve, note } }) {
  if (!curve) return null;
  return (
    <>
      <Curve class="ptynb-compare-curve" spec={curve} />
      {note && <p>{note}</p>}
    </>
  );
}

/** A table with a column for each result; what differs is bold rather than coloured.
 * @type {(given: { title: string, columns: string[], rows: Row[] }) => VNode} */
function Table({ title, columns, rows }) {
  return (
    <div class="ptynb-compare-table">
      <table class="ptynb-table">
        <caption>{title}</caption>
        <thead>
          <tr>
            <td />
            {columns.map((name) => <th key={name} scope="col">{name}</th>)}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, texts, differs]) => (
            <tr key={name} class={differs ? "ptynb-compare-differs" : undefined}>
              <th scope="row">{name}</th>
              {texts.map((text, index) => <td key={columns[index]}>{text}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** @type {Drawing<CompareValues>} */
export function Compare({ element }) {
  const values = element.use();
  const { columns, options, chosen, thick, busy } = values;
  const [section, show] = useState(0);
  const choose = (/** @type {string} */ name) => (/** @type {string | boolean} */ choice) => element.call("choose", { name, choice });
  const settings = values.settings.length > 0 || busy;
  const pages = [
    () => <DifferenceOf values={values.difference} />,
    () => <Losses values={values.losses} />,
    () => settings ? <Table title="Settings that differ" columns={columns} rows={values.settings} /> : <p><b>Settings that differ</b>: none</p>,
    () => <Table title="Facts" columns={columns} rows={values.facts} />,
  ];
  return (
    <div class="ptynb-compare">
      <div class="ptynb-wrapped">
        {MENUS.map(([name, label, title]) => (
          <Select
            key={name} label={label} title={title} options={options[name]} value={chosen[name]}
            disabled={options[name].length === 1} onCommit={choose(name)}
          />
        ))}
        {SWITCHES.filter(([name]) => name !== "cuts" || thick).map(([name, label, title]) => (
          <Check key={name} label={label} title={title} checked={chosen[name]} onCommit={choose(name)} />
        ))}
        <span role="status">{busy ? "comparing …" : ""}</span>
      </div>
      <Message text={values.message} />
      <Notes texts={values.notes} />
      <Parts page={element.page} of={values.viewer} />
      <Parts page={element.page} of={values.cuts} />
      <Notes texts={values.cut_notes} />
      <Tabs titles={SECTIONS} selected={section} onSelect={show} page={(index) => pages[index]()} />
    </div>
  );
}

/** @type {Drawing<TabValues>} */
export function CompareTab({ element }) {
  const values = element.use();
  const [path, setPath] = useState("");
  return (
    <div class="ptynb-compare-tab">
      <div class="ptynb-wrapped">
        <ListBox
          class="ptynb-compare-results" label="Results" options={values.results} chosen={values.chosen} rows={4}
          onChoose={(names) => element.put("chosen", names)}
        />
        <div>
          <div class="ptynb-wrapped">
            <TextField label="File" placeholder="other.result.h5" value={path} each onCommit={setPath} />
            <Act of={element} call="add" given={{ path }} text="Add" icon="plus" title="Adds the result in this file" />
          </div>
          <div class="ptynb-wrapped">
            <Act of={element} call="add_branches" text="Add branches" icon="git-branch" title="Adds the state of each branch" />
            <Act of={element} call="show" text="Compare" icon="columns" title="Shows the selected results side by side" />
            <Act of={element} call="report" text="Report" icon="file-text" title="Writes a report (HTML) of the selected results" />
          </div>
        </div>
      </div>
      <span role="status">{values.said}</span>
      <Parts page={element.page} of={values.comparison} />
    </div>
  );
}
