// The measurement under a picture: text, plot, and a button for its line of Python.

import { copyText, drawn, make, write } from "../elements.js";
import { numberText, UNITS, within } from "../numbers.js";
import { distanceOf, pointOf } from "./geometry.js";
import { iconButton } from "./icons.js";
import { measureText, profileOf } from "./measures.js";

/** @import { Ends, Grid, Measuring, Pane, Point, Profile } from "../types" */

const PLOT = { least: 200, most: 520, height: 110, left: 50, bottom: 32, top: 8, right: 12 };

/** A plot of a profile, whose colours follow the text around it.
 * @type {(profile: Profile, grid: Grid, pixelSize: Ends | null, ends: [Point, Point], space: number) => SVGElement} */
function profilePlot({ distances, values }, { limits, unit }, pixelSize, ends, space) {
  const width = within(space, PLOT.least, PLOT.most);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${PLOT.height}`, width, class: "ptynb-plot", role: "img" });
  const [left, right] = [PLOT.left, width - PLOT.right];
  const [top, bottom] = [PLOT.top, PLOT.height - PLOT.bottom];
  const pixels = distances[distances.length - 1] || 1;
  const { length } = distanceOf(...ends, pixelSize);
  const [name, metres] = length ? UNITS.find(([, size]) => length >= size * 0.9999) ?? UNITS[UNITS.length - 1] : ["px", 1];
  const long = length ? length / metres : pixels;
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const level = (limits[1] - limits[0]) / 255;
  if (high - low < level) [low, high] = [low - level, high + level];
  /** @type {(distance: number) => number} */
  const x = (distance) => left + ((right - left) * distance) / pixels;
  /** @type {(value: number) => number} */
  const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
  /** @type {(at: Point, words: string, anchor: string) => SVGElement} */
  const text = (at, words, anchor) => drawn("text", { ...at, "text-anchor": anchor }, words);
  const step = [1, 2, 5, 10].map((part) => part * 10 ** Math.floor(Math.log10(long / 2))).find((one) => long / one <= 5.01) ?? Infinity;
  for (let at = 0; at <= long * 1.0001; at += step) {
    const across = left + ((right - left) * at) / long;
    svg.append(drawn("path", { d: `M${across} ${top}V${bottom + 3}`, class: "ptynb-plot-grid" }));
    svg.append(text({ x: across, y: bottom + 14 }, String(Number(at.toPrecision(3))), "middle"));
  }
  svg.append(drawn("path", { d: `M${left} ${top}V${bottom}H${right}`, class: "ptynb-plot-axis" }));
  const [least, most] = [low, high].map((value) => numberText(value, [low, high]));
  svg.append(text({ x: left - 5, y: bottom }, least, "end"), text({ x: left - 5, y: top + 9 }, most, "end"));
  svg.append(text({ x: (left + right) / 2, y: PLOT.height - 4 }, `distance [${name}]${unit ? `, value [${unit}]` : ""}`, "middle"));
  const points = Array.from(values, (value, index) => `${x(distances[index]).toFixed(1)},${y(value).toFixed(1)}`);
  svg.append(drawn("polyline", { points: points.join(" ") }));
  svg.setAttribute("aria-label", `Profile over ${Number(long.toPrecision(3))} ${name}, from ${least} to ${most} ${unit}`);
  return svg;
}

/** The measurement under a picture: text, plot, and a button for its line of Python. */
export class MeasureBox {
  /** @param {Pane} pane @param {Measuring} measuring */
  constructor(pane, measuring) {
    this.pane = pane;
    this.root = make("div", "ptynb-measure", { hidden: true });
    this.text = make("div", "ptynb-measure-text");
    this.plot = make("div");
    this.copy = iconButton("code", "Copy the line of Python that measures the exact values", "", () => {
      copyText(measuring.lineOf(pane), this.root);
      write(this.said, "Copied");
      setTimeout(() => write(this.said, ""), 2000);
    });
    this.said = make("span", "ptynb-measure-said");
    this.said.setAttribute("role", "status");
    const row = make("div", "ptynb-measure-row");
    row.append(this.text, this.said, this.copy);
    this.root.append(row, this.plot);
  }

  /** Measures in the current picture. */
  follow() {
    const { measure, picture } = this.pane;
    this.root.hidden = measure === null;
    if (measure === null) return;
    // One picture of several tells what was measured.
    this.text.setAttribute("aria-live", measure.picture === this.pane.name ? "polite" : "off");
    const [from, to] = [measure.start, measure.stop];
    const [y, x] = [[from[0], to[0]], [from[1], to[1]]];
    // Which of a complex picture takes some time.
    const { grid } = this.pane.finestLayer([Math.min(...y), Math.max(...y), Math.min(...x), Math.max(...x)]);
    write(this.text, measureText(measure, grid, picture.pixel_size));
    this.text.title = measure.kind === "ruler" ? "Angle from the x axis, anticlockwise" : "";
    this.plot.replaceChildren();
    if (measure.kind !== "profile") return;
    /** @type {[Point, Point]} */
    const ends = [pointOf(measure.start), pointOf(measure.stop)];
    this.plot.append(profilePlot(profileOf(grid, ...ends, measure.width ?? 1), grid, picture.pixel_size, ends, this.pane.room.width));
  }
}
