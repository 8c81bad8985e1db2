// Spectrum of the visible part of a picture: amplitude of its Fourier transform, as a picture in its place.

import { contextOf } from "../elements.js";
import { lengthText, within } from "../numbers.js";
import { toArray, toScreen } from "./geometry.js";
import { complexOf } from "./levels.js";
import { ACCENT, drawLabel, line } from "./overlay.js";
import { visibleRegion } from "./region.js";

/** @import { Layer } from "./layer.js" */
/** @import { Context, Distance, Ends, Pane, Part, Place, Point, Ring, Size, Spectrum } from "../types" */

const LARGEST = 1024;
const DECADES = 4;

/** The transform of a line of 2^n values at `start`, in place.
 * @type {(real: Float32Array, imaginary: Float32Array, start: number, count: number, cosines: Float32Array, sines: Float32Array) => void} */
function transformLine(real, imaginary, start, count, cosines, sines) {
  for (let index = 1, turned = 0; index < count; index += 1) {
    let bit = count >> 1;
    for (; turned & bit; bit >>= 1) turned ^= bit;
    turned ^= bit;
    if (index >= turned) continue;
    const one = start + index;
    const other = start + turned;
    const a = real[one];
    const b = imaginary[one];
    real[one] = real[other];
    imaginary[one] = imaginary[other];
    real[other] = a;
    imaginary[other] = b;
  }
  for (let size = 2; size <= count; size <<= 1) {
    const half = size >> 1;
    const step = count / size;
    for (let block = start; block < start + count; block += size) {
      for (let index = 0; index < half; index += 1) {
        const cosine = cosines[index * step];
        const sine = sines[index * step];
        const one = block + index;
        const other = one + half;
        const a = real[other] * cosine - imaginary[other] * sine;
        const b = real[other] * sine + imaginary[other] * cosine;
        real[other] = real[one] - a;
        imaginary[other] = imaginary[one] - b;
        real[one] += a;
        imaginary[one] += b;
      }
    }
  }
}

/** The transform of a square of side 2^n, in place, with its axes exchanged.
 * @type {(real: Float32Array, imaginary: Float32Array, side: number) => void} */
export function transform(real, imaginary, side) {
  const cosines = Float32Array.from({ length: side / 2 }, (_, index) => Math.cos((2 * Math.PI * index) / side));
  const sines = Float32Array.from({ length: side / 2 }, (_, index) => -Math.sin((2 * Math.PI * index) / side));
  for (const last of [false, true]) {
    for (let row = 0; row < side; row += 1) transformLine(real, imaginary, row * side, side, cosines, sines);
    if (last) return;
    for (const values of [real, imaginary]) {
      for (let row = 1; row < side; row += 1) {
        for (let column = 0; column < row; column += 1) {
          const kept = values[row * side + column];
          values[row * side + column] = values[column * side + row];
          values[column * side + row] = kept;
        }
      }
    }
  }
}

/** The visible part of a pane in pixels of its picture: {top, left, height, width}.
 * @type {(pane: Pick<Pane, "place" | "room" | "source" | "picture">) => Part} */
export function visiblePart({ place, room, source, picture }) {
  const { reduction } = picture;
  const [begin, end] = [toArray(place, { y: 0, x: 0 }), toArray(place, { y: room.height, x: room.width })];
  /** @type {(low: number, high: number, size: number) => Ends} */
  const span = (low, high, size) => {
    const [first, last] = [within(Math.round(low / reduction), 0, size - 1), within(Math.round(high / reduction), 1, size)];
    const count = Math.min(Math.max(last - first, 1), LARGEST);
    return [Math.round((first + last - count) / 2), count];
  };
  const [top, height] = span(begin.y, end.y, source.height);
  const [left, width] = span(begin.x, end.x, source.width);
  return { top: within(top, 0, source.height - height), left: within(left, 0, source.width - width), height, width };
}

/** Real and imaginary part of the picture there, less the mean, under a Hann window, padded to a square.
 * @type {(layer: Layer, part: Part, side: number) => { real: Float32Array, imaginary: Float32Array }} */
function windowed(layer, part, side) {
  const grid = layer.picture.limits ? layer.grid : null;
  const [real, imaginary] = [new Float32Array(side * side), new Float32Array(side * side)];
  /** @type {(count: number) => Float32Array} */
  const hann = (count) => Float32Array.from({ length: count }, (_, index) => Math.sin((Math.PI * (index + 0.5)) / count) ** 2);
  const [down, across] = [hann(part.height), hann(part.width)];
  const colours = grid ? [] : layer.shading.pixelsOf(part.left, part.top, part.width, part.height).data;
  let [sumReal, sumImaginary] = [0, 0];
  for (let row = 0; row < part.height; row += 1) {
    for (let column = 0; column < part.width; column += 1) {
      const at = row * side + column;
      if (!grid) {
        const pixel = 4 * (row * part.width + column);
        const [amplitude, phase] = complexOf(colours[pixel], colours[pixel + 1], colours[pixel + 2]);
        real[at] = amplitude * Math.cos(phase ?? 0);
        imaginary[at] = amplitude * Math.sin(phase ?? 0);
      } else {
        real[at] = grid.values[grid.levels[(part.top + row) * grid.width + part.left + column]];
      }
      sumReal += real[at];
      sumImaginary += imaginary[at];
    }
  }
  const [meanReal, meanImaginary] = [sumReal, sumImaginary].map((sum) => sum / (part.width * part.height));
  for (let row = 0; row < part.height; row += 1) {
    for (let column = 0; column < part.width; column += 1) {
      const at = row * side + column;
      const weight = down[row] * across[column];
      real[at] = (real[at] - meanReal) * weight;
      imaginary[at] = (imaginary[at] - meanImaginary) * weight;
    }
  }
  return { real, imaginary };
}

/** {source, side, part of the array, pixel}; table: the colours.
 * @type {(pane: Pane, table: Uint32Array, before: Spectrum | null) => Spectrum} */
export function spectrumOf(pane, table, before) {
  const { place, room, extent } = pane;
  const layer = pane.finestLayer(visibleRegion(place, room, extent));
  const { picture, corner } = layer;
  const part = visiblePart({ place: layer.placed(place), room, source: layer.source, picture });
  const side = 2 ** Math.ceil(Math.log2(Math.max(part.height, part.width, 8)));
  const { real, imaginary } = windowed(layer, part, side);
  transform(real, imaginary, side);
  let most = 0;
  for (let index = 0; index < real.length; index += 1) {
    real[index] = real[index] ** 2 + imaginary[index] ** 2;
    if (real[index] > most) most = real[index];
  }
  const source = before?.source ?? document.createElement("canvas");
  Object.assign(source, { width: side, height: side });
  const context = contextOf(source);
  const image = context.createImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  const half = side / 2;
  for (let row = 0; row < side; row += 1) {
    for (let column = 0; column < side; column += 1) {
      // The transform left the axes exchanged; the zero frequency goes to the middle.
      const power = real[((column + half) % side) * side + ((row + half) % side)];
      const decades = most > 0 && power > 0 ? Math.log10(power / most) / 2 : -DECADES;
      pixels[row * side + column] = table[Math.round(255 * within(1 + decades / DECADES, 0, 1))];
    }
  }
  context.putImageData(image, 0, 0);
  const [top, left, height, width] = [part.top, part.left, part.height, part.width].map((size) => size * picture.reduction);
  return { source, side, part: { top: top + corner.y, left: left + corner.x, height, width }, pixel: side * picture.reduction };
}

/** Where the spectrum is in its pane: {scale, left, top}, in screen pixels per pixel of the spectrum.
 * @type {(room: Size, spectrum: Pick<Spectrum, "side">) => Place} */
function spectrumPlace(room, { side }) {
  const scale = Math.min(room.width, room.height) / side;
  return { scale, left: (room.width - side * scale) / 2, top: (room.height - side * scale) / 2 };
}

/** @type {(context: Context, room: Size, spectrum: Spectrum) => void} */
export function drawSpectrum(context, room, spectrum) {
  const { scale, left, top } = spectrumPlace(room, spectrum);
  context.imageSmoothingEnabled = scale * context.getTransform().a < 2;
  context.drawImage(spectrum.source, left, top, spectrum.side * scale, spectrum.side * scale);
}

/** The period at a point of the screen: {pixels, length [m] or null, angle [°]}; null outside and in the middle.
 * @type {(room: Size, spectrum: Pick<Spectrum, "side" | "pixel">, size: Ends | null, at: Point) => Distance | null} */
export function periodAt(room, spectrum, pixelSize, point) {
  const place = spectrumPlace(room, spectrum);
  const half = spectrum.side / 2;
  const at = toArray(place, point);
  const [down, across] = [at.y - half - 0.5, at.x - half - 0.5];
  if (Math.abs(down) > half || Math.abs(across) > half || Math.hypot(down, across) < 0.5) return null;
  const [tall, wide] = pixelSize ?? [1, 1];
  const pixels = spectrum.pixel / Math.hypot(down, across);
  const period = spectrum.pixel / Math.hypot(down / tall, across / wide);
  return { pixels, length: pixelSize ? period : null, angle: (Math.atan2(-down / tall, across / wide) * 180) / Math.PI };
}

/** The ring of a resolution. ring: {size: period [m, or array pixels], pixelSize}.
 * @type {(context: Context, room: Size, spectrum: Spectrum, ring: Ring) => void} */
export function drawRing(context, room, spectrum, { size, pixelSize }) {
  const place = spectrumPlace(room, spectrum);
  const [tall, wide] = (pixelSize ?? [1, 1]).map((side) => (place.scale * spectrum.pixel * side) / size);
  const middle = toScreen(place, { y: spectrum.side / 2 + 0.5, x: spectrum.side / 2 + 0.5 });
  line(context, () => context.ellipse(middle.x, middle.y, wide, tall, 0, 0, 2 * Math.PI), 1.5, ACCENT);
  drawLabel(context, room, { y: middle.y - tall, x: middle.x }, pixelSize ? lengthText(size) : `${Number(size.toPrecision(3))} px`);
}
