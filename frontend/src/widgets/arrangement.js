// Where pictures go in a room of the screen: as large as they can be. Sizes are in screen pixels; an aspect is width
// over height.

import { within } from "../numbers.js";

/** @import { Arrangement, Size } from "../types" */

export const GAP = 8;
// The parts of the room that the strip may have, and its limits.
const STRIP = { below: { parts: [0.36, 0.3], low: 150, high: 340 }, beside: { parts: [0.34, 0.26], low: 170, high: 460 } };
/** @type {("below" | "beside")[]} */
const PLACES = ["below", "beside"];

// The part of the room that a column of cuts beside all others has, and its limits.
const CUTS = [0.27, 150, 440];

/** The width of the column of cuts in a room of this width.
 * @type {(width: number) => number} */
export const cutsWidth = (width) => Math.round(within(CUTS[0] * width, CUTS[1], CUTS[2]));

/** Equal cells for pictures of one aspect, above and below which `text` pixels are needed: {columns, area of one}.
 * @type {(count: number, room: Size, aspect: number, text: number) => { columns: number, area: number }} */
export function cellsFor(count, room, aspect, text) {
  let best = { columns: 1, area: 0 };
  for (let columns = 1; columns <= count; columns += 1) {
    const rows = Math.ceil(count / columns);
    const width = (room.width - GAP * (columns - 1)) / columns;
    const height = (room.height - GAP * (rows - 1)) / rows - text;
    const drawn = Math.max(0, Math.min(width, height * aspect));
    if ((drawn * drawn) / aspect > best.area * 1.001) best = { columns, area: (drawn * drawn) / aspect };
  }
  return best;
}

/**
 * The place of the strip with probe and curve, below the main pictures or beside them, and its size: those which leave
 * the main ones the larger area. count, aspect, text: of the main pictures; tools: height of what is above them all.
 * @type {(room: Size, count: number, aspect: number, text: number, tools: number) => Arrangement}
 */
export function arranged(room, count, aspect, text, tools) {
  /** @type {(place: "below" | "beside", part: number) => Arrangement} */
  const fits = (place, part) => {
    const { low, high } = STRIP[place];
    const strip = Math.round(within(part * (place === "below" ? room.height : room.width), low, high));
    const rest = { width: room.width, height: room.height - tools };
    rest[place === "below" ? "height" : "width"] -= strip + GAP;
    return { place, strip, ...cellsFor(count, rest, aspect, text) };
  };
  const tried = PLACES.flatMap((place) => STRIP[place].parts.map((part) => fits(place, part)));
  return tried.reduce((best, one) => (one.area > best.area * 1.02 ? one : best));
}
