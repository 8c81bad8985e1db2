// The tab Run: what a new run is given, the live view of the current one, and what is written of it.

import { Parts } from "../page/part.jsx";
import { Act, Drawer, elementOf, Message, NumberField, Progress, Select, TextArea, TextField } from "../page/parts.jsx";
import { OptionFields, PythonLine } from "./option_fields.jsx";

/** @import { VNode } from "preact" */
/** @import { Element } from "../page/elements.js" */
/** @import { Drawing, Mark } from "../page/types" */
/** @import { OptionValues } from "./option_fields.jsx" */
/** @typedef {{ epochs: number, stages: string, result_path: string, film_path: string, film_of: string,
 *   film_rate: number, page: string, starting: string, can_cancel: boolean, said: string,
 *   film: number[], clusters: Mark, checkpoints: Mark, view: Mark | null }} RunValues */
/** @typedef {{ launcher: string, others: string[], fields: Mark, problem: string, line: string }} ClusterValues */
/** @typedef {(given: { element: Element<RunValues> }) => VNode} RunPart */

const STAGES_EXAMPLE = `\
- epochs: 50
  pattern_size: 64
- epochs: 150
  settings: {probe: {modes: 3}}`;
/** @type {Record<string, string>} */
const LAUNCHERS = {
  local: "this machine", slurm: "Slurm", ssh: "ssh hosts", pbs: "PBS", lsf: "LSF", sge: "SGE", htcondor: "HTCondor", existing: "existing cluster",
};
const GIVEN = "given";
/** Options of this machine that stand in the bar. */
const IN_BAR = ["engines", "device"];

/** Engines and device of this machine, or the name of another launcher.
 * @type {(given: { element: Element<ClusterValues> }) => VNode} */
function Engines({ element }) {
  const { launcher, fields: mark } = element.use();
  /** @type {Element<OptionValues>} */
  const fields = elementOf(element, mark);
  const { fields: options, values, disabled } = fields.use();
  if (launcher !== "local" && launcher !== GIVEN) return <div class="ptynb-line">Engines:&nbsp;<b>{LAUNCHERS[launcher] ?? launcher}</b></div>;
  const given = { labelWidth: "initial", disabled: disabled.includes("engines") };
  const enter = (/** @type {string} */ name) => (/** @type {string | number} */ value) => fields.call("enter", { name, value: `${value}` });
  return (
    <>
      <NumberField
        {...given} label="Engines" title="Number of engines; 0: runs in the process of the notebook" style={{ width: "112px" }}
        min={0} max={64} value={parseInt(values.engines) || 0} onCommit={(number) => enter("engines")(Math.round(number))}
      />
      <Select
        {...given} label="Device" style={{ width: "128px" }} options={options.find(({ name }) => name === "device")?.choices ?? []}
        value={values.device} onCommit={enter("device")}
      />
    </>
  );
}

/** @type {(given: { element: Element<ClusterValues> }) => VNode} */
function Cluster({ element }) {
  const { launcher, others, fields: mark, problem, line } = element.use();
  /** @type {Element<OptionValues>} */
  const fields = elementOf(element, mark);
  const { fields: options, problems } = fields.use();
  const here = launcher === "local" || launcher === GIVEN;
  /** @type {[string, string][]} */
  const offered = [...Object.entries(LAUNCHERS), ...others.map((name) => /** @type {[string, string]} */ ([name, name]))];
  const names = launcher === GIVEN ? [] : options.map(({ name }) => name).filter((name) => !here || !IN_BAR.includes(name));
  return (
    <>
      <Select
        label="Launcher" title="What starts the engines of a new run" labelWidth="initial" style={{ width: "230px" }}
        disabled={launcher === GIVEN} value={launcher} onCommit={(name) => element.put("launcher", name)}
        options={launcher === GIVEN ? [[GIVEN, "that of this workbench"]] : offered}
      />
      <Message text={problem} />
      {here && IN_BAR.map((name) => <Message key={name} text={problems[name] ?? ""} />)}
      <OptionFields key={launcher} element={fields} names={names} inRow class={`ptynb-run-options ptynb-run-${launcher}`} />
      <PythonLine text={line} />
    </>
  );
}

/** usual: what happens by default.
 * @type {(given: { element: Element }) => VNode} */
function Checkpointing({ element }) {
  const { line, usual } = element.use();
  return (
    <div class="ptynb-run-checkpointing">
      <OptionFields element={element} names={["wanted", "folder"]} />
      <OptionFields element={element} names={["epochs", "seconds", "max_to_keep"]} inRow />
      <PythonLine text={line} />
      <div class="ptynb-run-usual ptynb-small">{usual}</div>
    </div>
  );
}

/** @type {RunPart} */
function Result({ element }) {
  const { result_path: path, film_path: filmPath, film_of: of, film_rate: rate, film, said } = element.use();
  const [done, frames] = film;
  return (
    <>
      <div class="ptynb-wrapped">
        <TextField
          label="Result file" placeholder="scan.result.h5" style={{ width: "380px" }}
          value={path} onCommit={(text) => element.put("result_path", text)}
        />
        <Act of={element} call="save" text="Save result" icon="save" title="Writes the result to this file (HDF5)" />
        <Act of={element} call="report" text="Report" icon="file-text" title="Writes a report (HTML) next to the result file" />
        <Act
          of={element} call="add_to_comparison" text="Add to comparison" icon="copy"
          title="Adds the current result to the tab Compare"
        />
      </div>
      <div class="ptynb-wrapped">
        <TextField
          label="Film file" placeholder="scan.gif or scan.mp4" style={{ width: "380px" }}
          value={filmPath} onCommit={(text) => element.put("film_path", text)}
        />
        <Select
          label="of" labelWidth="initial" style={{ width: "auto" }} options={["checkpoints", "thumbnails"]} value={of}
          title="Checkpoints have every pixel; thumbnails of up to 8 epochs are in every result"
          onCommit={(kind) => element.put("film_of", kind)}
        />
        <NumberField
          label="Frames/s" labelWidth="initial" style={{ width: "130px" }} min={0.5} max={50} step={0.5} value={rate}
          onCommit={(number) => element.put("film_rate", number)}
        />
        <Act
          of={element} call="make_film" text="Film" icon="film"
          title="Writes a film of the run (GIF or MP4) to this file" disabled={frames > 0}
        />
        {frames > 0 && <Progress label="Film" labelWidth="initial" style={{ width: "240px" }} value={done} max={frames} />}
        {frames > 0 && <Act of={element} call="cancel_film" text="Cancel film" icon="x" title="Ends the film; no file is written" />}
      </div>
      <div role="status" class="ptynb-run-said">{said}</div>
    </>
  );
}

/** @type {Drawing<RunValues>} */
export function RunTab({ element }) {
  const { epochs, stages, page, starting, can_cancel: canCancel, clusters: clusterMark, checkpoints, view } = element.use();
  const clusters = elementOf(element, clusterMark);
  /** @type {import("../page/parts.jsx").DrawerPage[]} */
  const pages = [
    {
      title: "Stages",
      icon: "list-checks",
      content: () => (
        <TextArea
          label="Stages" placeholder={STAGES_EXAMPLE} style={{ width: "620px", height: "110px" }}
          title="Stages of the run, as in a run file; empty: so many epochs with the settings"
          value={stages} onCommit={(text) => element.put("stages", text)}
        />
      ),
    },
    { title: "Checkpointing", icon: "archive", content: () => <Checkpointing element={elementOf(element, checkpoints)} /> },
    {
      title: "Cluster",
      icon: "server",
      content: () => (
        <>
          <Cluster element={clusters} />
          <div class="ptynb-wrapped">
            <Act
              of={element} call="attach" text="Attach" icon="plug"
              title="Attaches to a run that continues without its notebook; of several, to that of the existing cluster"
            />
            <Act of={element} call="stop_engines" text="Stop engines" icon="power" title="Stops the cluster that New run started" />
          </div>
        </>
      ),
    },
    { title: "Result", icon: "save", content: () => <Result element={element} /> },
  ];
  return (
    <div class="ptynb-element ptynb-run">
      <Drawer label="More about the run" pages={pages} shown={page} onShow={(title) => element.put("page", title)}>
        <Engines element={clusters} />
        <NumberField
          label="Epochs" labelWidth="initial" style={{ width: "150px" }} min={1} max={1_000_000} value={epochs}
          onCommit={(number) => element.put("epochs", Math.round(number))}
        />
        <Act
          of={element} call="new_run" text="New run" icon="play" class="ptynb-auto"
          title="Starts a reconstruction of the scan with the settings"
        />
      </Drawer>
      <div class="ptynb-wrapped">
        <span role="status">{starting}</span>
        {canCancel && starting && (
          <Act of={element} call="cancel_start" text="Cancel" icon="x" title="Ends the wait, and cancels the job" />
        )}
      </div>
      <Parts page={element.page} of={view} />
    </div>
  );
}
