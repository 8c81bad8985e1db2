// The inspector of a scan: what it is, the map of its positions beside the chosen pattern, and panels.

import { Parts } from "../../page/part.jsx";
import { Act, Button, Check, Message, NumberField, Select, Tabs } from "../../page/parts.jsx";
import { ArrivalBar } from "../live/summary.jsx";
import { Facts, PANELS, ScaleFields, Text } from "./panels.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../../page/elements.js" */
/** @import { InspectValues } from "./types" */

const WITH_RADIUS = ["bright field", "dark field"];
const USUAL = { width: "220px" };

/** @type {(given: { element: Element<InspectValues> }) => VNode} */
export function Inspect({ element }) {
  const values = element.use();
  const { page } = element;
  const titles = Object.keys(values.panels);
  /** @type {(index: number) => VNode | null} */
  const panel = (index) => {
    const found = page.element(values.panels[titles[index]].$element);
    if (!found) return null;
    const Panel = PANELS[found.component];
    return <Panel element={found} inspect={element} />;
  };
  return (
    <div class="ptynb-inspect">
      <Facts of={values.facts} />
      {values.live ? <ArrivalBar arrivals={values.arrivals} /> : <Survey element={element} />}
      <Message text={values.pattern_message} />
      <Message text={values.message} />
      <Message text={values.survey_message} />
      <Message text={values.note} role="status" />
      <PatternFields element={element} />
      <div class="ptynb-inspect-pair">
        <div>
          <Parts page={page} of={values.map_view} />
        </div>
        <div>
          <Parts page={page} of={values.view} />
        </div>
      </div>
      <Text>{values.pattern_note}</Text>
      <Tabs titles={titles} selected={titles.indexOf(values.tab)} onSelect={(index) => element.put("tab", titles[index])} page={panel} />
    </div>
  );
}

/** How much of the scan was surveyed, and what pauses that, until it is complete.
 * @type {(given: { element: Element<InspectValues> }) => VNode} */
function Survey({ element }) {
  const { surveyed, length, paused, can_undo: canUndo } = element.use();
  const [done, all] = [surveyed.toLocaleString("en"), length.toLocaleString("en")];
  const state = surveyed === length ? "complete" : paused ? "paused" : "running in the background";
  return (
    <div class="ptynb-wrapped">
      <progress value={surveyed} max={length} aria-label="patterns surveyed" />
      <span>{`${done} of ${all} patterns surveyed, ${state}`}</span>
      {surveyed < length && <Button text="Pause survey" icon="pause" pressed={paused} onClick={() => element.put("paused", !paused)} />}
      <Act of={element} call="undo" text="Undo last change" icon="undo" title="Restores the scan before the last change" disabled={!canUndo} />
    </div>
  );
}

/** @type {(given: { element: Element<InspectValues> }) => VNode} */
function PatternFields({ element }) {
  const { chosen, length, live, maps, map_kind: kind, radius, dots } = element.use();
  return (
    <div class="ptynb-wrapped">
      <NumberField
        label="Pattern"
        style={{ width: "180px" }}
        value={chosen}
        min={0}
        max={length - 1}
        step={1}
        onCommit={(index) => element.call("choose", { index: Math.round(index) })}
      />
      <Act of={element} call="step" given={{ by: -1 }} text="Previous" icon="arrow-left" title="Previous pattern" />
      <Act of={element} call="step" given={{ by: 1 }} text="Next" icon="arrow-right" title="Next pattern" />
      <ScaleFields element={element} />
      {!live && <Select label="Map" style={USUAL} options={maps} value={kind} onCommit={(other) => element.put("map_kind", other)} />}
      {WITH_RADIUS.includes(kind) && (
        <NumberField
          label="Radius [pixels]"
          labelWidth="auto"
          title="Radius of the bright field [detector pixels]; 0: from the mean pattern"
          style={USUAL}
          value={radius}
          min={0}
          max={1e5}
          onCommit={(pixels) => element.put("radius", pixels)}
        />
      )}
      <Check label="Positions" style={{ width: "auto" }} checked={dots} onCommit={(shown) => element.put("dots", shown)} />
    </div>
  );
}
