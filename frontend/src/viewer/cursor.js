// The value under the cursor, in all panes whose arrays have the same shape, also those of viewers with the same link.

import { write } from "../elements.js";
import { lengthText } from "../numbers.js";
import { toScreen } from "./geometry.js";
import { periodAt } from "./spectrum.js";

/** @import { Board, Ends, Pane, Picture, Point } from "../types" */

const MOVED = "ptynb-cursor";
const ASK_MS = 60;

/** The element [y, x] of the array at a point of a picture; of a coarse axis it is a band of several pixels.
 * @type {(picture: Pick<Picture, "bands">, at: Point) => Ends} */
export function elementAt({ bands = [1, 1] }, at) {
  return [Math.floor(at.y / bands[0]), Math.floor(at.x / bands[1])];
}

/** An element by the names of the axes, 'y 12, x 30'; of a coarse axis with its length, 'z 3 (6 nm)'.
 * @type {(picture: Partial<Pick<Picture, "axes" | "bands" | "pixel_size">>, ...places: number[]) => string} */
export function placeText({ axes = ["y", "x"], bands = [1, 1], pixel_size: size }, ...places) {
  return places
    .map((place, axis) => {
      const length = bands[axis] > 1 && size ? ` (${place ? lengthText(place * bands[axis] * size[axis]) : 0})` : "";
      return `${axes[axis]} ${place}${length}`;
    })
    .join(", ");
}

export class Cursors {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** @type {number | undefined} */
    this.question = undefined;
    /** Where a value was told last.
     * @type {{ pane: Pane, name: string, y: number, x: number } | null} */
    this.told = null;
    this.linked = (/** @type {Event} */ event) => this.follow(/** @type {CustomEvent} */ (event).detail);
    window.addEventListener(MOVED, this.linked);
  }

  /** Sets the mouse position in a pane: a point of the screen, or null. live: politeness of the screen reader.
   * @type {(pane: Pane, point: Point | null, live: string) => void} */
  point(pane, point, live) {
    const before = pane.pointer;
    pane.pointer = point;
    pane.readout.setAttribute("aria-live", live);
    if (pane.brush) this.board.refresh(pane);
    this.tell(pane);
    if (!point && !before && !pane.cross) return;
    const at = point ? pane.under(point)?.at : pane.cross;
    const { shape } = pane.picture ?? {};
    const link = this.board.get("link");
    const detail = { pane, board: this.board, link, shape: String(shape), at: pane.spectrum || !at ? null : at };
    window.dispatchEvent(new CustomEvent(MOVED, { detail }));
  }

  /** Draws the cross of another pane, here or in a viewer with the same link.
   * @type {(moved: { pane: Pane, board: Board, link: string, shape: string, at: Point | null }) => void} */
  follow({ pane, board, link, shape, at }) {
    if (board !== this.board && (!link || link !== this.board.get("link"))) return;
    for (const other of this.board.panes.values()) {
      if (other === pane || other.empty || String(other.picture.shape) !== shape) continue;
      if (!at && !other.ghost) continue;
      other.ghost = at;
      if (!other.pointer) this.tell(other);
      this.board.refresh(other);
    }
  }

  /** Writes the value under the mouse, or else under the cross, or that of another pane.
   * @type {(pane: Pane) => void} */
  tell(pane) {
    if (pane.spectrum) return write(pane.readout, this.periodText(pane));
    const at = pane.cross ?? pane.ghost;
    const point = pane.pointer ?? (at && !pane.empty && toScreen(pane.place, at));
    const under = point && pane.under(point);
    const own = pane.pointer !== null || pane.cross !== null;
    if (own) clearTimeout(this.question);
    if (!under) return write(pane.readout, "");
    const { name, picture } = under.pane;
    const [y, x] = elementAt(picture, under.at);
    const same = this.told?.pane === pane && this.told.name === name && this.told.y === y && this.told.x === x;
    const exact = own && this.board.get("exact");
    if (!same || !exact) write(pane.readout, `${placeText(picture, y, x)}: ${under.pane.valueText(under.at)}`);
    if (!own) return undefined;
    this.told = { pane, name, y, x };
    if (!exact) return undefined;
    this.question = setTimeout(() => this.board.model.send({ kind: "value", name, y, x }), ASK_MS);
    return undefined;
  }

  /** @type {(pane: Pane) => string} */
  periodText({ pointer, room, spectrum, picture }) {
    const found = pointer && spectrum && periodAt(room, spectrum, picture.pixel_size, pointer);
    if (!found) return "";
    const period = found.length === null ? "" : `${lengthText(found.length)}, `;
    const angle = found.angle.toFixed(0).replace("-", "−");
    return `Period ${period}${Number(found.pixels.toPrecision(3))} px; ${angle}°. A click sets the ring.`;
  }

  /** @type {(answer: { kind: string, name: string, y: number, x: number, text: string }) => void} */
  answered({ kind, name, y, x, text }) {
    const { told } = this;
    if (kind !== "value" || told?.name !== name || told.y !== y || told.x !== x) return;
    const picture = this.board.panes.get(name)?.picture;
    if (picture && told.pane.readout.textContent) write(told.pane.readout, `${placeText(picture, y, x)}: ${text}`);
  }

  end() {
    clearTimeout(this.question);
    window.removeEventListener(MOVED, this.linked);
  }
}
