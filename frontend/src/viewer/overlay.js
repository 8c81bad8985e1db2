// Overlay of a picture: points and their displacements, cross, strokes and brush, scale bar. Everything has a light
// and a dark edge, so that it is visible on any colour.

import { within } from "../numbers.js";
import { toScreen } from "./geometry.js";

/** @import { Aim, Context, Marks, Place, Point, Size, Stroke } from "../types" */

const LIGHT = "#ffffff";
const DARK = "rgba(0, 0, 0, 0.75)";
export const ACCENT = "#ffb000";
const MANY = 3000;
const HEAD = 7;
const HOLE = 6;

/** A dark edge, and what is drawn over it: how much each is wider, and its colour.
 * @type {(edge: number, colour: string) => [number, string][]} */
export const edged = (edge, colour) => [[edge, DARK], [0, colour]];

/** @type {(context: Context, draw: () => void, width: number, colour: string) => void} */
export function line(context, draw, width, colour) {
  for (const [extra, style] of edged(2, colour)) {
    context.lineWidth = width + extra;
    context.strokeStyle = style;
    context.beginPath();
    draw();
    context.stroke();
  }
}

/** @type {(context: Context, point: Point, radius: number) => void} */
function circle(context, point, radius) {
  context.moveTo(point.x + radius, point.y);
  context.arc(point.x, point.y, radius, 0, 2 * Math.PI);
}

/** A line with a head at its end, which is smaller on a short line; one of less than a pixel has none.
 * @type {(context: Context, from: Point, to: Point) => void} */
function arrow(context, from, to) {
  context.moveTo(from.x, from.y);
  context.lineTo(to.x, to.y);
  const [down, across] = [to.y - from.y, to.x - from.x];
  const long = Math.hypot(down, across);
  if (long < 2) return;
  const head = Math.min(HEAD, long / 2) / long;
  for (const side of [-0.5, 0.5]) {
    context.moveTo(to.x, to.y);
    context.lineTo(to.x - head * (across + side * down), to.y - head * (down - side * across));
  }
}

/** @type {(values: Float32Array, index: number) => Point} */
const pairAt = (values, index) => ({ y: values[2 * index], x: values[2 * index + 1] });

/** marks: {points, moves: Float32Array (n, yx) or undefined, chosen: index or undefined}.
 * @type {(context: Context, place: Place, room: Size, marks: Marks) => void} */
export function drawMarks(context, place, room, { points, moves, chosen }) {
  if (!points) return;
  const count = points.length / 2;
  /** @type {(point: Point) => boolean} */
  const seen = ({ y, x }) => y > -9 && x > -9 && y < room.height + 9 && x < room.width + 9;
  if (moves) {
    line(context, () => {
      for (let index = 0; index < count; index += 1) {
        const from = toScreen(place, pairAt(points, index));
        const to = toScreen(place, pairAt(moves, index));
        if (!seen(from) && !seen(to)) continue;
        arrow(context, from, to);
      }
    }, 1.5, LIGHT);
  }
  const size = count > MANY ? 2 : moves ? 3 : 5;
  for (const [extra, style] of edged(2, ACCENT).slice(count > MANY ? 1 : 0)) {
    context.fillStyle = style;
    const side = size + extra;
    for (let index = 0; index < count; index += 1) {
      const at = toScreen(place, pairAt(points, index));
      if (seen(at)) context.fillRect(at.x - side / 2, at.y - side / 2, side, side);
    }
  }
  if (chosen !== undefined) line(context, () => circle(context, toScreen(place, pairAt(points, chosen)), 9), 2.5, LIGHT);
}

/** @type {(context: Context, place: Place, strokes: Stroke[]) => void} */
export function drawStrokes(context, place, strokes) {
  context.lineCap = context.lineJoin = "round";
  for (const { path, radius, erase } of strokes) {
    context.lineWidth = 2 * radius * place.scale;
    context.strokeStyle = erase ? "rgba(255, 255, 255, 0.55)" : "rgba(255, 176, 0, 0.65)";
    context.beginPath();
    path.forEach((point, index) => {
      const at = toScreen(place, point);
      if (index === 0) context.moveTo(at.x, at.y);
      context.lineTo(at.x, at.y);
    });
    context.stroke();
  }
  context.lineCap = "butt";
  context.lineJoin = "miter";
}

/** @type {(context: Context, place: Place, at: Point, radius: number) => void} */
export function drawBrush(context, place, at, radius) {
  line(context, () => circle(context, at, radius * place.scale), 1.5, LIGHT);
}

/** @type {(context: Context, place: Place, at: Point) => void} */
export function drawCross(context, place, at) {
  const { y, x } = toScreen(place, at);
  line(context, () => {
    for (const [down, across] of [[0, 1], [1, 0], [0, -1], [-1, 0]]) {
      context.moveTo(x + 4 * across, y + 4 * down);
      context.lineTo(x + 14 * across, y + 14 * down);
    }
  }, 2, LIGHT);
}

/** The lines of a crosshair through the whole pane, with a hole in the middle; a coordinate that is null has no line.
 * @type {(context: Context, place: Place, room: Size, aim: Aim) => void} */
export function drawCrosshair(context, place, room, aim) {
  const { y, x } = toScreen(place, { y: aim.y ?? 0, x: aim.x ?? 0 });
  line(context, () => {
    if (aim.x !== null) {
      const [high, low] = aim.y === null ? [0, 0] : [y - HOLE, y + HOLE];
      if (aim.y !== null) {
        context.moveTo(x, 0);
        context.lineTo(x, high);
      }
      context.moveTo(x, low);
      context.lineTo(x, room.height);
    }
    if (aim.y !== null) {
      const [left, right] = aim.x === null ? [0, 0] : [x - HOLE, x + HOLE];
      if (aim.x !== null) {
        context.moveTo(0, y);
        context.lineTo(left, y);
      }
      context.moveTo(right, y);
      context.lineTo(room.width, y);
    }
  }, 1, ACCENT);
}

/** @type {(context: Context, room: Size, at: number) => void} */
export function drawDivider(context, room, at) {
  line(context, () => {
    context.moveTo(at * room.width, 0);
    context.lineTo(at * room.width, room.height);
  }, 1.5, LIGHT);
}

/** A text on a dark ground, below a point, within the pane.
 * @type {(context: Context, room: Size, at: Point, text: string) => void} */
export function drawLabel(context, room, at, text) {
  context.font = "12px system-ui, sans-serif";
  const width = context.measureText(text).width + 12;
  const left = within(at.x - width / 2, 2, Math.max(room.width - width - 2, 2));
  const top = within(at.y + 5, 2, Math.max(room.height - 22, 2));
  context.fillStyle = "rgba(0, 0, 0, 0.6)";
  context.beginPath();
  context.roundRect(left, top, width, 20, 4);
  context.fill();
  context.fillStyle = LIGHT;
  context.textAlign = "left";
  context.fillText(text, left + 6, top + 14);
}

/** @type {(context: Context, room: Size, bar: { pixels: number, text: string }) => void} */
export function drawScaleBar(context, room, bar) {
  context.font = "12px system-ui, sans-serif";
  const textWidth = context.measureText(bar.text).width;
  const width = Math.max(bar.pixels, textWidth) + 16;
  const top = room.height - 38;
  context.fillStyle = "rgba(0, 0, 0, 0.6)";
  context.beginPath();
  context.roundRect(8, top, width, 30, 4);
  context.fill();
  context.fillStyle = LIGHT;
  context.fillRect(8 + (width - bar.pixels) / 2, top + 22, bar.pixels, 3);
  context.textAlign = "center";
  context.fillText(bar.text, 8 + width / 2, top + 15);
}
