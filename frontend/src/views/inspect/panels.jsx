// The panels of the inspector: statistics, mask, positions, preparation and first pictures.

import { useState } from "preact/hooks";

import { Parts } from "../../page/part.jsx";
import { Button, Field, Message, NumberField, Progress, Select, TextField } from "../../page/parts.jsx";

/** @import { ComponentChildren, VNode } from "preact" */
/** @import { Element } from "../../page/elements.js" */
/** @import { DirectValues, Histogram, InspectValues, MaskValues, PositionsValues, PreparationValues, ScaledValues, StatisticsValues } from "./types" */

const [LEFT, BOTTOM, WIDTH, HEIGHT] = [56, 34, 420, 150];

/** @type {(given: { children: ComponentChildren }) => VNode} */
export const Row = ({ children }) => <div class="ptynb-inspect-row">{children}</div>;

/** The facts of a scan, its name first.
 * @type {(given: { of: string[] }) => VNode} */
export const Facts = ({ of: [name, ...more] }) => (
  <p class="ptynb-inspect-text">
    <b>{name}</b>
    {more.map((fact) => ` \u00a0·\u00a0 ${fact}`)}
  </p>
);

/** The scale of counts, and the exponent of a power.
 * @type {(given: { element: Element<any> }) => VNode} */
export function ScaleFields({ element }) {
  /** @type {ScaledValues} */
  const { scale, exponent } = element.use();
  return (
    <>
      <Select
        label="Scale"
        style={{ width: "220px" }}
        options={["log", "linear", "gamma"]}
        value={scale}
        onCommit={(chosen) => element.put("scale", chosen)}
      />
      {scale === "gamma" && (
        <NumberField
          label="Exponent"
          labelWidth="auto"
          style={{ width: "220px" }}
          value={exponent}
          min={0.05}
          max={5}
          step={0.05}
          onCommit={(number) => element.put("exponent", number)}
        />
      )}
    </>
  );
}

/** The counts of pixels by octaves, on a logarithmic axis.
 * @type {(given: Histogram) => VNode} */
function HistogramChart({ patterns, bars, most }) {
  const highest = Math.max(...bars.map(([, number]) => Math.log10(number + 1)), 1e-9);
  const step = (WIDTH - LEFT - 4) / bars.length;
  const labelled = Math.max(1, Math.round(bars.length / 9));
  return (
    <figure class="ptynb-inspect-histogram">
      <figcaption>{`Counts of the pixels of ${patterns.toLocaleString("en")} patterns`}</figcaption>
      <svg width={WIDTH} height={HEIGHT} role="img" aria-label="histogram of counts">
        {bars.map(([name, number], index) => {
          const tall = (Math.log10(number + 1) / highest) * (HEIGHT - BOTTOM - 6);
          return (
            <rect x={LEFT + index * step} y={HEIGHT - BOTTOM - tall} width={Math.max(step - 1, 0.5)} height={tall}>
              <title>{`from ${name} counts: ${number.toLocaleString("en")} pixels`}</title>
            </rect>
          );
        })}
        {bars.map(([name], index) => index % labelled === 0 && (
          <text x={LEFT + (index + 0.5) * step} y={HEIGHT - 20} text-anchor="middle">{name}</text>
        ))}
        <text x={LEFT - 4} y={14} text-anchor="end">{most}</text>
        <text x={LEFT - 4} y={HEIGHT - BOTTOM} text-anchor="end">0</text>
        <text x={(WIDTH + LEFT) / 2} y={HEIGHT - 5} text-anchor="middle">counts of a pixel, from</text>
      </svg>
    </figure>
  );
}

/** @type {(given: { element: Element<StatisticsValues> }) => VNode} */
function Statistics({ element }) {
  const { view, histogram } = element.use();
  return (
    <>
      <Row>
        <ScaleFields element={element} />
      </Row>
      <Parts page={element.page} of={view} />
      {"bars" in histogram && <HistogramChart {.../** @type {Histogram} */ (histogram)} />}
    </>
  );
}

/** @type {(given: { element: Element<MaskValues> }) => VNode} */
function Mask({ element }) {
  const { view, shape, text, new: found, changed, painting, disc } = element.use();
  const [path, setPath] = useState("mask.npy");
  /** @type {(name: "y" | "x" | "radius", label: string, min: number, max: number) => VNode} */
  const number = (name, label, min, max) => (
    <NumberField
      label={label}
      labelWidth="auto"
      style={{ width: name === "radius" ? "220px" : "110px" }}
      value={disc[name]}
      min={min}
      max={max}
      onCommit={(value) => element.put("disc", { ...disc, [name]: value })}
    />
  );
  return (
    <>
      <Row>
        <Button
          text="Paint"
          icon="paintbrush"
          title="Paint on the picture; brush and eraser are among its tools"
          pressed={painting}
          onClick={() => element.put("painting", !painting)}
        />
        <Button text="Undo" icon="undo" title="Restores the mask before the last change" disabled={!changed} onClick={() => element.call("undo")} />
        <Button text="Find bad pixels" icon="search" title="Hot, dead, stuck and not finite pixels" onClick={() => element.call("find")} />
        <Button
          text="Mask found"
          icon="arrow-down"
          title="Masks the bad pixels that were found"
          disabled={found === 0}
          onClick={() => element.call("mask_found")}
        />
        <Button text="Use mask" icon="check" title="Sets the mask of the scan" onClick={() => element.call("use")} />
      </Row>
      <Row>
        {number("y", "y", 0, shape[0] - 1)}
        {number("x", "x", 0, shape[1] - 1)}
        {number("radius", "Disc radius [pixels]", 0.5, 1e4)}
        <Button text="Mask disc" title="Masks the pixels in the disc" onClick={() => element.call("set_disc", { good: false })} />
        <Button text="Unmask disc" title="Unmasks the pixels in the disc" onClick={() => element.call("set_disc", { good: true })} />
      </Row>
      <Row>
        <TextField label="File" placeholder="mask.npy or mask.h5" value={path} onCommit={setPath} />
        <Button text="Save" icon="save" onClick={() => element.call("save", { path })} />
        <Button text="Load" onClick={() => element.call("load", { path })} />
      </Row>
      <p class="ptynb-inspect-text">{text}</p>
      <Parts page={element.page} of={view} />
    </>
  );
}

/** @type {(given: { element: Element<PositionsValues>, inspect: Element<InspectValues> }) => VNode} */
function Positions({ element, inspect }) {
  const { rotation, text, rows, exclude } = element.use();
  return (
    <>
      <Row>
        <Button
          text="Find rotation"
          icon="compass"
          title="Finds the rotation of the scan from centres of mass"
          onClick={() => element.call("find_rotation")}
        />
        <Button
          text="Rotate positions"
          icon="rotate-cw"
          title="Rotates the positions by this angle"
          disabled={!rotation.angle}
          onClick={() => element.call("rotate")}
        />
      </Row>
      {rotation.angle && (
        <p class="ptynb-inspect-text">
          <b>{rotation.angle}</b>
          {`: ${rotation.text}`}
          <br />
          <code>{rotation.lines}</code>
        </p>
      )}
      <Row>
        <Button text="Find suspicious" icon="search" title="Searches the surveyed patterns" onClick={() => element.call("find_suspicious")} />
      </Row>
      <p class="ptynb-inspect-text">{text}</p>
      <Field label="Suspicious" kind="ptynb-inspect-list">
        {({ id }) => (
          <select id={id} size={8} onChange={(event) => inspect.call("choose", { index: Number(event.currentTarget.value) })}>
            {rows.map(([index, reason], row) => (
              <option key={row} value={index}>{`${index}: ${reason}`}</option>
            ))}
          </select>
        )}
      </Field>
      <Row>
        <Button text="Exclude chosen" title="Adds the pattern shown to the list" onClick={() => element.call("exclude_shown")} />
        <Button text="Exclude all suspicious" title="Adds them to the list" onClick={() => element.call("exclude_suspicious")} />
      </Row>
      <Row>
        <TextField
          label="Exclude"
          placeholder="patterns, such as 3, 7-9"
          style={{ width: "420px", maxWidth: "100%" }}
          value={exclude}
          onCommit={(list) => element.put("exclude", list)}
        />
        <Button text="Remove from scan" icon="check" title="Removes these patterns" onClick={() => element.call("remove_excluded")} />
      </Row>
    </>
  );
}

/** @type {(given: { element: Element<PreparationValues> }) => VNode} */
function Preparation({ element }) {
  const { view, facts, kinds, lines, recipe } = element.use();
  const [index, choose] = useState(0);
  const [kind, meaning, usual] = kinds[index];
  const [number, setNumber] = useState(usual);
  return (
    <>
      <Row>
        <Select
          label="Step"
          style={{ width: "auto" }}
          options={kinds.map(([name]) => name)}
          value={kind}
          onCommit={(name) => {
            const next = kinds.findIndex(([other]) => other === name);
            choose(next);
            setNumber(kinds[next][2]);
          }}
        />
        <TextField
          label="Number"
          style={{ width: "190px" }}
          placeholder={meaning}
          disabled={!meaning}
          value={number}
          onCommit={setNumber}
        />
        <span>{meaning}</span>
      </Row>
      <Row>
        <Button text="Add step" icon="plus" onClick={() => element.call("add", { kind, number })} />
        <Button text="Remove last" icon="undo" disabled={!recipe} onClick={() => element.call("remove")} />
        <Button text="Apply" icon="check" title="Replaces the scan by the prepared one" disabled={!recipe} onClick={() => element.call("apply")} />
      </Row>
      {recipe ? (
        <div class="ptynb-inspect-text">
          <code>{lines.join("\n")}</code>
          <details>
            <summary>in a run file</summary>
            <pre>{recipe}</pre>
          </details>
          <Facts of={facts} />
        </div>
      ) : (
        <p class="ptynb-inspect-text">No steps chosen yet.</p>
      )}
      <Parts page={element.page} of={view} />
    </>
  );
}

/** @type {(given: { element: Element<DirectValues> }) => VNode} */
function FirstPictures({ element }) {
  const { view, live, text, rows, note, guess, reading } = element.use();
  const [heads = [], ...cells] = rows;
  return (
    <>
      {!live && (
        <Row>
          <Button text="Compute" icon="image" title="Reads all patterns once" onClick={() => element.call("compute")} />
          <Button
            text="Use as first guess"
            icon="check"
            title="Corrects the positions, and sets the probe of the fitted lens"
            disabled={!guess}
            onClick={() => element.call("use_guess")}
          />
          {reading.done !== undefined && (
            <>
              <Progress label="Pictures" labelWidth="auto" style={{ width: "240px" }} value={reading.done} max={reading.total} />
              <Button
                text="Cancel pictures"
                icon="x"
                title="Ends the reading; the scan stays as it is"
                onClick={() => element.call("cancel")}
              />
            </>
          )}
        </Row>
      )}
      <Message text={note} role="status" />
      <Parts page={element.page} of={view} />
      {text && <p class="ptynb-inspect-text">{text}</p>}
      {heads.length > 0 && (
        <table class="ptynb-inspect-table">
          <thead>
            <tr>
              {heads.map((head) => (
                <th key={head}>{head}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {cells.map((row) => (
              <tr key={row[0]}>
                {row.map((cell, column) => (
                  <td key={column}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
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
