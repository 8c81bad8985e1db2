// The panels of the inspector: statistics, mask, positions, preparation and first pictures.

import { useState } from "preact/hooks";

import { Parts } from "../../page/part.jsx";
import { Act, Button, Field, Message, NumberField, Progress, Select, Table, TextField } from "../../page/parts.jsx";

/** @import { ComponentChildren, VNode } from "preact" */
/** @import { Element } from "../../page/elements.js" */
/** @import { DirectValues, InspectValues, MaskValues, PanelValues, PositionsValues, PreparationValues, ScaledValues, StatisticsValues } from "./types" */

const [LEFT, BOTTOM, WIDTH, HEIGHT] = [56, 34, 420, 150];
const NARROW = { width: "110px" };
const USUAL = { width: "220px" };

/** @type {(given: { children: ComponentChildren }) => VNode} */
export const Text = ({ children }) => <div class="ptynb-inspect-text">{children}</div>;

/** @type {(given: { of: Element<any> }) => VNode} */
const View = ({ of }) => <Parts page={of.page} of={/** @type {PanelValues} */ (of.use()).view} />;

/** The facts of a scan, its name first.
 * @type {(given: { of: string[] }) => VNode} */
export const Facts = ({ of: [name, ...more] }) => (
  <Text>
    <b>{name}</b>
    {more.map((fact) => ` \u00a0·\u00a0 ${fact}`)}
  </Text>
);

/** The scale of counts, and the exponent of a power.
 * @type {(given: { element: Element<any> }) => VNode} */
export function ScaleFields({ element }) {
  const { scale, exponent } = /** @type {ScaledValues} */ (element.use());
  const put = (/** @type {string} */ name) => (/** @type {unknown} */ value) => element.put(name, value);
  return (
    <>
      <Select label="Scale" style={USUAL} options={["log", "linear", "gamma"]} value={scale} onCommit={put("scale")} />
      {scale === "gamma" && (
        <NumberField label="Exponent" labelWidth="auto" style={USUAL} value={exponent} min={0.05} max={5} step={0.05} onCommit={put("exponent")} />
      )}
    </>
  );
}

/** The counts of pixels by octaves, on a logarithmic axis.
 * @type {(given: { patterns: number, octaves: number[] }) => VNode} */
function Histogram({ patterns, octaves: [none, ...octaves] }) {
  const filled = octaves.flatMap((number, octave) => (number > 0 ? [octave] : []));
  const [first, last] = filled.length > 0 ? [filled[0], filled[filled.length - 1]] : [20, 20];
  const above = octaves.slice(first, last + 1).map((number, index) => [2 ** (first + index - 20), number]);
  const bars = [[0, none], ...above];
  const most = Math.max(...bars.map(([, number]) => number));
  const step = (WIDTH - LEFT - 4) / bars.length;
  const labelled = Math.max(1, Math.round(bars.length / 9));
  const short = (/** @type {number} */ number) => number.toLocaleString("en", { notation: number < 1e4 ? "standard" : "compact", useGrouping: false });
  return (
    <figure class="ptynb-inspect-histogram">
      <figcaption>{`Counts of the pixels of ${patterns.toLocaleString("en")} patterns`}</figcaption>
      <svg width={WIDTH} height={HEIGHT} role="img" aria-label="histogram of counts">
        {bars.map(([low, number], index) => {
          const tall = (Math.log(number + 1) / Math.log(most + 1)) * (HEIGHT - BOTTOM - 6) || 0;
          return (
            <rect key={low} x={LEFT + index * step} y={HEIGHT - BOTTOM - tall} width={Math.max(step - 1, 0.5)} height={tall}>
              <title>{`from ${short(low)} counts: ${number.toLocaleString("en")} pixels`}</title>
            </rect>
          );
        })}
        {bars.map(([low], index) => index % labelled === 0 && (
          <text key={low} x={LEFT + (index + 0.5) * step} y={HEIGHT - 20} text-anchor="middle">{short(low)}</text>
        ))}
        <text x={LEFT - 4} y={14} text-anchor="end">{short(most)}</text>
        <text x={LEFT - 4} y={HEIGHT - BOTTOM} text-anchor="end">0</text>
        <text x={(WIDTH + LEFT) / 2} y={HEIGHT - 5} text-anchor="middle">counts of a pixel, from</text>
      </svg>
    </figure>
  );
}

/** @type {(given: { element: Element<StatisticsValues> }) => VNode} */
function Statistics({ element }) {
  const { patterns, octaves } = element.use();
  return (
    <>
      <div class="ptynb-wrapped">
        <ScaleFields element={element} />
      </div>
      <View of={element} />
      {octaves.length > 0 && <Histogram patterns={patterns} octaves={octaves} />}
    </>
  );
}

/** @type {(given: { element: Element<MaskValues> }) => VNode} */
function Mask({ element }) {
  const { shape, text, new: found, changed, painting, disc } = element.use();
  const [path, setPath] = useState("mask.npy");
  const of = (/** @type {"y" | "x" | "radius"} */ name) => ({
    labelWidth: "auto",
    value: disc[name],
    onCommit: (/** @type {number} */ value) => element.put("disc", { ...disc, [name]: value }),
  });
  return (
    <>
      <div class="ptynb-wrapped">
        <Button
          text="Paint"
          icon="paintbrush"
          title="Paint on the picture; brush and eraser are among its tools"
          pressed={painting}
          onClick={() => element.put("painting", !painting)}
        />
        <Act of={element} call="undo" text="Undo" icon="undo" title="Restores the mask before the last change" disabled={!changed} />
        <Act of={element} call="find" text="Find bad pixels" icon="search" title="Hot, dead, stuck and not finite pixels" />
        <Act of={element} call="mask_found" text="Mask found" icon="arrow-down" title="Masks the bad pixels that were found" disabled={found === 0} />
        <Act of={element} call="use" text="Use mask" icon="check" title="Sets the mask of the scan" />
      </div>
      <div class="ptynb-wrapped">
        <NumberField label="y" style={NARROW} min={0} max={shape[0] - 1} {...of("y")} />
        <NumberField label="x" style={NARROW} min={0} max={shape[1] - 1} {...of("x")} />
        <NumberField label="Disc radius [pixels]" style={USUAL} min={0.5} max={1e4} {...of("radius")} />
        <Act of={element} call="set_disc" given={{ good: false }} text="Mask disc" title="Masks the pixels in the disc" />
        <Act of={element} call="set_disc" given={{ good: true }} text="Unmask disc" title="Unmasks the pixels in the disc" />
      </div>
      <div class="ptynb-wrapped">
        <TextField label="File" placeholder="mask.npy or mask.h5" value={path} onCommit={setPath} />
        <Act of={element} call="save" given={{ path }} text="Save" icon="save" />
        <Act of={element} call="load" given={{ path }} text="Load" />
      </div>
      <Text>{text}</Text>
      <View of={element} />
    </>
  );
}

/** @type {(given: { element: Element<PositionsValues>, inspect: Element<InspectValues> }) => VNode} */
function Positions({ element, inspect }) {
  const { rotation, text, rows, exclude } = element.use();
  return (
    <>
      <div class="ptynb-wrapped">
        <Act of={element} call="find_rotation" text="Find rotation" icon="compass" title="Finds the rotation of the scan from centres of mass" />
        <Act of={element} call="rotate" text="Rotate positions" icon="rotate-cw" title="Rotates the positions by this angle" disabled={!rotation.angle} />
      </div>
      {rotation.angle && (
        <Text>
          <b>{rotation.angle}</b>
          {`: ${rotation.text}\n`}
          <code>{rotation.lines}</code>
        </Text>
      )}
      <div class="ptynb-wrapped">
        <Act of={element} call="find_suspicious" text="Find suspicious" icon="search" title="Searches the surveyed patterns" />
      </div>
      <Text>{text}</Text>
      <Field label="Suspicious" kind="ptynb-inspect-list">
        {({ id }) => (
          <select id={id} size={8} onChange={(event) => inspect.call("choose", { index: Number(event.currentTarget.value) })}>
            {rows.map(([index, reason]) => (
              <option key={`${index} ${reason}`} value={index}>{`${index}: ${reason}`}</option>
            ))}
          </select>
        )}
      </Field>
      <div class="ptynb-wrapped">
        <Act of={element} call="exclude_shown" text="Exclude chosen" title="Adds the pattern shown to the list" />
        <Act of={element} call="exclude_suspicious" text="Exclude all suspicious" title="Adds them to the list" />
      </div>
      <div class="ptynb-wrapped">
        <TextField
          label="Exclude"
          placeholder="patterns, such as 3, 7-9"
          style={{ width: "420px", maxWidth: "100%" }}
          value={exclude}
          onCommit={(list) => element.put("exclude", list)}
        />
        <Act of={element} call="remove_excluded" text="Remove from scan" icon="check" title="Removes these patterns" />
      </div>
    </>
  );
}

/** @type {(given: { element: Element<PreparationValues> }) => VNode} */
function Preparation({ element }) {
  const { facts, kinds, lines, recipe } = element.use();
  const [[kind, meaning, usual], choose] = useState(kinds[0]);
  const [number, setNumber] = useState(usual);
  const take = (/** @type {string} */ name) => {
    const chosen = kinds.find(([other]) => other === name) ?? kinds[0];
    choose(chosen);
    setNumber(chosen[2]);
  };
  return (
    <>
      <div class="ptynb-wrapped">
        <Select label="Step" style={{ width: "auto" }} options={kinds.map(([name]) => name)} value={kind} onCommit={take} />
        <TextField label="Number" style={{ width: "190px" }} placeholder={meaning} disabled={!meaning} value={number} onCommit={setNumber} />
        <span>{meaning}</span>
      </div>
      <div class="ptynb-wrapped">
        <Act of={element} call="add" given={{ kind, number }} text="Add step" icon="plus" />
        <Act of={element} call="remove" text="Remove last" icon="undo" disabled={!recipe} />
        <Act of={element} call="apply" text="Apply" icon="check" title="Replaces the scan by the prepared one" disabled={!recipe} />
      </div>
      {recipe ? (
        <Text>
          <code>{lines.join("\n")}</code>
          <details>
            <summary>in a run file</summary>
            <pre>{recipe}</pre>
          </details>
          <Facts of={facts} />
        </Text>
      ) : (
        <Text>No steps chosen yet.</Text>
      )}
      <View of={element} />
    </>
  );
}

/** @type {(given: { element: Element<DirectValues> }) => VNode} */
function FirstPictures({ element }) {
  const { live, text, rows, note, guess, reading } = element.use();
  const [heads = [], ...cells] = rows;
  return (
    <>
      {!live && (
        <div class="ptynb-wrapped">
          <Act of={element} call="compute" text="Compute" icon="image" title="Reads all patterns once" />
          <Act
            of={element}
            call="use_guess"
            text="Use as first guess"
            icon="check"
            title="Corrects the positions, and sets the probe of the fitted lens"
            disabled={!guess}
          />
          {reading.done !== undefined && (
            <>
              <Progress label="Pictures" labelWidth="auto" style={{ width: "240px" }} value={reading.done} max={reading.total} />
              <Act of={element} call="cancel" text="Cancel pictures" icon="x" title="Ends the reading; the scan stays as it is" />
            </>
          )}
        </div>
      )}
      <Message text={note} role="status" />
      <View of={element} />
      <Text>{text}</Text>
      <Table heads={heads} rows={cells} />
    </>
  );
}

/** By the components of their elements.
 * @type {Record<string, (given: { element: Element<any>, inspect: Element<InspectValues> }) => VNode>} */
export const PANELS = {
  inspectStatistics: Statistics,
  inspectMask: Mask,
  inspectPositions: Positions,
  inspectPreparation: Preparation,
  inspectDirect: FirstPictures,
};
