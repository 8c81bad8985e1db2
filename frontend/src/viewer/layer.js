// A picture of a pane, decoded: all of it, or a part of it with more pixels that is drawn over it.

import { numberText } from "../numbers.js";
import { complexText, levelValue } from "./levels.js";
import { NOTHING, Shading } from "./pixels.js";

/** @import { Context, Grid, Picture, Place, Point, Region, Size, Source } from "../types" */

/** Whether pixels of this size [screen pixels] are blended; they stay crisp once one is larger than two of the screen's.
 * @type {(context: Context, size: number) => boolean} */
const isSmooth = (context, size) => size * context.getTransform().a < 2;

/** Draws an image whose pixels stand for `reduction` of the array, from the array's corner on.
 * @type {(context: Context, image: CanvasImageSource, place: Place, extent: Point, reduction: number) => void} */
export function drawScaled(context, image, { scale, left, top }, extent, reduction) {
  context.imageSmoothingEnabled = isSmooth(context, scale * reduction);
  context.imageSmoothingQuality = "medium";
  context.drawImage(image, left, top, extent.x * scale, extent.y * scale);
}

export class Layer {
  constructor() {
    /** @type {Source} */
    this.source = NOTHING;
    this.shading = new Shading();
    /** @type {Picture} */
    this.picture = /** @type {any} */ (null); // until the first frame
    /** The array's pixel at which it begins.
     * @type {Point} */
    this.corner = { y: 0, x: 0 };
    /** @type {Uint8Array | null} */
    this.brightness = null;
  }

  /** Takes a picture, and its file as it was decoded, which belongs to the layer from then on; null: the one before stays.
   * @type {(picture: Picture, source: Source | null, corner?: Point) => void} */
  take(picture, source, corner = { y: 0, x: 0 }) {
    this.picture = picture;
    this.corner = corner;
    this.brightness = null;
    if (source === null) return;
    this.source.close();
    this.source = source;
    this.shading.take(source);
  }

  /** What it shows of the array, from its corner on.
   * @returns {Point} */
  get extent() {
    const { reduction } = this.picture;
    return { y: this.source.height * reduction, x: this.source.width * reduction };
  }

  /** @type {(region: Region) => boolean} */
  covers([top, bottom, left, right]) {
    const { corner, extent } = this;
    return top >= corner.y && left >= corner.x && bottom <= corner.y + extent.y && right <= corner.x + extent.x;
  }

  /** Where its corner is on the screen, if the array's is at this place.
   * @type {(place: Place) => Place} */
  placed({ scale, left, top }) {
    return { scale, left: left + this.corner.x * scale, top: top + this.corner.y * scale };
  }

  /** Draws it in a pane. colours: of the levels; cyclic: whether they stand for a circle of phases.
   * @type {(context: Context, room: Size, place: Place, colours: Uint32Array, cyclic: boolean) => void} */
  draw(context, room, place, colours, cyclic) {
    const { picture, source, shading, extent } = this;
    const own = this.placed(place);
    // The mean of two phases at the ends of a circle is not between them: their colours are averaged.
    const image = picture.limits ? cyclic && shading.wholeIn(colours) : source.image;
    if (image) return drawScaled(context, image, own, extent, picture.reduction);
    const { width, height } = room;
    const sharp = context.getTransform().a;
    const [wide, tall] = [Math.round(width * sharp), Math.round(height * sharp)];
    const size = own.scale * sharp;
    const box = { left: own.left * sharp, top: own.top * sharp, width: extent.x * size, height: extent.y * size };
    const seen = shading.seenIn(colours, wide, tall, box, isSmooth(context, own.scale * picture.reduction));
    context.imageSmoothingEnabled = false;
    return context.drawImage(seen, 0, 0, width, height);
  }

  /** The value of a pixel of the array as text.
   * @type {(at: Point) => string} */
  valueText(at) {
    const { picture, source, corner } = this;
    // Exact values if available, as in a report, which contains the arrays.
    if (picture.valueAt) return picture.valueAt(Math.floor(at.y), Math.floor(at.x));
    const [row, column] = [at.y - corner.y, at.x - corner.x].map((place) => Math.floor(place / picture.reduction));
    if (!picture.limits) return `≈ ${complexText(this.shading.pixelsOf(column, row, 1, 1).data)}`;
    const level = this.shading.levels[row * source.width + column];
    const sign = level === 0 ? "≤" : level === 255 ? "≥" : "≈";
    const value = level === 0 ? picture.limits[0] : level === 255 ? picture.limits[1] : levelValue(level, picture.limits);
    return `${sign} ${numberText(value, picture.limits)}${picture.unit ? ` ${picture.unit}` : ""}`;
  }

  /** {levels, values: of a level, unit, width, height}: what is measured; of a complex picture the brightness.
   * @returns {Grid} */
  get grid() {
    const { picture, source, corner } = this;
    const { width, height } = source;
    const size = { width, height, reduction: picture.reduction, corner };
    if (picture.limits) {
      const { limits } = picture;
      const values = Float64Array.from({ length: 256 }, (_, level) => levelValue(level, limits));
      return { ...size, levels: this.shading.levels, values, limits, unit: picture.unit };
    }
    if (this.brightness === null) {
      const { data } = this.shading.pixelsOf(0, 0, width, height);
      this.brightness = Uint8Array.from({ length: width * height }, (_, index) => {
        return Math.max(data[4 * index], data[4 * index + 1], data[4 * index + 2]);
      });
    }
    const values = Float64Array.from({ length: 256 }, (_, level) => (100 * level) / 255);
    return { ...size, levels: this.brightness, values, limits: [0, 100], unit: "% of the largest amplitude" };
  }

  /** Frees the memory of the picture immediately. */
  end() {
    this.source.close();
    this.source = NOTHING;
    this.shading.end();
  }
}
