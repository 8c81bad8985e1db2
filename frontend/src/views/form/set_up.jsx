// Setting up a reconstruction: the form of the settings, with memory, time, advice and a preview.

import { Parts } from "../../page/part.jsx";
import { Act, Message, Progress, Table } from "../../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Drawing } from "../../page/types" */
/** @import { SetUpValues, TableValues } from "./values" */

/** @type {(given: Partial<TableValues>) => VNode} */
const Report = ({ heads, rows = [], caption = "", left }) => (
  <>
    {caption.split("\n").map((line) => line && <p key={line} class="ptynb-table-caption">{line}</p>)}
    <Table {...{ heads, rows, left }} />
  </>
);

/** What is known of the scan with these settings.
 * @type {Drawing<SetUpValues>} */
function Beside({ element }) {
  const { memory, measuring, advice, trials, finding, recommended, previewed, message, viewer } = element.use();
  return (
    <div>
      <div class="ptynb-form-top ptynb-wrapped">
        <Act of={element} call="recommend" text="Recommend" icon="wand-sparkles" title="Finds settings for this scan by short trials on the engines" disabled={trials !== null} />
        <Act of={element} call="preview" text="Preview" icon="eye" title="Shows initial probe, object frame and positions" />
        <Act of={element} call="measure" text="Time and advice" icon="clock" title="Measures a few updates on engines, which takes some seconds" />
        {memory.sentence && (
          <div role="status" class="ptynb-memory ptynb-small">
            {memory.sentence}
            <details>
              <summary>details</summary>
              <Report {...memory.table} />
            </details>
            <Message text={memory.problem ?? ""} />
          </div>
        )}
      </div>
      {trials !== null && (
        <div class="ptynb-form-top ptynb-wrapped">
          <Progress label="Trials" max={100} value={trials} />
          <Act of={element} call="cancel" text="Cancel trials" icon="x" title="Ends the trials; the settings stay as they are" />
        </div>
      )}
      <Message text={finding} role="status" />
      {recommended.heads && (
        <details>
          <summary>Recommended settings, and why</summary>
          <Report {...recommended} />
        </details>
      )}
      <Message text={measuring ? "Measuring a few updates on engines with a part of the scan ..." : ""} role="status" />
      <Report {...advice} />
      <Message text={message} />
      {previewed && <Parts page={element.page} of={viewer} />}
    </div>
  );
}

/** @type {Drawing<SetUpValues>} */
export function SetUp({ element }) {
  const values = element.use();
  return (
    <div class="ptynb-element">
      {values.with_scan && <Beside element={element} />}
      <Parts page={element.page} of={values.form} />
    </div>
  );
}
