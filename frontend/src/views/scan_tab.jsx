// The first tab of the workbench: a file or a live source, what is known of it, and the scan that is open.

import { Act, Button, elementOf, Message, Segments, Table, TextField } from "../page/parts.jsx";
import { Parts } from "../page/part.jsx";
import { FileChooser } from "./file_chooser.jsx";
import { OptionFields, PythonLine } from "./option_fields.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../page/elements.js" */
/** @import { Mark } from "../page/types" */
/** @import { ChooserValues } from "./file_chooser.jsx" */
/** @import { OptionValues } from "./option_fields.jsx" */

/** @typedef {{ live: boolean, unfolded: boolean, path: string, remarks: { text: string, role: "alert" | "status" }[],
 *   title: string[], facts: string[][], suggestion: string, being_written: boolean, receiving: "" | "on" | "ended",
 *   question: string, chooser: Mark, options: Mark, listening: Mark, inspection: Mark | null }} ScanValues */
/** @typedef {{ fields: Mark, busy: boolean, waiting: string, notice: string, status: string }} ListenValues */

const FILE = "File";
const LIVE = "Live source";
const STOP_LINE = "scan.stop_listening()";
/** Fields of a plan on the left, and of the measurement on the right. */
const PLAN = ["kind", "positions", "planned", "count", "extent_y", "extent_x", "window", "centre", "folder"];
const MEASUREMENT = [
  "geometry", "focus_to_sample", "energy", "voltage", "wavelength", "distance", "detector_pixel", "angular_pixel", "units",
  "mask", "clip_negative",
];

/** What the file contains: name, value and where that was found.
 * @type {(given: { title: string[], facts: string[][] }) => VNode | null} */
function Facts({ title: [path, format], facts }) {
  if (path === undefined) return null;
  return (
    <div class="ptynb-file-facts">
      <b>{path}</b>: {format}
      <Table rows={facts} />
    </div>
  );
}

/** The path of a file, and what can be done with it.
 * @type {(given: { element: Element<ScanValues> }) => VNode} */
function FileRow({ element }) {
  return (
    <div class="ptynb-scan-row ptynb-grow">
      <TextField
        class="ptynb-scan-path"
        label="File"
        labelWidth="40px"
        title="Path of a scan: type it, or click a file below"
        placeholder="scan.cxi"
        value={element.use().path}
        onCommit={(path) => element.call("name_file", { path })}
      />
      <Act of={element} call="open" text="Load" icon="folder-open" kind="primary" title="Opens the scan in this file" />
      <Act of={element} call="describe" text="Info" icon="info" title="Shows what the file contains, and what is missing" />
    </div>
  );
}

/** Folders, the options of `load` beside them, and what the file contains. The options are there while they are hidden,
 * too: the kernel may move the cursor into one in the moment in which it shows them.
 * @type {(given: { element: Element<ScanValues> }) => VNode} */
function FilePage({ element }) {
  const { chooser, options, suggestion, remarks, path, being_written: beingWritten, title, facts, unfolded, live } = element.use();
  const hint = path ? "" : "Click a file: what it contains is shown before it is loaded.";
  return (
    <>
      <div class="ptynb-columns">
        {unfolded && !live && <FileChooser element={elementOf(element, chooser)} />}
        {/* Remarks come and go: below the fields, which must not move under the mouse. */}
        <div>
          <OptionFields element={elementOf(element, options)} />
          {suggestion && (
            <Act
              of={element} call="suggest" text={suggestion} icon="wand-sparkles"
              title="Enters this below; replace it by what was measured"
            />
          )}
          <Message text={hint} role="status" />
          {remarks.map(({ text, role }) => (
            <Message key={text} text={text} role={role} />
          ))}
          {beingWritten && (
            <Act
              of={element} call="listen_to_file" text="Listen to this file" icon="rss"
              title="Receives the scan of this file while it is written"
            />
          )}
        </div>
      </div>
      <Facts title={title} facts={facts} />
    </>
  );
}

/** The source, and the wait for its scan.
 * @type {(given: { element: Element<ListenValues> }) => VNode} */
function SourceRow({ element }) {
  const { fields, busy, waiting, notice, status } = element.use();
  return (
    <div class="ptynb-scan-row ptynb-grow">
      <OptionFields class="ptynb-scan-path" element={elementOf(element, fields)} names={["source"]} />
      <Act
        of={element} call="listen" text="Listen" icon="rss" kind="primary"
        title="Waits for the scan, and receives it while it is measured" disabled={busy}
      />
      {waiting && <Act of={element} call="cancel" text="Cancel" icon="x" title="Ends the wait; nothing is kept" />}
      {waiting && (
        <span>
          <progress aria-label="waiting for the scan" /> {waiting}
        </span>
      )}
      <span role="status">{status}</span>
      <Message text={notice && waiting ? notice : ""} role="status" />
    </div>
  );
}

/** What is known of a scan before it is measured.
 * @type {(given: { element: Element<ListenValues> }) => VNode} */
function PlanPage({ element }) {
  const fields = elementOf(element, element.use().fields);
  const { fields: described, line } = /** @type {OptionValues} */ (fields.use());
  return (
    <>
      <div class="ptynb-columns">
        <div>
          <p class="ptynb-addresses ptynb-small">{described.find(({ name }) => name === "source")?.about}</p>
          <OptionFields class="ptynb-plan" element={fields} names={PLAN} />
        </div>
        <OptionFields element={fields} names={MEASUREMENT} />
      </div>
      <PythonLine text={line} />
    </>
  );
}

/** What can be done with a scan that is being received; its end is asked for first, in place.
 * @type {(given: { element: Element<ScanValues> }) => VNode} */
function ReceivingRow({ element }) {
  const { receiving, question } = element.use();
  const ended = receiving === "ended";
  return (
    <>
      <div class="ptynb-scan-row">
        <Act
          of={element} call="stop" text="Stop listening" icon="stop"
          title="Ends the reception, after a question; what has come is kept" disabled={ended}
        />
        <Act
          of={element} call="open_received" text="Open received scan" icon="folder-open"
          title="Opens the file with what came, to prepare it" disabled={!ended}
        />
      </div>
      {question && (
        <div class="ptynb-scan-row">
          <Act of={element} call="answer" given={{ end: true }} text="End the scan" icon="stop" kind="danger" title={STOP_LINE} />
          <Act of={element} call="answer" given={{ end: false }} text="Keep listening" icon="rss" title="Nothing is ended" />
          <span role="status">
            {question} <code>{STOP_LINE}</code>
          </span>
        </div>
      )}
    </>
  );
}

/** @type {(given: { element: Element<ScanValues> }) => VNode} */
export function ScanTab({ element }) {
  const { live, unfolded, listening, receiving, inspection } = element.use();
  const source = elementOf(element, listening);
  const above = inspection === null ? "" : "ptynb-scan-above";
  return (
    <div class="ptynb-scan">
      <div class="ptynb-scan-row">
        <Segments
          label="Scan from"
          options={[FILE, LIVE]}
          icons={["file", "rss"]}
          chosen={live ? LIVE : FILE}
          onChoose={(chosen) => element.put("live", chosen === LIVE)}
        />
        {live ? <SourceRow element={source} /> : <FileRow element={element} />}
        <Button
          class="ptynb-scan-fold"
          icon="list"
          text={live ? "Plan" : "Choose file"}
          title={
            live
              ? "Shows or hides what is known of the scan before it is measured"
              : "Shows or hides files, contents of the file, and fields for what it lacks"
          }
          pressed={unfolded}
          onClick={() => element.put("unfolded", !unfolded)}
        />
      </div>
      <div class={above} hidden={!unfolded || live}>
        <FilePage element={element} />
      </div>
      {live && unfolded && (
        <div class={above}>
          <PlanPage element={source} />
        </div>
      )}
      {receiving && <ReceivingRow element={element} />}
      <Parts page={element.page} of={inspection} />
    </div>
  );
}
