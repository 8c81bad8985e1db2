// Numbers as text.

/** @import { Ends } from "./types" */

/** @type {(value: number, low: number, high: number) => number} */
export const within = (value, low, high) => Math.min(Math.max(value, low), high);

/** A number with the digits that a step of the grey levels resolves.
 * @type {(value: number, limits: Ends) => string} */
export function numberText(value, [low, high]) {
  const step = Math.abs(high - low) / 255;
  const largest = Math.max(Math.abs(low), Math.abs(high));
  if (Math.abs(value) < step / 100 || value === 0) return "0";
  if (largest >= 1e5 || largest < 1e-3) {
    const digits = step > 0 ? within(Math.ceil(Math.log10(Math.abs(value) / step)), 0, 5) : 3;
    return value.toExponential(digits).replace(/\.?0*e\+?/, "e").replace(/^-/, "−");
  }
  const digits = step > 0 ? within(Math.ceil(-Math.log10(step)), 0, 6) : 3;
  const text = value.toFixed(digits);
  return Number(text) === 0 ? "0" : text.replace("-", "−");
}

/** @type {[string, number][]} */
export const UNITS = [["m", 1], ["mm", 1e-3], ["µm", 1e-6], ["nm", 1e-9], ["pm", 1e-12]];

/** A length [m] in the unit that suits it.
 * @type {(length: number) => string} */
export function lengthText(length) {
  const [unit, size] = UNITS.find(([, metres]) => length >= metres * 0.9999) ?? UNITS[UNITS.length - 1];
  return `${Number((length / size).toPrecision(3))} ${unit}`;
}

/** An area of so many pixels with its unit.
 * @type {(pixels: number, pixelSize?: Ends | null) => string} */
export function areaText(pixels, pixelSize) {
  if (!pixelSize) return `${pixels} px²`;
  const area = pixels * pixelSize[0] * pixelSize[1];
  const [unit, size] = UNITS.find(([, metres]) => area >= 0.01 * metres ** 2) ?? UNITS[UNITS.length - 1];
  return `${Number((area / size ** 2).toPrecision(3))} ${unit}² (${pixels} px)`;
}

/** @type {(value: number) => string} */
export const shortNumber = (value) => {
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential() : String(Number(value.toPrecision(6)));
  return text.replace("e+", "e").replace("-", "−");
};

/** @type {(value: number) => string} */
export const readNumber = (value) => shortNumber(Number(value.toPrecision(5)));
