// Grey levels: their contrast, values and colours.

/** @import { Ends, Tables } from "../types" */

/** Colour tables by name, from the bytes the kernel sent: 256 pixels (RGBA in one number) each.
 * @type {(sent: Record<string, ArrayBufferView>) => Tables} */
export function tablesOf(sent) {
  /** @type {Tables} */
  const tables = {};
  for (const [name, bytes] of Object.entries(sent)) {
    const rgb = new Uint8Array(bytes.buffer, bytes.byteOffset, 768);
    tables[name] = Uint32Array.from({ length: 256 }, (_, level) => {
      const [red, green, blue] = rgb.subarray(3 * level, 3 * level + 3);
      return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
  }
  return tables;
}

/** The levels (low, high) that get the ends of the colours, at these percentiles. counts: pixels of each level.
 * @type {(counts: Uint32Array, percentiles: Ends) => Ends} */
export function contrastOf(counts, [low, high]) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  /** @type {(percentile: number) => number} */
  const at = (percentile) => {
    const wanted = (percentile / 100) * all;
    let sum = 0;
    for (let level = 0; level < 256; level += 1) {
      sum += counts[level];
      if (sum >= wanted && sum > 0) return level;
    }
    return 255;
  };
  const bottom = low <= 0 ? 0 : Math.min(at(low), 254);
  return [bottom, high >= 100 ? 255 : Math.max(at(high), bottom + 1)];
}

/** A table stretched so that the levels of the contrast, which may lie outside of 0 to 255, get its ends.
 * @type {(table: Uint32Array, contrast: Ends) => Uint32Array} */
export function stretched(table, [low, high]) {
  return table.map((_, level) => table[Math.round((255 * Math.min(Math.max(level - low, 0), high - low)) / (high - low))]);
}

/** Colours RGBA, in place, of pixels with these levels; their opacity stays.
 * @type {(pixels: Uint32Array, levels: Uint8Array, colours: Uint32Array) => void} */
export function shade(pixels, levels, colours) {
  const opaque = 0xff000000;
  for (let index = 0; index < levels.length; index += 1) {
    pixels[index] = (colours[levels[index]] & ~opaque) | (pixels[index] & opaque);
  }
}

/** The value of a level: the middle of its interval.
 * @type {(level: number, limits: Ends) => number} */
export function levelValue(level, [low, high]) {
  return low + ((high - low) * (level + 0.5)) / 256;
}

/** The values at levels of the contrast, for a picture of these limits; and the reverse.
 * @type {(limits: Ends, contrast: Ends) => Ends} */
export function narrowed([low, high], [bottom, top]) {
  const step = (high - low) / 255;
  return [low + bottom * step, low + top * step];
}

/** @type {(limits: Ends, values: Ends) => Ends} */
export function levelsAt([low, high], values) {
  const level = (/** @type {number} */ value) => (255 * (value - low)) / (high - low);
  return [level(values[0]), level(values[1])];
}

/** [amplitude from 0 to 1, phase] of the colours of a complex picture: hue is the phase, brightness the amplitude.
 * @type {(red: number, green: number, blue: number) => [number, number | null]} */
export function complexOf(red, green, blue) {
  const most = Math.max(red, green, blue);
  const span = most - Math.min(red, green, blue);
  if (span === 0) return [most / 255, null];
  let sixth = (red - green) / span + 4;
  if (most === red) sixth = (green - blue) / span;
  else if (most === green) sixth = (blue - red) / span + 2;
  return [most / 255, (sixth > 3 ? sixth - 6 : sixth) * (Math.PI / 3)];
}

/** @type {(pixel: ArrayLike<number> & Iterable<number>) => string} */
export function complexText([red, green, blue]) {
  const [amplitude, phase] = complexOf(red, green, blue);
  const percent = `${Math.round(100 * amplitude)}% of the largest`;
  return phase === null ? percent : `${percent}, phase ${phase.toFixed(2).replace("-", "−")} rad`;
}
