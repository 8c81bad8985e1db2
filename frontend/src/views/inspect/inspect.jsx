// The inspector of a scan: what it is, the map of its positions beside the chosen pattern, and panels.

import { lineOf, Parts } from "../../page/part.jsx";
import { Button, Check, Html, Message, NumberField, Select, Tabs } from "../../page/parts.jsx";
import { Facts, PANELS, Row, ScaleFields } from "./panels.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../../page/elements.js" */
/** @import { InspectValues } from "./types" */

const WITH_RADIUS = ["bright field", "dark field"];

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
    <div {...lineOf(values, "ptynb-inspect")}>
      <Facts of={values.facts} />
      {values.live ? <Html value={values.arrivals} /> : <Survey element={element} />}
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
      <p class="ptynb-inspect-text">{values.pattern_note}</p>
      <Tabs
        titles={titles}
        selected={titles.indexOf(values.tab)}
        onSelect={(index) => element.put("tab", titles[index])}
        page={panel}
      />
    </div>
  );
}

/** How much of the scan was surveyed, and what pauses that, until it is complete.
 * @type {(given: { element: Element<InspectValues> }) => VNode} */
function Survey({ element }) {
  const { survey, length, paused, can_undo: canUndo } = element.use();
  const count = survey.patterns.toLocaleString("en");
  return (
    <Row>
      <progress value={survey.patterns} max={length} aria-label="patterns surveyed" />
      <span>{`${count} of ${length.toLocaleString("en")} patterns surveyed, ${survey.state}`}</span>
      {survey.patterns < length && (
        <Button text="Pause survey" icon="pause" pressed={paused} onClick={() => element.put("paused", !paused)} />
      )}
      <Button
        text="Undo last change"
        icon="undo"
        title="Restores the scan before the last change"
        disabled={!canUndo}
        onClick={() => element.call("undo")}
      />
    </Row>
  );
}

/** @type {(given: { element: Element<InspectValues> }) => VNode} */
function PatternFields({ element }) {
  const values = element.use();
  return (
    <Row>
      <NumberField
        label="Pattern"
        style={{ width: "180px" }}
        value={values.chosen}
        min={0}
        max={values.length - 1}
        step={1}
        onCommit={(index) => element.call("choose", { index: Math.round(index) })}
      />
      <Button text="Previous" icon="arrow-left" title="Previous pattern" onClick={() => element.call("step", { by: -1 })} />
      <Button text="Next" icon="arrow-right" title="Next pattern" onClick={() => element.call("step", { by: 1 })} />
      <ScaleFields element={element} />
      {!values.live && (
        <Select
          label="Map"
          style={{ width: "220px" }}
          options={values.maps}
          value={values.map_kind}
          onCommit={(kind) => element.put("map_kind", kind)}
        />
      )}
      {WITH_RADIUS.includes(values.map_kind) && (
        <NumberField
          label="Radius [pixels]"
          labelWidth="auto"
          title="Radius of the bright field [detector pixels]; 0: from the mean pattern"
          style={{ width: "220px" }}
          value={values.radius}
          min={0}
          max={1e5}
          onCommit={(radius) => element.put("radius", radius)}
        />
      )}
      <Check label="Positions" style={{ width: "auto" }} checked={values.dots} onCommit={(dots) => element.put("dots", dots)} />
    </Row>
  );
}
