// Position of a picture in its pane. A view is {y, x, scale}: the centre of the pane as fractions of the picture, and
// the magnification relative to the whole picture. Sizes of panes are in screen pixels, extents of pictures in array
// pixels.

import { lengthText, within } from "../numbers.js";

/** @import { Distance, Ends, Place, Point, Size, View } from "../types" */

const MOST_SCALE = 400;
export const WHOLE = { y: 0.5, x: 0.5, scale: 1 };

/** @type {(room: Size, extent: Point) => number} */
const fit = (room, extent) => Math.min(room.width / extent.x, room.height / extent.y);

/** The view, limited so that as little as possible of the pane is empty.
 * @type {(view: View, room: Size, extent: Point) => View} */
export function bounded(view, room, extent) {
  const scale = within(view.scale, 1, MOST_SCALE);
  /** @type {(part: number, size: number, space: number) => number} */
  const middle = (part, size, space) => {
    const half = space / (2 * fit(room, extent) * scale * size);
    return half >= 0.5 ? 0.5 : within(part, half, 1 - half);
  };
  return { y: middle(view.y, extent.y, room.height), x: middle(view.x, extent.x, room.width), scale };
}

/** {scale, left, top}: screen pixels per array pixel, and the position of the array's corner on the screen.
 * @type {(view: View, room: Size, extent: Point) => Place} */
export function placed(view, room, extent) {
  const inside = bounded(view, room, extent);
  const scale = fit(room, extent) * inside.scale;
  const left = room.width / 2 - inside.x * extent.x * scale;
  return { scale, left, top: room.height / 2 - inside.y * extent.y * scale };
}

/** @type {(place: Place, point: Point) => Point} */
export const toArray = (place, point) => ({ y: (point.y - place.top) / place.scale, x: (point.x - place.left) / place.scale });
/** @type {(place: Place, point: Point) => Point} */
export const toScreen = (place, point) => ({ y: place.top + point.y * place.scale, x: place.left + point.x * place.scale });

/** The view in which this pixel of the array is at this point of the screen.
 * @type {(pixel: Point, point: Point, scale: number, room: Size, extent: Point) => View} */
function holding(pixel, point, scale, room, extent) {
  const size = fit(room, extent) * scale;
  const y = (pixel.y + (room.height / 2 - point.y) / size) / extent.y;
  const x = (pixel.x + (room.width / 2 - point.x) / size) / extent.x;
  return bounded({ y, x, scale }, room, extent);
}

/** The view larger by a factor, about this point of the screen.
 * @type {(view: View, room: Size, extent: Point, point: Point, factor: number) => View} */
export function zoomed(view, room, extent, point, factor) {
  const scale = within(view.scale * factor, 1, MOST_SCALE);
  return holding(toArray(placed(view, room, extent), point), point, scale, room, extent);
}

/** The view moved by this many screen pixels.
 * @type {(view: View, room: Size, extent: Point, by: Point) => View} */
export function panned(view, room, extent, by) {
  const place = placed(view, room, extent);
  return holding(toArray(place, { y: 0, x: 0 }), by, bounded(view, room, extent).scale, room, extent);
}

/** A bar of a round length, at most a third of the pane: {pixels on the screen, text}.
 * @type {(pixelSize: number, scale: number, width: number) => { pixels: number, text: string }} */
export function scaleBarOf(pixelSize, scale, width) {
  const most = (Math.min(width / 3, 150) / scale) * pixelSize;
  const power = 10 ** Math.floor(Math.log10(most));
  const length = power * ([5, 2].find((step) => step * power <= most * 1.0001) ?? 1);
  return { pixels: (length / pixelSize) * scale, text: lengthText(length) };
}

/** The distance between points of the array: {pixels, length [m] or null, angle from the x axis, anticlockwise [°]}.
 * @type {(from: Point, to: Point, pixelSize?: Ends | null) => Distance} */
export function distanceOf(from, to, pixelSize) {
  const [down, across] = [to.y - from.y, to.x - from.x];
  const [tall, wide] = pixelSize ?? [1, 1];
  const length = pixelSize ? Math.hypot(down * tall, across * wide) : null;
  return { pixels: Math.hypot(down, across), length, angle: (Math.atan2(-down * tall, across * wide) * 180) / Math.PI };
}

/** @type {(pair: Ends) => Point} */
export const pointOf = ([y, x]) => ({ y, x });
