// The pages below the pictures of a run.

import { useMemo } from "preact/hooks";

import { Parts } from "../../page/part.jsx";
import { Check, NumberField, Select, Table } from "../../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../../page/elements.js" */
/** @import { Mark } from "../../page/types" */
/** @import { LiveValues } from "./values" */
/** @typedef {{ element: Element<LiveValues> }} Given */

const FACTORS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
const ARROWS = [["0", "automatic"], ...FACTORS.map((factor) => [`${factor}`, `× ${factor}`])];
const ENGINES = ["rank", "device", "patterns/s", "memory", "load", "temperature", "in sync at epoch", "state"];

/** Elements, which are drawn again only with what they show themselves.
 * @type {(given: { element: Element, of: Mark | Mark[] }) => VNode} */
export function Children({ element, of }) {
  const marks = JSON.stringify(of);
  return useMemo(() => <Parts page={element.page} of={JSON.parse(marks)} />, [element, marks]);
}

/** @type {(given: Given) => VNode} */
export function Pattern({ element }) {
  const { pattern, patterns, logarithmic, pattern_facts: facts, pattern_pictures: pictures } = element.use();
  return (
    <>
      <div class="ptynb-live-fields">
        <NumberField
          label="Pattern"
          title="Index of the pattern; a click on the object chooses one."
          value={pattern ?? 0}
          min={0}
          max={patterns - 1}
          onCommit={(index) => element.call("look_at", { pattern: index })}
        />
        <Check label="Logarithmic" title="Logarithmic" checked={logarithmic} onCommit={(on) => element.put("logarithmic", on)} />
        <span>{facts || "Click on the object to see a pattern."}</span>
      </div>
      <div hidden={pattern === null}>
        <Children element={element} of={pictures} />
      </div>
    </>
  );
}

/** @type {(given: Given) => VNode} */
export function Positions({ element }) {
  const { without_affine: without, arrows, refinement } = element.use();
  const { moved, moves = [], residual = [], affine } = refinement;
  return (
    <>
      <div class="ptynb-live-fields">
        <Check
          label="Without scale, rotation and shear"
          title="Shows what is left of the moves without their affine part"
          checked={without}
          onCommit={(on) => element.put("without_affine", on)}
        />
        <Select
          label="Arrows"
          title="Length of the arrows, relative to that of the moves"
          options={/** @type {[string, string][]} */ (ARROWS)}
          value={`${arrows}`}
          onCommit={(factor) => element.put("arrows", Number(factor))}
        />
      </div>
      {moved && <Table heads={["", "rms", "largest"]} rows={[["Moves", ...moves], ["Without scale, rotation and shear", ...residual]]} />}
      {moved && <p>{affine}. The common shift is that of the object, and left out.</p>}
      {moved === false && <p>The positions are the measured ones; a learning rate of the positions above 0 refines them.</p>}
    </>
  );
}

/** @type {(given: Given) => VNode} */
export function Engines({ element }) {
  const { facts, health } = element.use();
  return (
    <>
      <div>{facts.join(" \u00a0·\u00a0 ")}</div>
      <Table caption="Engines" heads={ENGINES} rows={health} />
    </>
  );
}

/** @type {(given: Given) => VNode} */
export function Changes({ element }) {
  const rows = element.use().changes.map(([epoch, label, name, old, now]) => [
    epoch,
    <span title={name}>{label}</span>,
    <>
      {old} → <b>{now}</b>
    </>,
  ]);
  return rows.length ? <Table caption="Changes" heads={["in epoch", "setting", "from → to"]} rows={rows} /> : <p>No setting was changed.</p>;
}
