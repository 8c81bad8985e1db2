// What a glance at a run has to find, and the patterns of a scan that is being measured.

/** @import { ComponentChildren, VNode } from "preact" */
/** @import { Arrivals, Summary as Values } from "./values" */

const TIME_LEFT =
  "At the rate of the last epochs; in stages to come, in proportion to the pixels of their patterns; of a scan that is " +
  "being measured, after its end at the present rate";
const NO_R_FACTOR = "Not measured; under More, choose every how many epochs it is";
const RATE = "Patterns that come, ";
const LAG = "Median time from the arrival of a pattern until it can be used";

/** A state, in its colour.
 * @type {(given: { state: string }) => VNode} */
export const State = ({ state }) => <b class={`ptynb-state ptynb-state-${state}`}>{state}</b>;

/** @type {(given: { title?: string, children: ComponentChildren }) => VNode} */
const Fact = ({ title, children }) => (
  <span class="ptynb-fact" title={title}>
    {children}
  </span>
);

/** @type {(given: { summary: Values }) => VNode} */
export function Summary({ summary }) {
  const { state, epoch, target, after_scan, update, updates, stopped, stage, stages, loss, r_factor, speed, left } = summary;
  if (state === "starting") return <div class="ptynb-facts">starting: engines read the scan</div>;
  return (
    <div class="ptynb-facts">
      <State state={state} />
      <Fact>
        epoch <b>{epoch}</b>
        {target > 0 && ` of ${target}`}
        {update > 0 && <small>{` + ${update}/${updates} updates`}</small>}
        {after_scan > 0 && `, then ${after_scan} after the scan`}
      </Fact>
      {stopped && <Fact>stopped: {stopped}</Fact>}
      {stage > 0 && (
        <Fact>
          stage <b>{stage}</b> of {stages}
        </Fact>
      )}
      {loss && (
        <Fact>
          loss <b>{loss}</b>
        </Fact>
      )}
      {r_factor && (
        <Fact title={`after epoch ${summary.r_factor_epoch}`}>
          R-factor <b>{r_factor}</b>
        </Fact>
      )}
      {loss && !r_factor && <Fact title={NO_R_FACTOR}>R-factor –</Fact>}
      {speed && <Fact>{speed} patterns/s</Fact>}
      {left && (
        <Fact title={TIME_LEFT}>
          <b>{left}</b> left
        </Fact>
      )}
    </div>
  );
}

/** The patterns of a scan that is being measured, which have come and which are used; nothing of another scan.
 * @type {(given: { arrivals: Arrivals | Partial<Arrivals> }) => VNode | null} */
export function ArrivalBar({ arrivals }) {
  if (!arrivals.planned) return null;
  const { planned, arrived, placed, admitted, remarks, rate, lag, ended, silence } = /** @type {Arrivals} */ (arrivals);
  const used = admitted ?? placed;
  const part = (/** @type {number} */ count) => ({ width: `${Math.min((100 * count) / planned, 100).toFixed(2)}%` });
  const count = (/** @type {number} */ number) => number.toLocaleString("en");
  return (
    <div class="ptynb-arrivals">
      <div class="ptynb-arrivals-bar" role="progressbar" aria-label="Patterns that have come" aria-valuemin={0} aria-valuemax={planned} aria-valuenow={arrived}>
        <div class="ptynb-arrivals-used" title="Used" style={part(used)} />
        <div class="ptynb-arrivals-waiting" title="Waiting" style={part(Math.max(arrived - used, 0))} />
      </div>
      <div class="ptynb-facts">
        <Fact>
          <b>{count(arrived)}</b> of {count(planned)} patterns came
        </Fact>
        {admitted !== null && (
          <Fact>
            <b>{count(used)}</b> used
          </Fact>
        )}
        {remarks.map(([text, meaning]) => (
          <Fact key={text} title={meaning[0].toUpperCase() + meaning.slice(1)}>
            {text}
          </Fact>
        ))}
        {rate && <Fact title={RATE + (ended ? "from the first pattern to the last" : "over the latest seconds")}>rate {rate}/s</Fact>}
        {lag && <Fact title={LAG}>lag {lag}</Fact>}
        {ended && (
          <Fact title={ended}>
            <b>scan ended</b>
          </Fact>
        )}
        {silence && (
          <Fact>
            <b>no sign of the receiver for {silence}</b>
          </Fact>
        )}
      </div>
    </div>
  );
}
