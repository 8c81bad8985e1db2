// Which part of an array a page wants with more pixels: what is visible of it, with a margin in which it can be moved.

import { within } from "../numbers.js";
import { toArray } from "./geometry.js";

/** @import { Place, Point, Region, Size } from "../types" */

const MARGIN = 0.25;
/** Ratio of what is visible to the part that was asked for, below which another one has more pixels. */
const SMALLEST = 0.5;

/** What is visible of an array, [top, bottom, left, right].
 * @type {(place: Place, room: Size, extent: Point) => Region} */
export function visibleRegion(place, room, extent) {
  const [begin, end] = [toArray(place, { y: 0, x: 0 }), toArray(place, { y: room.height, x: room.width })];
  return [within(begin.y, 0, extent.y), within(end.y, 0, extent.y), within(begin.x, 0, extent.x), within(end.x, 0, extent.x)];
}

/** The smallest part with all of these in it.
 * @type {(regions: Region[]) => Region} */
const together = (regions) => {
  const [top, bottom, left, right] = [0, 1, 2, 3].map((edge) => regions.map((region) => region[edge]));
  return [Math.min(...top), Math.max(...bottom), Math.min(...left), Math.max(...right)];
};

/** The part to ask for; [] if no picture is too coarse. visible: what each pane with a picture that is too coarse shows of
 * the array. before: what was asked for last, [] for nothing; sharp: whether all pictures of it have a pixel for each of
 * the screen or of the array.
 * @type {(visible: Region[], extent: Point, before: Region | [], sharp: boolean) => Region | []} */
export function wantedRegion(visible, extent, before, sharp) {
  if (visible.length === 0) return [];
  const [top, bottom, left, right] = together(visible);
  const [tall, wide] = [bottom - top, right - left];
  if (before.length && top >= before[0] && bottom <= before[1] && left >= before[2] && right <= before[3]) {
    const large = Math.max(tall / (before[1] - before[0]), wide / (before[3] - before[2]));
    if (sharp || large > SMALLEST) return before;
  }
  return [
    Math.floor(Math.max(0, top - MARGIN * tall)),
    Math.ceil(Math.min(extent.y, bottom + MARGIN * tall)),
    Math.floor(Math.max(0, left - MARGIN * wide)),
    Math.ceil(Math.min(extent.x, right + MARGIN * wide)),
  ];
}
