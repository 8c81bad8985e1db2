// Grey levels to colours, by a look-up table, and back to values.
//
// A picture is scaled to the screen as grey levels, and only the pixels of the screen are coloured: a change of colours
// or contrast costs what is seen, not what the picture has (128,000 pixels in place of 940,000 in a usual pane), and a
// pixel of the screen shows the mean of the values below it, not of their colours.

import { contextOf } from "../elements.js";
import { shade } from "./levels.js";

/** @import { Context, Part, Picture, Source } from "../types" */

/** @type {ImageBitmapOptions} */
const DECODE = { colorSpaceConversion: "none", premultiplyAlpha: "none" };

/** A picture's file, or its pixels, as {image: to draw, width, height, close()}; null if the browser cannot read it.
 * @type {(picture: Pick<Picture, "image">) => Promise<Source | null>} */
export async function decoded({ image }) {
  try {
    return (await decodedBytes(image)) ?? bitmapOf(await createImageBitmap(image instanceof ImageData ? image : new Blob([image]), DECODE));
  } catch {
    return null;
  }
}

/** By an ImageDecoder, where the browser has one: a Blob of the bytes would pass through another process.
 * @type {(bytes: Picture["image"]) => Promise<Source | null>} */
async function decodedBytes(bytes) {
  if (typeof ImageDecoder === "undefined" || bytes instanceof ImageData) return null;
  const first = ArrayBuffer.isView(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, 1)[0] : null;
  const type = first === 0x89 ? "image/png" : first === 0xff ? "image/jpeg" : null;
  if (type === null) return null;
  /** @type {ImageDecoder | undefined} */
  let decoder;
  try {
    decoder = new ImageDecoder({ data: bytes, type, colorSpaceConversion: "none" });
    const { image } = await decoder.decode();
    return { image, width: image.displayWidth, height: image.displayHeight, close: () => image.close() };
  } catch {
    return null;
  } finally {
    decoder?.close();
  }
}

/** @type {(image: ImageBitmap) => Source} */
function bitmapOf(image) {
  return { image, width: image.width, height: image.height, close: () => image.close() };
}

/** What a pane without a picture has in its place.
 * @type {Source} */
export const NOTHING = { image: /** @type {any} */ (null), width: 0, height: 0, close: () => {} };

/** A canvas for reading, with the pixels last read: `image`, as numbers `pixels`, and their `levels`. */
export class Reader {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.canvas.width = this.canvas.height = 0;
    this.context = contextOf(this.canvas, { willReadFrequently: true });
    /** @type {ImageData | null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    this.levels = new Uint8Array(0);
  }

  /** Reads what `draw` draws on so many pixels.
   * @type {(width: number, height: number, draw: (context: Context) => void) => ImageData} */
  read(width, height, draw) {
    const { canvas, context } = this;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    else context.clearRect(0, 0, width, height);
    draw(context);
    const image = context.getImageData(0, 0, width, height);
    this.image = image;
    this.pixels = new Uint32Array(image.data.buffer);
    if (this.levels.length !== this.pixels.length) this.levels = new Uint8Array(this.pixels.length);
    const { levels, pixels } = this;
    for (let index = 0; index < levels.length; index += 1) levels[index] = pixels[index];
    return image;
  }

  /** The canvas with the colours of the levels that were read.
   * @type {(colours: Uint32Array) => HTMLCanvasElement} */
  shaded(colours) {
    shade(this.pixels, this.levels, colours);
    if (this.image) this.context.putImageData(this.image, 0, 0);
    return this.canvas;
  }

  end() {
    this.canvas.width = this.canvas.height = 0;
    this.image = null;
    this.pixels = new Uint32Array(0);
    this.levels = new Uint8Array(0);
  }
}

/** What a pane shows of its picture, in colours. */
export class Shading {
  constructor() {
    this.whole = new Reader();
    this.seen = new Reader();
    /** @type {Source} */
    this.source = NOTHING;
    this.place = "";
    this.known = this.counted = false;
    this.numbers = new Uint32Array(256);
    /** Those in which the whole picture, and what is seen of it, are at present.
     * @type {Uint32Array | null} */
    this.coloured = null;
    /** @type {Uint32Array | null} */
    this.shown = null;
  }

  /** Follows another picture: {image, width, height}.
   * @type {(source: Source) => void} */
  take(source) {
    this.source = source;
    this.place = "";
    this.known = this.counted = false;
    this.coloured = null;
  }

  /** All levels of the picture. They are read when they are needed first: most pictures of a run are only looked at. */
  get levels() {
    if (!this.known) {
      const { image, width, height } = this.source;
      this.whole.read(width, height, (context) => context.drawImage(image, 0, 0));
      this.known = true;
      this.coloured = null;
    }
    return this.whole.levels;
  }

  /** Number of pixels of each level. */
  get counts() {
    if (!this.counted) {
      const { levels } = this;
      const counts = this.numbers.fill(0);
      for (let index = 0; index < levels.length; index += 1) counts[levels[index]] += 1;
      this.counted = true;
    }
    return this.numbers;
  }

  /** Colours RGBA {data} of a part of a picture that has colours of its own.
   * @type {(left: number, top: number, width: number, height: number) => ImageData} */
  pixelsOf(left, top, width, height) {
    this.known = false;
    const { image } = this.source;
    return this.whole.read(width, height, (context) => context.drawImage(image, left, top, width, height, 0, 0, width, height));
  }

  /** A canvas with the whole picture in these colours.
   * @type {(colours: Uint32Array) => HTMLCanvasElement} */
  wholeIn(colours) {
    const { length } = this.levels;
    if (length && this.coloured !== colours) this.whole.shaded(colours);
    this.coloured = colours;
    return this.whole.canvas;
  }

  /** A canvas of so many pixels of the screen in these colours; box: place of the picture on it {left, top, width, height}.
   * @type {(colours: Uint32Array, width: number, height: number, box: Part, smooth: boolean) => HTMLCanvasElement} */
  seenIn(colours, width, height, box, smooth) {
    const place = `${width} ${height} ${box.left} ${box.top} ${box.width} ${box.height} ${smooth}`;
    if (place !== this.place) {
      const { image } = this.source;
      this.seen.read(width, height, (context) => {
        context.imageSmoothingEnabled = smooth;
        context.imageSmoothingQuality = "medium";
        context.drawImage(image, box.left, box.top, box.width, box.height);
      });
      this.place = place;
      this.shown = null;
    }
    if (this.shown !== colours) this.seen.shaded(colours);
    this.shown = colours;
    return this.seen.canvas;
  }

  end() {
    this.whole.end();
    this.seen.end();
    this.source = NOTHING;
  }
}
