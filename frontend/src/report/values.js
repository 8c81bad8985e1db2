// Values behind pictures, read from the arrays in the page, and 32-bit TIFF files of them.

/** @import { Ends, Plane } from "../types" */

/** @type {(text: string) => Uint8Array<ArrayBuffer>} */
export const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** Values of a .npy file (complex64): real and imaginary parts, interleaved.
 * @type {(file: { buffer: ArrayBuffer }) => Float32Array} */
export function numbersOf({ buffer }) {
  return new Float32Array(buffer, 10 + new DataView(buffer).getUint16(8, true));
}

/** [amplitude, phase] of a plane at a pixel: the product of its layers, without the mean and the ramp of the phase.
 * @type {(plane: Plane, y: number, x: number) => [number, number]} */
export function valueIn({ numbers, extent, layers, corner, phase }, y, x) {
  let [real, imaginary] = [1, 0];
  for (const layer of layers) {
    const at = 2 * ((layer * extent[0] + corner[0] + y) * extent[1] + corner[1] + x);
    const [a, b] = [numbers[at], numbers[at + 1]];
    [real, imaginary] = [real * a - imaginary * b, real * b + imaginary * a];
  }
  if (!Number.isFinite(real)) real = 0;
  if (!Number.isFinite(imaginary)) imaginary = 0;
  const turns = (Math.atan2(imaginary, real) - phase[0] - phase[1] * y - phase[2] * x) / (2 * Math.PI);
  return [Math.hypot(real, imaginary), 2 * Math.PI * (turns - Math.round(turns))];
}

/** A value as text, with the digits of single precision.
 * @type {(plane: Pick<Plane, "quantity">, value: [number, number]) => string} */
export function wordsOf({ quantity }, [amplitude, phase]) {
  const text = `${phase.toFixed(5).replace("-", "−")} rad`;
  if (quantity === "phase") return text;
  return quantity === "amplitude" ? `${amplitude.toPrecision(6)}` : `${amplitude.toPrecision(6)}, phase ${text}`;
}

/** Planes as the pages of a TIFF of 32-bit floats (TIFF 6.0), with the pixel size [m] if known.
 * @type {(planes: Plane[], pixelSize?: Ends | null) => ArrayBuffer} */
export function tiffOf(planes, pixelSize) {
  const [SHORT, LONG, RATIONAL] = [3, 4, 5];
  const TAGS = pixelSize ? 13 : 10;
  const [height, width] = planes[0].shape;
  const directory = 2 + 12 * TAGS + 4 + 16;
  const page = directory + 4 * height * width;
  const view = new DataView(new ArrayBuffer(8 + planes.length * page));
  view.setUint32(0, 0x49492a00);
  view.setUint32(4, 8, true);
  planes.forEach((plane, number) => {
    const start = 8 + number * page;
    const ratios = start + directory - 16;
    const pixels = start + directory;
    const tags = [
      [256, LONG, width], [257, LONG, height], [258, SHORT, 32], [259, SHORT, 1], [262, SHORT, 1], [273, LONG, pixels],
      [277, SHORT, 1], [278, LONG, height], [279, LONG, 4 * height * width],
      ...(pixelSize ? [[282, RATIONAL, ratios], [283, RATIONAL, ratios + 8], [296, SHORT, 3]] : []),
      [339, SHORT, 3],
    ];
    view.setUint16(start, TAGS, true);
    tags.forEach(([tag, type, value], index) => {
      const at = start + 2 + 12 * index;
      view.setUint16(at, tag, true);
      view.setUint16(at + 2, type, true);
      view.setUint32(at + 4, 1, true);
      if (type === SHORT) view.setUint16(at + 8, value, true);
      else view.setUint32(at + 8, value, true);
    });
    view.setUint32(start + 2 + 12 * TAGS, number + 1 < planes.length ? start + page : 0, true);
    // Pixels per centimetre, x first.
    if (pixelSize) [pixelSize[1], pixelSize[0]].forEach((size, index) => ratio(view, ratios + 8 * index, 0.01 / size));
    for (let y = 0, at = pixels; y < height; y += 1) {
      for (let x = 0; x < width; x += 1, at += 4) {
        view.setFloat32(at, valueIn(plane, y, x)[plane.quantity === "phase" ? 1 : 0], true);
      }
    }
  });
  return view.buffer;
}

/** Writes a number as a quotient of two 32-bit integers.
 * @type {(view: DataView, at: number, value: number) => void} */
function ratio(view, at, value) {
  const below = Math.max(1, Math.floor(Math.min(0xffffffff / value, 1e6)));
  view.setUint32(at, Math.min(Math.round(value * below), 0xffffffff), true);
  view.setUint32(at + 4, below, true);
}
