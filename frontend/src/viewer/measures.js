// Measurements from the levels of a picture: profile, statistics, length; their tools, drawing, text and line of
// Python. A measurement is {kind, picture, start, stop, width}; start and stop are [y, x] in pixels of the array.

import { areaText, lengthText, numberText, within } from "../numbers.js";
import { distanceOf, pointOf, toScreen } from "./geometry.js";
import { ACCENT, drawLabel, edged, line } from "./overlay.js";

/** @import { Context, Ends, Grid, Measure, Part, Picture, Place, Point, Profile, Size, Statistics } from "../types" */

/** Name, as in `TOOLS` of viewer.py, label and key of each tool, and its icon on 16 x 16 units.
 * @type {[string, string, string, `M${string}`][]} */
export const TOOLS = [
  ["profile", "Line profile", "L", "M1.5 12.5h2.5l2-9 2.5 7 2-4 1.5 6h2.5"],
  ["rectangle", "Statistics of a rectangle", "R", "M2 3.5h12v9H2z"],
  ["ellipse", "Statistics of an ellipse", "O", "M14.5 8a6.5 4.7 0 1 1-13 0a6.5 4.7 0 1 1 13 0"],
  ["ruler", "Ruler: length and angle", "D", "M1.5 11.3l9.8-9.8 3.2 3.2-9.8 9.8zM4.4 8.4l1.6 1.6M6.8 6l2.2 2.2M9.2 3.6l1.6 1.6"],
];
/** @type {Record<string, string>} */
const AREAS = { rectangle: "Rectangle", ellipse: "Ellipse" };

const CORNER = { y: 0, x: 0 };

/** {distances [px], values}: bilinear samples along a line, a pixel of the picture apart, averaged over its width.
 * @type {(grid: Grid, from: Point, to: Point, wide: number) => Profile} */
export function profileOf({ levels, values, width, height, reduction, corner = CORNER }, from, to, wide) {
  const [dy, dx] = [to.y - from.y, to.x - from.x];
  const pixels = Math.hypot(dy, dx);
  const count = Math.max(2, Math.ceil(pixels / reduction) + 1);
  const lines = Math.max(1, Math.round(wide));
  /** @type {(row: number, column: number) => number} */
  const at = (row, column) => values[levels[within(row, 0, height - 1) * width + within(column, 0, width - 1)]];
  /** @type {(y: number, x: number) => number} */
  const sample = (y, x) => {
    const [row, column] = [(y - corner.y) / reduction - 0.5, (x - corner.x) / reduction - 0.5];
    const [top, left] = [Math.floor(row), Math.floor(column)];
    const [below, right] = [row - top, column - left];
    /** @type {(edge: number) => number} */
    const across = (edge) => (1 - right) * at(edge, left) + right * at(edge, left + 1);
    return (1 - below) * across(top) + below * across(top + 1);
  };
  const found = { distances: new Float64Array(count), values: new Float64Array(count) };
  for (let index = 0; index < count; index += 1) {
    const part = index / (count - 1);
    let sum = 0;
    for (let one = 0; one < lines; one += 1) {
      const aside = pixels ? (one - (lines - 1) / 2) / pixels : 0;
      sum += sample(from.y + part * dy + aside * dx, from.x + part * dx - aside * dy);
    }
    found.distances[index] = part * pixels;
    found.values[index] = sum / lines;
  }
  return found;
}

/** {mean, deviation, least, most, pixels, clipped}: of the picture's pixels with their centres in the region.
 * @type {(grid: Grid, from: Point, to: Point, kind: string) => Statistics | null} */
export function statisticsOf({ levels, values, width, height, reduction, corner = CORNER }, from, to, kind) {
  const [top, bottom] = [from.y - corner.y, to.y - corner.y].sort((one, other) => one - other);
  const [left, right] = [from.x - corner.x, to.x - corner.x].sort((one, other) => one - other);
  const [middleY, middleX, halfY, halfX] = [(top + bottom) / 2, (left + right) / 2, (bottom - top) / 2 || 1, (right - left) / 2 || 1];
  const counts = new Float64Array(256);
  const [first, last] = [Math.max(0, Math.ceil(top / reduction - 0.5)), Math.min(height - 1, Math.floor(bottom / reduction - 0.5))];
  const [begin, end] = [Math.max(0, Math.ceil(left / reduction - 0.5)), Math.min(width - 1, Math.floor(right / reduction - 0.5))];
  for (let row = first; row <= last; row += 1) {
    const down = (((row + 0.5) * reduction - middleY) / halfY) ** 2;
    for (let column = begin; column <= end; column += 1) {
      if (kind === "ellipse" && down + (((column + 0.5) * reduction - middleX) / halfX) ** 2 > 1) continue;
      counts[levels[row * width + column]] += 1;
    }
  }
  const pixels = counts.reduce((sum, count) => sum + count, 0);
  if (!pixels) return null;
  const mean = counts.reduce((sum, count, level) => sum + count * values[level], 0) / pixels;
  const square = counts.reduce((sum, count, level) => sum + count * (values[level] - mean) ** 2, 0) / pixels;
  const least = values[counts.findIndex((count) => count > 0)];
  const most = values[255 - [...counts].reverse().findIndex((count) => count > 0)];
  const clipped = [counts[0] > 0, counts[255] > 0];
  return { mean, deviation: Math.sqrt(square), least, most, pixels: pixels * reduction ** 2, clipped };
}

/** A measurement: line, rectangle or ellipse, with squares at its ends; beside a ruler its length.
 * @type {(context: Context, place: Place, room: Size, measure: Measure, pixelSize?: Ends | null) => void} */
export function drawMeasure(context, place, room, { kind, start, stop, width = 1 }, pixelSize) {
  const [from, to] = [start, stop].map(([y, x]) => toScreen(place, { y, x }));
  const wide = kind === "profile" && width > 1 ? (width * place.scale) / 2 : 0;
  const long = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const aside = { x: (-(to.y - from.y) / long) * wide, y: ((to.x - from.x) / long) * wide };
  line(context, () => {
    if (kind === "rectangle") {
      context.rect(from.x, from.y, to.x - from.x, to.y - from.y);
    } else if (kind === "ellipse") {
      const [high, half] = [Math.abs(to.y - from.y) / 2, Math.abs(to.x - from.x) / 2];
      context.ellipse((from.x + to.x) / 2, (from.y + to.y) / 2, half, high, 0, 0, 2 * Math.PI);
    } else {
      for (const side of wide ? [-1, 1] : [0]) {
        context.moveTo(from.x + side * aside.x, from.y + side * aside.y);
        context.lineTo(to.x + side * aside.x, to.y + side * aside.y);
      }
    }
  }, 1.5, ACCENT);
  for (const [extra, style] of edged(3, ACCENT)) {
    context.fillStyle = style;
    const side = 6 + extra;
    for (const end of [from, to]) context.fillRect(end.x - side / 2, end.y - side / 2, side, side);
  }
  if (kind !== "ruler") return;
  const { length, pixels } = distanceOf(pointOf(start), pointOf(stop), pixelSize);
  const text = length === null ? `${Number(pixels.toPrecision(3))} px` : lengthText(length);
  drawLabel(context, room, { y: Math.max(from.y, to.y), x: (from.x + to.x) / 2 }, text);
}

/** The words for a measurement in a picture.
 * @type {(measure: Measure, grid: Grid, pixelSize?: Ends | null) => string} */
export function measureText({ kind, start, stop }, grid, pixelSize) {
  const [from, to] = [pointOf(start), pointOf(stop)];
  const { pixels, length, angle } = distanceOf(from, to, pixelSize);
  const long = `${length === null ? "" : `${lengthText(length)}, `}${Number(pixels.toPrecision(4))} px`;
  if (kind === "ruler") return `Length ${long}; angle ${angle.toFixed(1).replace("-", "−")}°`;
  if (kind === "profile") return `Profile, length ${long}`;
  const found = statisticsOf(grid, from, to, kind);
  if (!found) return "No pixel has its centre in this region.";
  /** @type {(value: number) => string} */
  const number = (value) => numberText(value, grid.limits);
  const [below, above] = found.clipped.map((clipped, end) => (clipped ? ["≤ ", "≥ "][end] : ""));
  const unit = grid.unit ? ` ${grid.unit}` : "";
  return (
    `${AREAS[kind]}: mean ${number(found.mean)}${unit}, standard deviation ${number(found.deviation)}${unit}, ` +
    `minimum ${below}${number(found.least)}${unit}, maximum ${above}${number(found.most)}${unit}, ` +
    `area ${areaText(found.pixels, pixelSize)}`
  );
}

/** @type {(value: number) => string} */
const metres = (value) => String(Number(value.toPrecision(12)));

/** @type {(size?: Ends | null) => string | null | undefined} */
function pixelArgument(size) {
  return size && `pixel_size=${size[0] === size[1] ? metres(size[0]) : `(${size.map(metres).join(", ")})`}`;
}

/** The line of Python of a spectrum of a part, in array pixels.
 * @type {(part: Part, picture: Picture, source: string) => string} */
export function spectrumLine({ top, left, height, width }, { pixel_size: size }, source) {
  const part = `[${top}:${top + height}, ${left}:${left + width}]`;
  return `pt.analysis.amplitude_spectrum(${[`${source}${part}`, pixelArgument(size)].filter(Boolean).join(", ")})`;
}

/** The line of Python that measures the same from values. source: the expression of the array.
 * @type {(measure: Measure, picture: Picture, source: string) => string} */
export function measureLine({ kind, start, stop, width = 1 }, picture, source) {
  // Pixels of pictures are counted from the corner of the first one, those of arrays from its centre.
  /** @type {(point: Ends) => string} */
  const place = (point) => `(${point.map((value) => Number((value - 0.5).toFixed(2))).join(", ")})`;
  const ends = `${place(start)}, ${place(stop)}`;
  const size = picture.pixel_size;
  const pixel = pixelArgument(size);
  if (kind === "ruler") {
    const sides = [0, 1].map((axis) => `${Number((stop[axis] - start[axis]).toFixed(2))}${size ? ` * ${metres(size[axis])}` : ""}`);
    return `np.hypot(${sides.join(", ")})`;
  }
  const call = kind === "profile" ? "line_profile" : "region_statistics";
  const more = kind === "profile" ? width > 1 && `width=${width}` : kind === "ellipse" && 'shape="ellipse"';
  return `pt.analysis.${call}(${[source, ends, more, pixel].filter(Boolean).join(", ")})`;
}
