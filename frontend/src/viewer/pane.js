// One pane: a picture, its overlay, and the text around it.

import { contextOf, describe, make, write } from "../elements.js";
import { numberText, within } from "../numbers.js";
import { ContrastBox } from "./contrast.js";
import { placed, scaleBarOf, toArray, WHOLE } from "./geometry.js";
import { drawScaled, Layer } from "./layer.js";
import { levelsAt, narrowed, stretched } from "./levels.js";
import { MeasureBox } from "./measure_box.js";
import { drawMeasure } from "./measures.js";
import {
  drawBrush,
  drawCross,
  drawCrosshair,
  drawDivider,
  drawLabel,
  drawMarks,
  drawScaleBar,
  drawStrokes,
} from "./overlay.js";
import { visibleRegion } from "./region.js";
import { drawRing, drawSpectrum } from "./spectrum.js";

/** @import { Aim, Beside, Board, Context, Contrast, Difference, Ends, Marks, Measure, Picture, Point, Region, Ring, Source, Spectrum, Stroke } from "../types" */

export const KEYS =
  "Arrow keys move the picture, plus and minus zoom, 0 shows all of it. " +
  "Shift and arrow keys move a cross, Enter clicks there, Escape takes it away. A crosshair is moved by them directly.";

export class Pane {
  /** @param {string} name @param {Board} board */
  constructor(name, board) {
    this.name = name;
    this.figure = make("figure", "ptynb-pane");
    this.figure.dataset.name = name;
    this.heads = make("div", "ptynb-pane-row");
    this.head = make("div", "ptynb-pane-head");
    this.title = make("span", "ptynb-pane-title");
    this.head.append(this.title);
    this.heads.append(this.head);
    this.stage = make("div", "ptynb-pane-stage", { tabIndex: 0 });
    this.stage.setAttribute("role", "application");
    this.stage.setAttribute("aria-roledescription", "picture to explore");
    this.stage.setAttribute("aria-description", KEYS);
    this.canvas = make("canvas", "ptynb-pane-picture");
    this.canvas.setAttribute("role", "img");
    this.overlay = make("canvas", "ptynb-pane-overlay");
    this.overlay.setAttribute("aria-hidden", "true");
    this.stage.append(this.canvas, this.overlay);
    this.feet = make("div", "ptynb-pane-row");
    this.base = make("div", "ptynb-pane-base");
    this.foot = make("div", "ptynb-pane-foot");
    this.low = make("span", "ptynb-pane-limit");
    this.bar = make("canvas", "ptynb-pane-bar", { width: 256, height: 1 });
    this.bar.setAttribute("aria-hidden", "true");
    this.high = make("span", "ptynb-pane-limit");
    this.wheel = make("span", "ptynb-pane-wheel");
    this.wheel.setAttribute("aria-hidden", "true");
    this.legend = make("span", "", { textContent: "hue: phase, brightness: amplitude" });
    this.foot.append(this.low, this.bar, this.high, this.wheel, this.legend);
    this.contrast = new ContrastBox(this, board.colouring);
    this.base.append(this.foot, this.contrast.root);
    this.feet.append(this.base);
    this.readout = make("output", "ptynb-pane-readout");
    this.measures = new MeasureBox(this, board.measuring);
    this.note = make("div", "ptynb-pane-note");
    this.figure.append(this.heads, this.stage, this.feet, this.readout, this.measures.root, this.note);

    this.whole = new Layer();
    /** A part of the picture with more pixels, while the user looks closer.
     * @type {Layer | null} */
    this.part = null;
    this.room = { width: 0, height: 0 };
    this.view = WHOLE;
    /** @type {Marks} */
    this.marks = {};
    /** @type {Stroke[]} */
    this.strokes = [];
    this.dirty = this.overlayDirty = true;
    /** The mouse, on the screen.
     * @type {Point | null} */
    this.pointer = null;
    /** The cross, in the array.
     * @type {Point | null} */
    this.cross = null;
    /** The cursor of another pane, in the array.
     * @type {Point | null} */
    this.ghost = null;
    /** The first end of a measurement by keys, in the array.
     * @type {Point | null} */
    this.anchor = null;
    /** @type {number | null} */
    this.brush = null;
    /** @type {Beside | null} */
    this.beside = null;
    /** @type {Measure | null} */
    this.measure = null;
    /** @type {Spectrum | null} */
    this.spectrum = null;
    /** @type {Ring} */
    this.ring = { size: 1 };
    /** @type {Difference | null} */
    this.difference = null;
    /** @type {Aim | null} */
    this.aim = null;
    this.colouring = this.laid = this.label = this.problem = this.coloursOf = "";
    /** @type {Uint32Array} */
    this.colours = new Uint32Array(256);
    /** @type {Uint32Array | null} */
    this.barTable = null;
    /** @type {Uint32Array | null} */
    this.colourTable = null;
    /** @type {Ends} */
    this.ends = [0, 1];
    this.partColours = this.colours;
    this.cyclic = false;
  }

  /** Of all of the array.
   * @returns {Picture} */
  get picture() {
    return this.whole.picture;
  }

  get source() {
    return this.whole.source;
  }

  get shading() {
    return this.whole.shading;
  }

  /** The ends of the picture's levels; of real pictures only. */
  get limits() {
    return /** @type {Ends} */ (this.picture.limits);
  }

  /** Grey levels of all pixels, and how many pixels have each. */
  get levels() {
    return this.shading.levels;
  }

  get counts() {
    return this.shading.counts;
  }

  get extent() {
    return this.whole.extent;
  }

  get place() {
    return placed(this.view, this.room, this.extent);
  }

  get empty() {
    return this.picture === null || this.source.width === 0 || this.room.width === 0;
  }

  /** Sets the picture, and its file as it was decoded, which belongs to the pane from then on.
   * @type {(picture: Picture, source: Source | null) => void} */
  take(picture, source) {
    const before = this.picture;
    this.whole.take(picture, source);
    this.problem = source === null ? "This picture could not be decoded." : "";
    this.colouring = "";
    this.dirty = true;
    // The overlay is drawn again only if something in it moves: each canvas that changes is painted anew.
    const laid = `${this.source.width} ${this.source.height} ${picture.reduction} ${picture.pixel_size}`;
    if (laid !== this.laid || this.strokes.length) this.overlayDirty = true;
    this.laid = laid;
    this.strokes = [];
    write(this.title, picture.title);
    if (this.title.title !== picture.title) this.title.title = picture.title; // of which a narrow pane shows the beginning
    write(this.note, this.problem || picture.note);
    if (!before || String(before.shape) !== String(picture.shape)) {
      this.removePart();
      const aspect = this.source.height ? this.source.width / this.source.height : 1;
      this.figure.style.setProperty("--ptynb-aspect", String(within(aspect, 0.4, 8)));
    }
  }

  /** Shows a part of the array from a corner on with more pixels.
   * @type {(picture: Picture, source: Source, corner: Point) => void} */
  showPart(picture, source, corner) {
    this.part ??= new Layer();
    this.part.take(picture, source, corner);
    this.colouring = "";
    this.dirty = true;
  }

  /** Shows the picture alone again. */
  removePart() {
    if (!this.part) return;
    this.part.end();
    this.part = null;
    this.dirty = true;
  }

  /** The layer with the most pixels that shows all of a part of the array.
   * @type {(region: Region) => Layer} */
  finestLayer(region) {
    return this.part?.covers(region) ? this.part : this.whole;
  }

  /** Takes the colours of the levels, by the table of a map. how: {contrast: levels of its ends, locked, cyclic}.
   * @type {(map: string, table: Uint32Array, how: Contrast) => void} */
  colour(map, table, { contrast, locked, cyclic }) {
    const { picture } = this;
    const real = picture.limits && this.source.width > 0;
    const key = `${map} ${contrast}`;
    if (real && key !== this.colouring) {
      if (key !== this.coloursOf || table !== this.colourTable) this.colours = stretched(table, contrast);
      [this.coloursOf, this.colourTable, this.colouring] = [key, table, key];
      // By their values: the limits of a picture that came earlier may be others.
      const limits = this.part?.picture.limits;
      if (limits) this.partColours = stretched(table, levelsAt(limits, narrowed(this.limits, contrast)));
      this.cyclic = cyclic;
      this.dirty = true;
    }
    if (this.spectrum) return;
    this.foot.classList.toggle("ptynb-complex", !picture.limits);
    if (!real) {
      describe(this.canvas, "label", `${picture.title}, hue is phase, brightness is amplitude`);
      return;
    }
    this.drawBar(table);
    const ends = narrowed(this.limits, contrast);
    const [low, high] = ends.map((value) => numberText(value, ends));
    const unit = picture.unit ? ` ${picture.unit}` : "";
    write(this.low, low);
    write(this.high, `${high}${unit}`);
    describe(this.canvas, "label", `${picture.title}, ${low} to ${high}${unit}`);
    this.ends = ends;
    this.contrast.follow(contrast, this.colours, locked, cyclic);
  }

  /** @type {(table: Uint32Array) => void} */
  drawBar(table) {
    if (this.barTable === table) return;
    this.barTable = table;
    contextOf(this.bar).putImageData(new ImageData(new Uint8ClampedArray(table.slice().buffer), 256, 1), 0, 0);
  }

  /** The foot of a spectrum; that of the picture comes back with its colours. The lowest level is `DECADES` below the highest.
   * @type {(table: Uint32Array) => void} */
  nameSpectrum(table) {
    this.foot.classList.remove("ptynb-complex");
    this.drawBar(table);
    write(this.low, "10⁻⁴");
    write(this.high, "1, of the largest amplitude");
    describe(this.canvas, "label", `${this.picture.title}, spectrum of the visible part, logarithmic`);
  }

  /** Follows the size of the stage.
   * @type {(width: number, height: number) => void} */
  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    this.room = { width, height };
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.dirty = this.overlayDirty = true;
  }

  /** @type {(canvas: HTMLCanvasElement) => Context} */
  start(canvas) {
    const context = contextOf(canvas);
    context.setTransform(canvas.width / this.room.width, 0, 0, canvas.height / this.room.height, 0, 0);
    context.clearRect(0, 0, this.room.width, this.room.height);
    return context;
  }

  /** Draws what has changed. */
  draw() {
    if (this.empty || this.figure.hidden) return;
    if (this.dirty) this.drawStage(this.start(this.canvas));
    if (this.overlayDirty) this.drawOver(this.start(this.overlay));
    this.dirty = this.overlayDirty = false;
  }

  /** The picture, or what is in its place. beside: {pane, at}: another picture right of the part `at` of the pane.
   * @type {(context: Context) => void} */
  drawStage(context) {
    if (this.spectrum) return drawSpectrum(context, this.room, this.spectrum);
    if (this.difference) {
      const { source, extent } = this.difference;
      return drawScaled(context, source, placed(this.view, this.room, extent), extent, this.picture.reduction);
    }
    this.drawPicture(context, this);
    if (!this.beside) return undefined;
    const left = this.beside.at * this.room.width;
    context.beginPath();
    context.rect(left, 0, this.room.width - left, this.room.height);
    context.save();
    context.clip();
    context.clearRect(0, 0, this.room.width, this.room.height);
    this.drawPicture(context, this.beside.pane);
    context.restore();
    return undefined;
  }

  /** Draws the picture of a pane, of this one or of one beside it, where this one would be.
   * @type {(context: Context, pane: Pane) => void} */
  drawPicture(context, pane) {
    const { whole, part, colours, partColours, cyclic } = pane;
    const { room } = this;
    const place = placed(this.view, room, pane.extent);
    if (!part?.covers(visibleRegion(place, room, pane.extent))) whole.draw(context, room, place, colours, cyclic);
    part?.draw(context, room, place, partColours, cyclic);
  }

  /** @type {(context: Context) => void} */
  drawOver(context) {
    const { place, room, picture } = this;
    if (this.spectrum) return drawRing(context, room, this.spectrum, this.ring);
    drawStrokes(context, place, this.strokes);
    drawMarks(context, place, room, this.marks);
    if (this.beside && this.beside.at > 0 && this.beside.at < 1) drawDivider(context, room, this.beside.at);
    if (this.brush && this.pointer) drawBrush(context, place, this.pointer, this.brush);
    if (this.measure) drawMeasure(context, place, room, this.measure, picture.pixel_size);
    if (this.aim) drawCrosshair(context, place, room, this.aim);
    const cross = this.cross ?? this.ghost;
    if (cross) drawCross(context, place, cross);
    if (this.label) drawLabel(context, room, { y: room.height, x: room.width }, this.label);
    if (picture.pixel_size) drawScaleBar(context, room, scaleBarOf(picture.pixel_size[1], place.scale, room.width));
    return undefined;
  }

  /** {pane, at}: the picture at a point of the screen, and the pixel of its array; null outside.
   * @type {(point: Point) => { pane: Pane, at: Point } | null} */
  under(point) {
    if (this.empty) return null;
    const pane = this.beside && point.x > this.beside.at * this.room.width ? this.beside.pane : this;
    const { extent } = pane;
    const at = toArray(placed(this.view, this.room, extent), point);
    return at.y < 0 || at.x < 0 || at.y >= extent.y || at.x >= extent.x ? null : { pane, at };
  }

  /** The value of a pixel of the array as text.
   * @type {(at: Point) => string} */
  valueText(at) {
    return this.finestLayer([at.y, at.y, at.x, at.x]).valueText(at);
  }

  get grid() {
    return this.whole.grid;
  }

  /** What pictures of one kind have in common, so that one contrast suits them: the quantity, if it is known. */
  get kind() {
    const { quantity, unit, colours, limits } = this.picture;
    return `${quantity || `${unit}|${colours}`}|${limits === null}`;
  }

  /** The whole picture as a canvas: in its colours on the screen, a pixel for each of its own. */
  wholePicture() {
    if (this.picture.limits) return this.shading.wholeIn(this.colours);
    this.shading.pixelsOf(0, 0, this.source.width, this.source.height);
    return this.shading.whole.canvas;
  }

  /** Frees the memory of the picture and the canvases immediately. */
  end() {
    for (const canvas of [this.canvas, this.overlay, this.bar]) canvas.width = canvas.height = 0;
    this.whole.end();
    this.removePart();
    this.spectrum = this.difference = null;
    this.figure.remove();
  }
}
