// Tuning: what a study is started with, its trials as a table or as pictures, and plots of the score.

import { useState } from "preact/hooks";

import { shortNumber } from "../numbers.js";
import { Parts } from "../page/part.jsx";
import { Act, Fold, Message, NumberField, Select, TextArea, TextField } from "../page/parts.jsx";
import { State } from "./live/summary.jsx";

/** @import { VNode } from "preact" */
/** @import { Drawing, Mark, Option } from "../page/types" */
/** @import { Element } from "../page/elements.js" */

/** values, places: by parameter; score, text: null and "" unless complete.
 * @typedef {{ number: number, state: string, reason: string, score: number | null, text: string, values: string[],
 *   places: (number | null)[], epochs: number, time: string, engines: string, pictured: boolean }} Trial */
/** ends: place, text and anchor of the labels below the axis.
 * @typedef {{ label: string, ends: [number, string, "start" | "middle" | "end"][] }} Parameter */
/** @typedef {{ state: string, done: number, wanted: number, unfinished: number, score: string, file: string }} StudyState */
/**
 * @typedef {{
 *   trials: number, epochs: number, metric: string, sampler: string, file: string, scan_ranges: string,
 *   functions: string[], shown_form: Mark | null, state: StudyState, best: number | null, parameters: Parameter[],
 *   rows: Record<string, Trial>, pictures: Record<string, string>, message: string,
 * }} Values
 */

/** @type {Option[]} */
const SAMPLERS = [
  ["tpe", "model of the scores (TPE)"],
  ["random", "random"],
  ["grid", "all combinations of choices"],
  ["gp", "Gaussian process"],
  ["cmaes", "covariance matrix (CMA-ES)"],
];
/** @type {Option[]} */
const METRICS = [["loss", "Loss of the last epoch"], ["frc", "Fourier ring correlation of halves"]];
/** @type {Record<string, string>} */
const MEANINGS = {
  loss: "The loss of the last epoch; fitting noise reduces it too.",
  frc: "1 minus the mean Fourier ring correlation of two reconstructions, each from half of the scan.",
};
const SCAN_HINT = "Values of the scan to tune, one a line:\nScan rotation: -5 to 5 °\ncrop: 64, 96";
/** Largest numbers of trials in the table, and among the pictures. */
const ROWS = 40;
const PICTURES = 24;
const PLOT = { width: 240, height: 170, left: 62, right: 12, top: 14, bottom: 34 };

/** Complete trials by score, then running ones, then others by their epochs.
 * @type {(one: Trial, other: Trial) => number} */
function byRank(one, other) {
  const ranks = [one, other].map(({ score, state, epochs }) => (score !== null ? [0, score] : [state === "running" ? 1 : 2, -epochs]));
  return ranks[0][0] - ranks[1][0] || ranks[0][1] - ranks[1][1] || one.number - other.number;
}

/** @type {(given: { trial: Trial, address: string | undefined }) => VNode | null} */
const Picture = ({ trial, address }) => address ? <img src={address} alt={`object phase of trial ${trial.number}`} /> : null;

/** @type {(given: { shown: Trial[], values: Values }) => VNode} */
function Table({ shown, values: { best, parameters, pictures } }) {
  const heads = ["trial", "object phase", ...parameters.map(({ label }) => label), "score", "state", "epochs", "time", "engines"];
  return (
    <div class="ptynb-tuner-table" tabIndex={0} role="region" aria-label="trials">
      <table>
        <thead>
          <tr>{heads.map((head) => <th key={head} scope="col">{head}</th>)}</tr>
        </thead>
        <tbody>
          {shown.slice(0, ROWS).map((trial) => (
            <tr key={trial.number} class={trial.number === best ? "ptynb-tuner-best" : undefined}>
              <td>{trial.number === best ? `★ ${trial.number} best` : trial.number}</td>
              <td><Picture trial={trial} address={pictures[trial.number]} /></td>
              {trial.values.map((value, index) => <td key={parameters[index].label}>{value}</td>)}
              <td>{trial.text}</td>
              <td>{trial.reason ? <details><summary>{trial.state}</summary><small>{trial.reason}</small></details> : trial.state}</td>
              <td>{trial.epochs}</td>
              <td>{trial.time}</td>
              <td>{trial.engines}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length > ROWS && <p>and {shown.length - ROWS} more; <code>study.trials</code> has all of them.</p>}
    </div>
  );
}

/** @type {(given: { shown: Trial[], values: Values }) => VNode} */
function Pictures({ shown, values: { best, parameters, pictures } }) {
  const pictured = shown.filter((trial) => trial.pictured);
  return (
    <>
      <div class="ptynb-wrapped">
        {pictured.slice(0, PICTURES).map((trial) => (
          <figure key={trial.number} class={trial.number === best ? "ptynb-tuner-best" : undefined}>
            <Picture trial={trial} address={pictures[trial.number]} />
            <figcaption>
              {trial.number === best ? `★ trial ${trial.number} best: ` : `trial ${trial.number}: `}
              {trial.text || trial.state}
              {trial.values.map((value, index) => <div key={parameters[index].label}>{parameters[index].label} {value}</div>)}
            </figcaption>
          </figure>
        ))}
      </div>
      {pictured.length > PICTURES && <p>and {pictured.length - PICTURES} more.</p>}
    </>
  );
}

/** Corners of a star around a point.
 * @type {(x: number, y: number) => string} */
const star = (x, y) => Array.from({ length: 10 }, (_, corner) => {
  const [angle, radius] = [(Math.PI / 5) * corner, corner % 2 ? 3.2 : 8];
  return `${(x + radius * Math.sin(angle)).toFixed(1)},${(y - radius * Math.cos(angle)).toFixed(1)}`;
}).join(" ");

/** The score against one parameter.
 * @type {(given: { trials: Trial[], parameter: Parameter, index: number, best: number | null }) => VNode} */
function Plot({ trials, parameter: { label, ends }, index, best }) {
  const { width, height, left, right, top, bottom } = PLOT;
  const scores = trials.flatMap(({ score }) => score ?? []);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const scale = low > 0 && high > 10 * low ? Math.log10 : (/** @type {number} */ value) => value;
  const yOf = (/** @type {number} */ score) => {
    const part = high > low ? (scale(score) - scale(low)) / (scale(high) - scale(low)) : 0.5;
    return height - bottom - 10 - part * (height - top - bottom - 18);
  };
  const xOf = (/** @type {number} */ place) => left + place * (width - left - right);
  return (
    <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={`score against ${label}`}>
      {[...new Set([low, high])].map((score) => (
        <text key={score} x={left - 6} y={yOf(score) + 4} text-anchor="end">{shortNumber(Number(score.toPrecision(3)))}</text>
      ))}
      {ends.map(([place, text, anchor]) => <text key={text} x={xOf(place)} y={height - bottom + 16} text-anchor={anchor}>{text}</text>)}
      <text x={(left + width - right) / 2} y={height - 4} text-anchor="middle">{label}</text>
      <path d={`M${left} ${top}V${height - bottom}H${width - right}`} fill="none" stroke="currentColor" stroke-opacity="0.4" />
      {trials.map(({ number, state, score, text, places }) => {
        const place = places[index];
        if (place === null) return null;
        const title = <title>trial {number}: {score === null ? state : text}</title>;
        if (score === null) return state === "pruned" && <path key={number} class="ptynb-tuner-pruned" d={`M${xOf(place)} ${top - 8}v8`}>{title}</path>;
        const [x, y] = [xOf(place), yOf(score)];
        return number === best ? <polygon key={number} points={star(x, y)}>{title}</polygon> : <circle key={number} cx={x} cy={y} r={3.5}>{title}</circle>;
      })}
    </svg>
  );
}

/** @type {(given: { state: StudyState, best: number | null }) => VNode} */
function Summary({ state: { state, done, wanted, unfinished, score, file }, best }) {
  if (!state) return <p>No study: tick the settings to tune and press Start.</p>;
  return (
    <>
      <div class="ptynb-facts">
        <State state={state} />
        <span><b>{done}</b> of {wanted} trials</span>
        {unfinished > 0 && <span>{unfinished} running</span>}
        {score && <span>best score <b>{score}</b> in trial {best}</span>}
      </div>
      <small>file: <code>{file}</code></small>
    </>
  );
}

/** The settings with their ticks, folded at first.
 * @type {(given: { element: Element, form: Element }) => VNode} */
function Ranges({ element, form }) {
  const [open, unfold] = useState(false);
  const ticked = Object.keys(form.use().tuned).length;
  return (
    <>
      <p>Tick the settings to tune. By default learning rates are tuned.</p>
      <Fold title={`Settings and ranges${ticked ? ` (${ticked} tuned)` : ""}`} open={open} onToggle={unfold}>
        <Parts page={element.page} of={{ $element: form.key }} />
      </Fold>
    </>
  );
}

/** What the next study is started with.
 * @type {(given: { element: Element, values: Values }) => VNode} */
function Fields({ element, values }) {
  const set = (/** @type {keyof Values} */ name) => (/** @type {string | number} */ value) => element.put(name, value);
  const { trials, epochs, metric, sampler, file, scan_ranges: ranges, functions } = values;
  const scores = [...METRICS, ...functions.map(/** @type {(name: string) => Option} */ (name) => [name, name])];
  return (
    <>
      <div class="ptynb-wrapped">
        <NumberField class="ptynb-tuner-number" label="Trials" value={trials} min={1} max={100000} step={1} onCommit={set("trials")} />
        <NumberField class="ptynb-tuner-number" label="Epochs" value={epochs} min={1} max={1000000} step={1} onCommit={set("epochs")} />
        <Select label="Score" title="The value to minimise" options={scores} value={metric} onCommit={set("metric")} />
        <Select label="Sampler" title="How values are suggested" options={SAMPLERS} value={sampler} onCommit={set("sampler")} />
        <TextField
          label="File" title="Stores the trials; an earlier study is continued if its file is named"
          placeholder="default: a new file for each study" value={file} onCommit={set("file")}
        />
      </div>
      <TextArea
        class="ptynb-tuner-scan" label="Scan" rows={3} placeholder={SCAN_HINT} value={ranges} onCommit={set("scan_ranges")}
        title="Fields of a file, preparation, and arguments of the scan function, with their ranges"
      />
    </>
  );
}

/** @type {Drawing<Values>} */
export function Tuner({ element }) {
  const values = element.use();
  const { metric, shown_form, state, best, parameters, rows, message } = values;
  const [order, setOrder] = useState("best first");
  const [view, setView] = useState("table");
  const [picked, pick] = useState("0");
  const form = shown_form && element.page.element(shown_form.$element);
  const trials = Object.values(rows);
  const shown = trials.toSorted(order === "best first" ? byRank : (one, other) => other.number - one.number);
  const pictured = trials.filter((trial) => trial.pictured).sort((one, other) => one.number - other.number);
  const picks = pictured.map(/** @type {(trial: Trial) => Option} */ ({ number, text, state: now }) => [`${number}`, `trial ${number}: ${text || now}`]);
  const trial = picks.some(([number]) => number === picked) ? picked : "0";
  const running = state.state === "running";
  const Shown = view === "table" ? Table : Pictures;
  return (
    <div class="ptynb-tuner">
      {form && <Ranges element={element} form={form} />}
      <Fields element={element} values={values} />
      <div class="ptynb-wrapped">
        <Act
          of={element} call="start" text="Start" icon="play"
          title="Starts a new study, or continues the one in the file" disabled={running}
        />
        <Act of={element} call="stop" text="Stop" icon="stop" title="Ends the running trials; they can be repeated" disabled={!running} />
        <Act
          of={element} call="resume" text="Continue" icon="fast-forward"
          title="Runs the remaining trials, or as many again" disabled={running || !state.state}
        />
        <Select label="Order" options={["best first", "newest first"]} value={order} onCommit={setOrder} />
        <Select label="View" options={["table", "pictures"]} value={view} onCommit={setView} />
        <Select label="Pick" title="The trial to use: by its score, or by its picture" options={[["0", "the best trial"], ...picks]} value={trial} onCommit={pick} />
        <Act
          of={element} call="use" given={{ trial: Number(trial) }} text="Use" icon="check"
          title="Uses the settings, and the scan, of the picked trial" disabled={best === null && trial === "0"}
        />
      </div>
      <p class="ptynb-tuner-about">Score: {MEANINGS[metric] ?? "The value of your function for each result; smaller is better."}</p>
      <Summary state={state} best={best} />
      <Message text={message} />
      {trials.some(({ score }) => score !== null) && (
        <>
          <p>Score (small is good) against each parameter: dots complete, star best, ticks at the top pruned.</p>
          <div class="ptynb-wrapped">
            {parameters.map((parameter, index) => <Plot key={parameter.label} {...{ trials, parameter, index, best }} />)}
          </div>
        </>
      )}
      {trials.length > 0 && <Shown shown={shown} values={values} />}
    </div>
  );
}
