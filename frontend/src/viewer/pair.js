// Two pictures in one pane: with a slider between them, in turn (flicker), or their difference.

import { contextOf, make, write } from "../elements.js";
import { numberText, within } from "../numbers.js";

/** @import { Board, Grid, Pane } from "../types" */

export const PAIRINGS = { swipe: "Slider", flicker: "Flicker", difference: "Difference" };
const FLICKER_MS = 500;
export const DIVERGING = "PuOr";

export class Pairing {
  /** board: get, says, panes, schedule, tables.
   * @param {Board} board */
  constructor(board) {
    this.board = board;
    this.label = make("label", "ptynb-swipe");
    this.text = make("span", "ptynb-pane-note");
    this.input = make("input", "", { type: "range", min: 0, max: 1, step: 0.005 });
    this.input.addEventListener("input", () => board.says("swipe_at", this.input.valueAsNumber));
    this.label.append(this.input, this.text);
    /** @type {Pane | null} */
    this.left = null;
    /** @type {Pane | null} */
    this.right = null;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {Float32Array | null} */
    this.values = null;
    /** @type {HTMLCanvasElement | null} */
    this.source = null;
    this.turn = false;
  }

  /** Follows the traits.
   * @type {() => void} */
  follow() {
    const { board } = this;
    const [left, right] = board.get("swipe").map((/** @type {string} */ name) => board.panes.get(name));
    if (!left || !right || !left.picture || !right.picture) return this.end();
    if (this.left !== left || this.right !== right) {
      this.end();
      left.heads.append(right.head);
      left.feet.append(right.base);
      left.stage.after(this.label);
      right.figure.hidden = true;
      [this.left, this.right] = [left, right];
    }
    const how = board.get("pairing");
    this.input.hidden = how !== "swipe";
    this.input.value = board.get("swipe_at");
    const titles = [left.picture.title, right.picture.title];
    left.difference = null;
    left.feet.hidden = how === "difference";
    left.beside = { pane: right, at: how === "flicker" ? Number(this.turn) : board.get("swipe_at") };
    if (how === "difference") this.subtract(left, right, titles);
    else write(this.text, titles.join(" | "));
    this.blink(how === "flicker");
    for (const pane of [left, right]) pane.head.classList.remove("ptynb-faint");
    if (how === "flicker") (this.turn ? right : left).head.classList.add("ptynb-faint");
    left.dirty = left.overlayDirty = true;
    return board.schedule();
  }

  /** @type {(on: boolean) => void} */
  blink(on) {
    if (on === (this.timer !== undefined)) return;
    clearInterval(this.timer);
    const slow = window.matchMedia("(prefers-reduced-motion: reduce)").matches ? 4 : 1;
    this.timer = on ? setInterval(() => this.change(), FLICKER_MS * slow) : undefined;
  }

  change() {
    this.turn = !this.turn;
    this.follow();
  }

  /** Draws left minus right, from the levels, with 0 in the middle of diverging colours.
   * @type {(left: Pane, right: Pane, titles: string[]) => void} */
  subtract(left, right, titles) {
    left.beside = null;
    const same = left.source.width === right.source.width && left.source.height === right.source.height;
    if (!same || !left.picture.limits || !right.picture.limits || left.picture.unit !== right.picture.unit) {
      return write(this.text, "A difference needs two pictures of real values with one unit and equally many pixels.");
    }
    const { values, most } = differenceOf(left.grid, right.grid, this.values);
    this.values = values; // an array of the same size is used again
    const table = this.board.tables[DIVERGING] ?? this.board.tables.gray;
    const source = (this.source ??= document.createElement("canvas"));
    Object.assign(source, { width: left.source.width, height: left.source.height });
    const context = contextOf(source);
    const image = context.createImageData(source.width, source.height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let index = 0; index < values.length; index += 1) {
      pixels[index] = table[Math.round(127.5 * (1 + within(values[index] / most, -1, 1)))];
    }
    context.putImageData(image, 0, 0);
    const limits = [-most, most].map((value) => numberText(value, [-most, most]));
    const unit = left.picture.unit ? ` ${left.picture.unit}` : "";
    const title = titles.join(" − ");
    const colours = `orange ${limits[0]}, white 0, purple ${limits[1]}${unit}`;
    left.difference = { source, extent: left.extent, most, minus: right.name, title, colours };
    return write(this.text, `${title}: ${colours}`);
  }

  end() {
    this.blink(false);
    const { left, right } = this;
    if (!left || !right) return;
    right.heads.append(right.head);
    right.feet.append(right.base);
    right.figure.hidden = false;
    this.label.remove();
    left.feet.hidden = false;
    for (const pane of [left, right]) pane.head.classList.remove("ptynb-faint");
    left.beside = left.difference = null;
    this.left = this.right = this.values = null;
    left.dirty = left.overlayDirty = right.dirty = right.overlayDirty = true;
    this.board.schedule();
  }
}

/** {values, most}: one grid minus another of the same size, and the magnitude that gets the ends of the colours.
 * @type {(one: Grid, other: Grid, before?: Float32Array | null) => { values: Float32Array, most: number }} */
export function differenceOf(one, other, before) {
  const count = one.levels.length;
  const values = before?.length === count ? before : new Float32Array(count);
  for (let index = 0; index < count; index += 1) {
    values[index] = one.values[one.levels[index]] - other.values[other.levels[index]];
  }
  return { values, most: largestOf(values) || (one.limits[1] - one.limits[0]) / 255 };
}

/** The magnitude that one value in 200 exceeds, of a sample.
 * @type {(values: Float32Array) => number} */
function largestOf(values) {
  const step = Math.max(1, Math.floor(values.length / 20000));
  const sample = Float32Array.from({ length: Math.ceil(values.length / step) }, (_, index) => Math.abs(values[index * step])).sort();
  return sample[Math.floor(0.995 * (sample.length - 1))];
}

/** Names of the first two pictures of one kind, else of the first two.
 * @type {(panes: Pane[]) => string[]} */
export function alikeNames(panes) {
  const kinds = panes.map((pane) => pane.picture && pane.kind);
  const first = kinds.findIndex((kind, index) => kind && kinds.indexOf(kind, index + 1) > 0);
  const pair = first < 0 ? panes.slice(0, 2) : [panes[first], panes[kinds.indexOf(kinds[first], first + 1)]];
  return pair.map(({ name }) => name);
}
