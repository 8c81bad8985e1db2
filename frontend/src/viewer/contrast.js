// Contrast of a picture: a histogram of its levels with two handles, the colour map, and a lock.

import { contextOf, make, press } from "../elements.js";
import { numberText, within } from "../numbers.js";
import { iconButton } from "./icons.js";
import { narrowed } from "./levels.js";

/** @import { Colouring, Ends, Pane } from "../types" */

const HANDLES = ["Lower", "Upper"];
const STRIP = 12;
const TALL = 44;
/** @type {Record<string, number>} */
const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -16, PageUp: 16 };

export class ContrastBox {
  /** colouring: limit(pane, values or null), map(pane, name).
   * @param {Pane} pane @param {Colouring} colouring */
  constructor(pane, colouring) {
    this.pane = pane;
    this.colouring = colouring;
    this.root = make("div", "ptynb-contrast", { hidden: true });
    this.stage = make("div", "ptynb-histogram");
    this.canvas = make("canvas", "", { width: 256, height: TALL });
    this.canvas.setAttribute("aria-hidden", "true");
    this.handles = HANDLES.map((end, index) => this.makeHandle(end, index));
    this.stage.append(this.canvas, ...this.handles);
    this.select = make("select", "ptynb-pane-colours");
    this.select.addEventListener("change", () => colouring.map(pane, this.select.value));
    this.lock = iconButton("lock", "Lock the limits: later pictures keep them", "", () => {
      colouring.limit(pane, this.locked ? null : this.ends);
    });
    this.row = make("div", "ptynb-contrast-row");
    this.row.append(this.select, this.lock);
    this.root.append(this.stage, this.row);
    /** Index of the handle that is dragged.
     * @type {number | null} */
    this.drag = null;
    /** @type {Ends} */
    this.ends = [0, 1];
    /** @type {Ends} */
    this.range = [0, 1];
    /** @type {Uint32Array} */
    this.colours = new Uint32Array(256);
    this.locked = false;
    this.state = "";
    this.stage.addEventListener("pointerdown", (event) => this.grab(event));
    this.stage.addEventListener("pointermove", (event) => {
      if (this.drag !== null) this.move(this.drag, this.valueAt(event));
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.stage.addEventListener(end, () => {
        this.drag = null;
      });
    }
  }

  /** @type {(end: string, index: number) => HTMLElement} */
  makeHandle(end, index) {
    const handle = make("div", "ptynb-handle", { tabIndex: 0 });
    handle.setAttribute("role", "slider");
    handle.addEventListener("keydown", (event) => {
      const [low, high] = this.range;
      const step = STEPS[event.key] === undefined ? null : STEPS[event.key] * (event.shiftKey ? 10 : 1);
      if (step === null && event.key !== "Home" && event.key !== "End") return;
      event.preventDefault();
      event.stopPropagation();
      const value = step === null ? this.range[event.key === "Home" ? 0 : 1] : this.ends[index] + (step * (high - low)) / 256;
      this.move(index, value);
    });
    handle.dataset.end = end;
    return handle;
  }

  /** Shows the state: contrast in levels, the colours of the levels, whether the limits are locked.
   * @type {(contrast: Ends, colours: Uint32Array, locked: boolean, cyclic: boolean) => void} */
  follow(contrast, colours, locked, cyclic) {
    const { title, unit } = this.pane.picture;
    const { limits } = this.pane;
    this.locked = locked;
    this.ends = narrowed(limits, contrast);
    this.colours = colours;
    this.range = [Math.min(limits[0], this.ends[0]), Math.max(limits[1], this.ends[1])];
    if (!this.root.hidden) this.draw();
    const state = `${limits} ${contrast} ${title} ${unit} ${locked} ${cyclic}`;
    if (state === this.state) return;
    this.state = state;
    press(this.lock, locked);
    this.stage.classList.toggle("ptynb-cyclic", cyclic);
    this.handles.forEach((handle, index) => {
      const text = `${numberText(this.ends[index], this.range)}${unit ? ` ${unit}` : ""}`;
      handle.hidden = cyclic;
      handle.style.left = `${100 * this.partOf(this.ends[index])}%`;
      handle.title = text;
      const [valuemin, valuemax] = this.range;
      const label = `${handle.dataset.end} limit of ${title}`;
      const said = { label, valuemin, valuemax, valuenow: this.ends[index], valuetext: text };
      for (const [key, value] of Object.entries(said)) {
        // Without an exponent, which ARIA does not have.
        const plain = typeof value === "number" && /e-/.test(String(value)) ? value.toFixed(12) : String(value);
        handle.setAttribute(`aria-${key}`, plain);
      }
    });
    this.lock.hidden = cyclic;
  }

  /** The histogram, by the square root of the counts, over the colours of the levels. */
  draw() {
    const { counts, limits } = this.pane;
    const context = contextOf(this.canvas);
    // A clipped level holds what lies beyond: it must not flatten the others.
    const most = Math.max(1, ...counts.subarray(1, 255));
    const edges = limits.map((value) => 256 * this.partOf(value));
    const wide = (edges[1] - edges[0]) / 256;
    context.clearRect(0, 0, 256, TALL);
    context.fillStyle = getComputedStyle(this.stage).color;
    for (let level = 0; level < 256; level += 1) {
      if (counts[level] === 0) continue;
      const tall = Math.max(1, (TALL - STRIP) * Math.min(1, Math.sqrt(counts[level] / most)));
      context.fillRect(edges[0] + level * wide, TALL - STRIP - tall, Math.max(wide, 1), tall);
    }
    const bytes = new Uint8Array(this.colours.buffer, this.colours.byteOffset, 1024);
    for (let x = 0; x < 256; x += 1) {
      const level = Math.round(within((255 * (x - edges[0])) / (edges[1] - edges[0]), 0, 255));
      context.fillStyle = `rgb(${bytes[4 * level]}, ${bytes[4 * level + 1]}, ${bytes[4 * level + 2]})`;
      context.fillRect(x, TALL - STRIP + 2, 1, STRIP - 2);
    }
  }

  /** @type {(value: number) => number} */
  partOf(value) {
    return (value - this.range[0]) / (this.range[1] - this.range[0]);
  }

  /** @type {(event: PointerEvent) => number} */
  valueAt(event) {
    const box = this.stage.getBoundingClientRect();
    return this.range[0] + within((event.clientX - box.left) / box.width, 0, 1) * (this.range[1] - this.range[0]);
  }

  /** @type {(event: PointerEvent) => void} */
  grab(event) {
    if (event.button !== 0 || this.handles[0].hidden) return;
    const value = this.valueAt(event);
    const middle = (this.ends[0] + this.ends[1]) / 2;
    this.drag = value < middle ? 0 : 1;
    this.stage.setPointerCapture(event.pointerId);
    this.handles[this.drag].focus();
    event.preventDefault();
    this.move(this.drag, value);
  }

  /** Moves one limit, at least a level away from the other.
   * @type {(index: number, value: number) => void} */
  move(index, value) {
    const step = (this.range[1] - this.range[0]) / 256;
    /** @type {Ends} */
    const ends = [...this.ends];
    ends[index] = index === 0 ? within(value, this.range[0], ends[1] - step) : within(value, ends[0] + step, this.range[1]);
    this.ends = ends; // the next move of this frame starts here
    this.colouring.limit(this.pane, ends);
  }
}
