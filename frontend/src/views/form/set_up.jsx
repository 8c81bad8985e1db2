// Setting up a reconstruction: the form of the settings, with memory, time, advice and a preview.

import { Parts } from "../../page/part.jsx";
import { Button, Message, Progress } from "../../page/parts.jsx";

/** @import { VNode } from "preact" */
/** @import { Drawing } from "../../page/types" */
/** @import { SetUpValues, TableValues } from "./values" */

/** @type {(given: Partial<TableValues>) => VNode | null} */
function Table({ heads = [], rows = [], caption = "", left = [] }) {
  if (heads.length === 0) return null;
  const side = (/** @type {number} */ column) => ({ textAlign: left.includes(column) ? "left" : "right" });
  return (
    <>
      {caption.split("\n").map((line) => line && <p key={line} class="ptynb-table-caption">{line}</p>)}
      <table class="ptynb-table">
        <thead>
          <tr>{heads.map((head, column) => (head ? <th key={head} scope="col" style={side(column)}>{head}</th> : <td key="empty" />))}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>{row.map((cell, column) => <td key={column} style={side(column)}>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** What is known of the scan with these settings.
 * @type {Drawing<SetUpValues>} */
function Beside({ element }) {
  const { memory, measuring, advice, trials, finding, recommended, previewed, message, viewer } = element.use();
  const call = (/** @type {string} */ command) => () => element.call(command);
  return (
    <div>
      <div class="ptynb-form-top">
        <Button text="Recommend" icon="wand-sparkles" title="Finds settings for this scan by short trials on the engines" disabled={trials !== null} onClick={call("recommend")} />
        <Button text="Preview" icon="eye" title="Shows initial probe, object frame and positions" onClick={call("preview")} />
        <Button text="Time and advice" icon="clock" title="Measures a few updates on engines, which takes some seconds" onClick={call("measure")} />
        {memory.sentence && (
          <div role="status" class="ptynb-memory ptynb-small">
            {memory.sentence}
            <details>
              <summary>details</summary>
              <Table {...memory.table} />
            </details>
            <Message text={memory.problem ?? ""} />
          </div>
        )}
      </div>
      {trials !== null && (
        <div class="ptynb-form-top">
          <Progress label="Trials" max={100} value={trials} />
          <Button text="Cancel trials" icon="x" title="Ends the trials; the settings stay as they are" onClick={call("cancel")} />
        </div>
      )}
      <Message text={finding} role="status" />
      {recommended.heads && (
        <details>
          <summary>Recommended settings, and why</summary>
          <Table {...recommended} />
        </details>
      )}
      <Message text={measuring ? "Measuring a few updates on engines with a part of the scan ..." : ""} role="status" />
      <Table {...advice} />
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
