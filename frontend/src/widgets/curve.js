// Interactive curves: zoom along the x axis, a cursor with the values, marks at changes of settings.

import { button, drawn, make, write } from "../elements.js";
import { readNumber, shortNumber, within } from "../numbers.js";
import { offerFile } from "../viewer/saving.js";

/** @import { CurveLine, CurveSpec, Ends, Point } from "../types" */

const INK = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9"];
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "5 2 1 2 1 2"];
const EDGE = { left: 64, right: 14, top: 22, bottom: 40 };
const NARROW = { left: 52, right: 12, top: 8, bottom: 38 };
/** Least height of a line of text, and most points of a line that a screen resolves. */
const LINE_HEIGHT = 16;
const MOST_POINTS = 1500;

/** Returns about `count` round numbers between two numbers.
 * @type {(low: number, high: number, count: number) => number[]} */
export function roundTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * (1 - 1e-9)) ?? 10);
  /** @type {number[]} */
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) ticks.push(at * step);
  return ticks;
}

/** Returns 1, 2 and 5 times powers of ten between two numbers; only powers if they are far apart.
 * @type {(low: number, high: number) => number[]} */
export function decadeTicks(low, high) {
  const steps = high / low < 1000 ? [1, 2, 5] : [1];
  /** @type {number[]} */
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const step of steps) ticks.push(Number(`${step}e${power}`));
  }
  const inside = ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
  const every = Math.ceil(inside.length / 9);
  return inside.filter((_, index) => index % every === 0);
}

export class Curve {
  /** small: without tools, and with the legend and the values at the cursor over the curve.
   * @param {HTMLElement} element @param {CurveSpec} spec @param {boolean} small */
  constructor(element, spec, small = false) {
    this.spec = spec;
    this.small = small;
    this.edge = small ? NARROW : EDGE;
    this.axis = 0;
    this.log = spec.log;
    /** The part of the x axis that is shown; null: all of it.
     * @type {Ends | null} */
    this.span = null;
    /** @type {number | null} */
    this.cursor = null;
    /** @type {{ from: number, to?: number } | null} */
    this.drag = null;
    this.size = { width: 0, height: 0 };
    // Until it is drawn:
    this.toX = (/** @type {number} */ x) => x;
    this.fromX = (/** @type {number} */ at) => at;
    this.toY = (/** @type {number} */ y) => y;
    this.over = drawn("g", {});
    this.root = element;
    this.stage = make("div", "ptynb-curve-stage", { tabIndex: 0 });
    this.stage.setAttribute("role", "application");
    this.stage.setAttribute("aria-roledescription", "curve to read");
    this.stage.setAttribute("aria-label", spec.title);
    this.stage.setAttribute("aria-description", "Arrow keys read values, plus and minus zoom, 0 shows all of it.");
    this.svg = drawn("svg", { role: "img", "aria-label": spec.title });
    this.stage.append(this.svg);
    this.readout = make("output", "ptynb-curve-readout");
    this.legend = make("ul", "ptynb-curve-legend");
    this.explain();
    element.classList.toggle("ptynb-curve-small", small);
    element.append(...(small ? [] : [this.makeTools()]), this.legend, this.stage, this.readout);
    this.listen();
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.stage);
    this.draw();
  }

  /** Shows other values, at the zoom and the cursor that were chosen; axis: over which of the axes.
   * @type {(spec: CurveSpec, axis?: number) => void} */
  update(spec, axis = this.axis) {
    if (axis !== this.axis) this.span = this.cursor = null;
    this.spec = spec;
    this.axis = axis;
    this.stage.setAttribute("aria-label", spec.title);
    this.svg.setAttribute("aria-label", spec.title);
    this.explain();
    this.draw();
  }

  end() {
    this.sizes.disconnect();
    this.root.replaceChildren();
  }

  makeTools() {
    const row = make("div", "ptynb-curve-tools");
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", `Tools of: ${this.spec.title}`);
    if (this.spec.axes.length > 1) {
      const over = make("label", "ptynb-tool");
      const select = make("select");
      select.setAttribute("aria-label", "over");
      select.append(...this.spec.axes.map((title, index) => new Option(title, String(index))));
      select.addEventListener("change", () => {
        this.axis = Number(select.value);
        this.span = this.cursor = null;
        this.draw();
      });
      over.append(make("span", "", { textContent: "over" }), select);
      row.append(over);
    }
    if (this.spec.log) {
      const label = make("label", "ptynb-tool");
      const box = make("input", "", { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        this.log = box.checked;
        this.draw();
      });
      label.append(box, make("span", "", { textContent: "logarithmic" }));
      row.append(label);
    }
    row.append(
      button("−", "Zoom out of the curve", () => this.zoom(1.6)),
      button("+", "Zoom into the curve", () => this.zoom(1 / 1.6)),
      button("Whole curve", "Show the whole curve", () => this.look(null)),
      button("Save values (CSV)", "Save the values as a table", () => this.save()),
    );
    return row;
  }

  /** Writes the legend, with a sample of each line. */
  explain() {
    const { lines, marks, marked } = this.spec;
    const entries = lines.map((line, number) => {
      const entry = make("li");
      const sample = drawn("svg", { viewBox: "0 0 30 8", width: 30, height: 8, "aria-hidden": "true" });
      sample.append(drawn("line", { x1: 0, y1: 4, x2: 30, y2: 4, ...this.looks(line, number) }));
      entry.append(sample, make("span", "", { textContent: line.name }));
      return entry;
    });
    if (marks.length && marked) entries.push(make("li", "", { textContent: `┊ ${marked}` }));
    this.legend.replaceChildren(...entries);
  }

  /** @type {(line: CurveLine, number: number) => Record<string, string | number>} */
  looks(line, number) {
    if (line.faint) return { class: "ptynb-curve-faint", "stroke-dasharray": "4 3" };
    return { stroke: INK[number % INK.length], "stroke-width": 2, "stroke-dasharray": DASHES[number % DASHES.length] };
  }

  // Coordinates

  /** @type {(line: CurveLine) => Point[]} */
  points(line) {
    return line.x[this.axis].flatMap((x, index) => {
      const y = line.y[index];
      return x === null || y === null || (this.log && y <= 0) ? [] : [{ x, y }];
    });
  }

  /** @returns {Ends} */
  get whole() {
    const all = this.spec.lines.flatMap((line) => this.points(line).map(({ x }) => x));
    if (!all.length) return [0, 1];
    let [low, high] = [Infinity, -Infinity];
    for (const x of all) [low, high] = [Math.min(low, x), Math.max(high, x)];
    return high > low ? [low, high] : [low - 0.5, high + 0.5];
  }

  /** @type {(seen: Point[][]) => Ends} */
  heights(seen) {
    let [low, high] = [Infinity, -Infinity];
    for (const points of seen) for (const { y } of points) [low, high] = [Math.min(low, y), Math.max(high, y)];
    if (low > high) return [this.log ? 0.1 : 0, 1];
    if (this.log) return low < high ? [low / 1.15, high * 1.15] : [low / 2, high * 2];
    const room = 0.05 * (high - low || Math.abs(high) || 1);
    return [this.spec.lowest ?? low - room, this.spec.highest ?? high + room];
  }

  // Drawing

  /** Draws everything, in the size of the stage or in the requested size. */
  draw({ width, height } = { width: this.stage.clientWidth, height: this.stage.clientHeight }) {
    if (!width || !height) return;
    this.size = { width, height };
    const [from, to] = this.span ?? this.whole;
    const slack = (to - from) * 1e-9;
    const seen = this.spec.lines.map((line) => this.points(line).filter(({ x }) => x >= from - slack && x <= to + slack));
    if (!seen.some((points) => points.length)) {
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const text = this.spec.empty ?? "nothing to draw yet";
      this.svg.replaceChildren(drawn("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, text));
      return;
    }
    const [low, high] = this.heights(seen);
    const scale = this.log ? Math.log10 : (/** @type {number} */ value) => value;
    const [inner, tall] = [width - this.edge.left - this.edge.right, height - this.edge.top - this.edge.bottom];
    this.toX = (/** @type {number} */ x) => this.edge.left + ((x - from) / (to - from)) * inner;
    this.fromX = (/** @type {number} */ at) => from + ((at - this.edge.left) / inner) * (to - from);
    this.toY = (/** @type {number} */ y) => this.edge.top + (1 - (scale(y) - scale(low)) / (scale(high) - scale(low))) * tall;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const bottom = height - this.edge.bottom;
    const parts = this.grid({ from, to, low, high, width, bottom });
    parts.push(...this.marks(bottom));
    seen.forEach((points, number) => parts.push(...this.line(points, number)));
    this.svg.replaceChildren(...parts, this.over);
    this.point();
  }

  /** @type {(shown: { from: number, to: number, low: number, high: number, width: number, bottom: number }) => SVGElement[]} */
  grid({ from, to, low, high, width, bottom }) {
    /** @type {SVGElement[]} */
    const parts = [];
    const [title, tall] = [this.spec.axes[this.axis], bottom - this.edge.top];
    const heights = this.log ? decadeTicks(low, high) : roundTicks(low, high, 5);
    const every = Math.ceil((heights.length * LINE_HEIGHT) / Math.max(tall, LINE_HEIGHT));
    for (const tick of heights.filter((_, index) => index % every === 0)) {
      const y = this.toY(tick);
      parts.push(drawn("line", { class: "ptynb-curve-grid", x1: this.edge.left, y1: y, x2: width - this.edge.right, y2: y }));
      parts.push(drawn("text", { x: this.edge.left - 7, y: y + 4, "text-anchor": "end" }, shortNumber(tick)));
    }
    for (const tick of roundTicks(from, to, Math.max(2, width / 110))) {
      if (title === "epoch" && !Number.isInteger(tick)) continue;
      const x = this.toX(tick);
      parts.push(drawn("line", { class: "ptynb-curve-grid", x1: x, y1: this.edge.top, x2: x, y2: bottom }));
      parts.push(drawn("text", { x, y: bottom + 16, "text-anchor": "middle" }, shortNumber(tick)));
    }
    const middle = (this.edge.left + width - this.edge.right) / 2;
    parts.push(drawn("text", { x: middle, y: bottom + 34, "text-anchor": "middle" }, title));
    parts.push(drawn("rect", { class: "ptynb-curve-frame", x: this.edge.left, y: this.edge.top, width: width - this.edge.left - this.edge.right, height: bottom - this.edge.top }));
    return parts;
  }

  /** @type {(bottom: number) => SVGElement[]} */
  marks(bottom) {
    const [from, to] = this.span ?? this.whole;
    let last = -Infinity;
    return this.spec.marks.flatMap(({ x, text }) => {
      const at = this.toX(Math.min(Math.max(x[this.axis], this.whole[0]), this.whole[1]));
      if (at < this.toX(from) - 1 || at > this.toX(to) + 1) return [];
      const line = drawn("line", { class: "ptynb-curve-mark", x1: at, y1: this.edge.top, x2: at, y2: bottom });
      if (!text || at - last < 14) return [line];
      last = at;
      return [line, drawn("text", { x: at, y: this.edge.top - 6, "text-anchor": "middle" }, text)];
    });
  }

  /** @type {(points: Point[], number: number) => SVGElement[]} */
  line(points, number) {
    if (!points.length) return [];
    const look = this.looks(this.spec.lines[number], number);
    const each = Math.ceil(points.length / MOST_POINTS);
    const thinned = points.filter((_, index) => index % each === 0 || index === points.length - 1);
    const path = thinned.map(({ x, y }) => `${this.toX(x).toFixed(1)},${this.toY(y).toFixed(1)}`).join(" ");
    const parts = [drawn("polyline", { points: path, fill: "none", ...look })];
    const few = points.length <= 30 && !this.spec.lines[number].faint;
    for (const { x, y } of few && !this.small ? points : points.slice(-1)) {
      if (this.spec.lines[number].faint) break;
      parts.push(drawn("circle", { cx: this.toX(x), cy: this.toY(y), r: 2.5, fill: String(look.stroke) }));
    }
    return parts;
  }

  /** Draws the cursor, and writes the values at it. */
  point() {
    this.over.replaceChildren();
    if (this.drag?.to !== undefined) {
      const [left, right] = [this.drag.from, this.drag.to].sort((one, other) => one - other);
      const height = this.size.height - this.edge.top - this.edge.bottom;
      this.over.append(drawn("rect", { class: "ptynb-curve-drag", x: left, y: this.edge.top, width: right - left, height }));
    }
    if (this.cursor === null) return write(this.readout, "");
    const { cursor } = this;
    const near = this.spec.lines.map((line) => this.nearest(line, cursor));
    const first = near.find((found) => found !== null);
    if (!first) return write(this.readout, "");
    const x = this.toX(first.x);
    const bottom = this.size.height - this.edge.bottom;
    this.over.append(drawn("line", { class: "ptynb-curve-cursor", x1: x, y1: this.edge.top, x2: x, y2: bottom }));
    const told = [`${this.spec.axes[this.axis]} ${readNumber(first.x)}`];
    near.forEach((found, number) => {
      if (found === null) return;
      this.over.append(drawn("circle", { class: "ptynb-curve-spot", cx: this.toX(found.x), cy: this.toY(found.y), r: 4 }));
      const elsewhere = found.x === first.x ? "" : ` (at ${readNumber(found.x)})`;
      told.push(`${this.spec.lines[number].name} ${readNumber(found.y)}${elsewhere}`);
    });
    return write(this.readout, told.join(" · "));
  }

  /** @type {(line: CurveLine, x: number) => Point | null} */
  nearest(line, x) {
    const [from, to] = this.span ?? this.whole;
    const inside = this.points(line).filter((point) => point.x >= from && point.x <= to);
    const far = (/** @type {Point} */ point) => Math.abs(point.x - x);
    return inside.length ? inside.reduce((best, point) => (far(point) < far(best) ? point : best)) : null;
  }

  // Zoom

  /** @type {(span: Ends | null) => void} */
  look(span) {
    const [low, high] = this.whole;
    const least = (high - low) / 1000;
    if (span === null || span[1] - span[0] >= high - low) {
      this.span = null;
    } else if (span[1] - span[0] > least) {
      const shift = Math.max(low - span[0], 0) + Math.min(high - span[1], 0);
      this.span = [span[0] + shift, span[1] + shift];
    }
    this.draw();
  }

  /** @type {(factor: number) => void} */
  zoom(factor) {
    const [from, to] = this.span ?? this.whole;
    const about = this.cursor === null ? (from + to) / 2 : within(this.cursor, from, to);
    this.look([about - (about - from) * factor, about + (to - about) * factor]);
  }

  listen() {
    const { stage } = this;
    const at = (/** @type {PointerEvent} */ event) => event.clientX - stage.getBoundingClientRect().left;
    stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      stage.setPointerCapture(event.pointerId);
      this.drag = { from: at(event) };
    });
    stage.addEventListener("pointermove", (event) => {
      if (!this.size.width) return;
      if (this.drag && Math.abs(at(event) - this.drag.from) > 6) this.drag.to = at(event);
      this.readout.setAttribute("aria-live", "off");
      this.cursor = this.fromX(at(event));
      this.point();
    });
    stage.addEventListener("pointerup", () => {
      const { drag } = this;
      this.drag = null;
      if (drag?.to === undefined) return;
      const [from, to] = [drag.from, drag.to].sort((one, other) => one - other);
      this.look([this.fromX(from), this.fromX(to)]);
    });
    stage.addEventListener("pointercancel", () => {
      this.drag = null;
    });
    stage.addEventListener("pointerleave", () => {
      this.cursor = null;
      this.point();
    });
    stage.addEventListener("dblclick", () => this.look(null));
    stage.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.pressed(event.key)) return;
      event.preventDefault();
    });
  }

  /** @type {(key: string) => boolean} */
  pressed(key) {
    if (["+", "="].includes(key)) this.zoom(1 / 1.6);
    else if (["-", "_"].includes(key)) this.zoom(1.6);
    else if (key === "0") this.look(null);
    else if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) this.step(key);
    else return false;
    return true;
  }

  /** Moves the cursor to a neighbouring point, and scrolls the curve so that it is visible.
   * @type {(key: string) => void} */
  step(key) {
    const line = this.spec.lines.find((one) => this.points(one).length);
    if (!line) return;
    const places = this.points(line).map(({ x }) => x);
    const near = this.cursor === null ? null : this.nearest(line, this.cursor);
    const now = places.findIndex((x) => x === near?.x);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: places.length - 1 }[key] ?? 0;
    const cursor = places[within(next, 0, places.length - 1)];
    this.cursor = cursor;
    this.readout.setAttribute("aria-live", "polite");
    const [from, to] = this.span ?? this.whole;
    if (cursor < from || cursor > to) this.look([cursor - (to - from) / 2, cursor + (to - from) / 2]);
    this.point();
  }

  save() {
    const quoted = (/** @type {string} */ text) => `"${String(text).replaceAll('"', '""')}"`;
    /** @type {(string | number)[][]} */
    const rows = [["curve", ...this.spec.axes, "value"].map(quoted)];
    for (const line of this.spec.lines) {
      line.y.forEach((y, index) => rows.push([quoted(line.name), ...line.x.map((places) => places[index] ?? ""), y ?? ""]));
    }
    offerFile(new Blob([rows.map((row) => `${row.join(",")}\r\n`).join("")], { type: "text/csv" }), `${this.spec.file}.csv`);
  }
}
