// The measurement of a viewer, which all its pictures of one shape show, and the spectra.

import { copyText } from "../elements.js";
import { within } from "../numbers.js";
import { measureLine, spectrumLine } from "./measures.js";
import { periodAt, spectrumOf } from "./spectrum.js";

/** @import { Board, Pane, Point, Spectrum } from "../types" */

const SPECTRUM_MS = 400;
/** Ratio of the pause after spectra to the time they take: 0.24 s for 970 x 968 pixels. */
const SPECTRUM_REST = 4;
const FEWEST_PERIODS = 4;

export class Measuring {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.width = 1;
    /** @type {number | undefined} */
    this.waiting = undefined;
    /** @type {Set<Pane>} */
    this.late = new Set();
  }

  // Measurement

  /** Draws a measurement between points of the array; done: the user has finished.
   * @type {(pane: Pane, from: Point, to: Point, done: boolean) => void} */
  draft(pane, from, to, done) {
    const inside = (/** @type {Point} */ { y, x }) => [within(y, 0, pane.extent.y), within(x, 0, pane.extent.x)].map((value) => Number(value.toFixed(3)));
    const measure = { kind: this.board.tool, picture: pane.name, start: inside(from), stop: inside(to), width: this.width };
    this.board.says("measure", measure);
    if (done) this.board.model.send({ kind: "line", name: pane.name, text: this.lineOf(pane) });
  }

  /** @type {(width: number) => void} */
  widen(width) {
    this.width = width;
    const measure = this.board.get("measure");
    if (measure.kind) this.board.says("measure", { ...measure, width });
  }

  /** Follows the trait, and the pictures: measures anew in all panes of the shape that was measured. */
  follow() {
    const measure = this.board.get("measure");
    if (measure.width) this.width = measure.width;
    const shape = String(this.board.panes.get(measure.picture)?.picture?.shape);
    for (const pane of this.board.panes.values()) {
      pane.measure = measure.kind && pane.picture && String(pane.picture.shape) === shape && !pane.spectrum ? measure : null;
      if (pane.picture) pane.measures.follow();
      pane.overlayDirty = true;
    }
  }

  /** @type {(pane: Pane) => string} */
  lineOf(pane) {
    const source = this.board.get("expressions")[pane.name] ?? "image";
    return measureLine(this.board.get("measure"), pane.picture, source);
  }

  // Spectra

  /** The line of Python of the spectrum in a pane.
   * @type {(pane: Pane) => string} */
  spectrumLineOf(pane) {
    const { part } = /** @type {Spectrum} */ (pane.spectrum);
    return spectrumLine(part, pane.picture, this.board.get("expressions")[pane.name] ?? "image");
  }

  /** Copies and tells the lines of all spectra.
   * @type {(place: Element) => void} */
  copySpectra(place) {
    const shown = [...this.board.panes.values()].filter((pane) => pane.spectrum);
    const lines = shown.map((pane) => this.spectrumLineOf(pane));
    copyText(lines.join("\n"), place);
    for (const text of lines) this.board.model.send({ kind: "line", name: shown[0].name, text });
  }

  get metric() {
    return [...this.board.panes.values()].some((pane) => pane.picture?.pixel_size);
  }

  /** Period of the ring [m, or array pixels]. */
  get resolution() {
    const sizes = [...this.board.panes.values()].map((pane) => pane.picture?.pixel_size).find(Boolean);
    return this.board.get("resolution") || FEWEST_PERIODS * (sizes ? Math.max(...sizes) : 1);
  }

  /** @type {(pane: Pane, point: Point) => void} */
  ring(pane, point) {
    const found = pane.spectrum && periodAt(pane.room, pane.spectrum, pane.picture.pixel_size, point);
    if (found) this.board.says("resolution", found.length ?? found.pixels);
  }

  /** Transforms what is visible, at most twice a second: it takes as long as many frames. */
  transform() {
    const on = this.board.get("spectrum");
    for (const pane of this.board.panes.values()) {
      if (!on || pane.empty) pane.spectrum = null;
      else this.late.add(pane);
      pane.dirty = pane.overlayDirty = true;
    }
    if (!on) {
      clearTimeout(this.waiting);
      this.waiting = undefined;
      this.late.clear();
    } else if (this.waiting === undefined && this.late.size) {
      this.transformLate();
    }
  }

  transformLate() {
    const begun = performance.now();
    const table = this.board.colouring.tables.magma ?? this.board.colouring.tables.gray;
    for (const pane of this.late) {
      if (pane.empty || pane.figure.hidden) continue;
      pane.spectrum = spectrumOf(pane, table, pane.spectrum);
      pane.nameSpectrum(table);
      pane.measure = null;
      pane.measures.follow();
      pane.dirty = true;
    }
    this.late.clear();
    this.encircle();
    this.waiting = setTimeout(() => {
      this.waiting = undefined;
      if (this.late.size) this.transformLate();
    }, Math.max(SPECTRUM_MS, SPECTRUM_REST * (performance.now() - begun)));
    this.board.schedule();
  }

  encircle() {
    const size = this.resolution;
    for (const pane of this.board.panes.values()) {
      pane.ring = { size, pixelSize: pane.picture?.pixel_size };
      pane.overlayDirty = true;
    }
  }

  end() {
    clearTimeout(this.waiting);
  }
}
