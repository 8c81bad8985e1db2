// Mouse and keyboard on a pane. `board` is the viewer: look(pane, view), click, stroke, tool, cursors.point,
// measuring.draft(pane, from, to, done) of a measurement, measuring.ring(pane, point) of a resolution in a spectrum.

import { within } from "../numbers.js";
import { panned, toArray, toScreen, WHOLE, zoomed } from "./geometry.js";

/** @import { Aim, Board, Ends, Pane, Picture, Place, Point, Stroke } from "../types" */

const STILL = 4;
const NEAR = 9;
/** @type {Record<string, Ends>} */
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** @type {(pane: Pane, board: Board) => void} */
export function listen(pane, board) {
  const { stage } = pane;
  const pointOf = (/** @type {MouseEvent} */ event) => {
    const box = stage.getBoundingClientRect();
    return { y: event.clientY - box.top, x: event.clientX - box.left };
  };
  /** @type {Drag | null} */
  let drag = null;
  let dragged = false;

  stage.addEventListener(
    "wheel",
    (event) => {
      const lines = event.deltaMode === 1 ? 33 : 1;
      const factor = Math.exp(-0.002 * within(event.deltaY * lines, -300, 300));
      // The page scrolls unless zoom was requested, and if a whole picture cannot become smaller.
      const asked = event.ctrlKey || stage.contains(/** @type {Document} */ (stage.getRootNode()).activeElement);
      if (event.ctrlKey && !pane.empty) event.preventDefault(); // else the browser would zoom the page
      if (pane.empty || pane.spectrum || !asked || (factor < 1 && pane.view.scale <= 1)) return;
      event.preventDefault();
      board.look(pane, zoomed(pane.view, pane.room, pane.extent, pointOf(event), factor));
    },
    { passive: false },
  );

  stage.addEventListener("pointerdown", (event) => {
    if (pane.empty || event.button > 1) return;
    stage.setPointerCapture(event.pointerId);
    const point = pointOf(event);
    dragged = false;
    drag = { point, start: point, stroke: null, from: null, aims: null };
    const plain = event.button === 0 && !event.shiftKey && !pane.spectrum;
    if (plain && !board.tool && !pane.brush && pane.aim) drag.aims = grasped(pane.aim, pane.place, point);
    if (board.tool && plain) {
      drag.from = fixedEnd(pane, board.tool, point) ?? toArray(pane.place, point);
    } else if (pane.brush && event.button === 0 && !event.shiftKey) {
      drag.stroke = { path: [toArray(pane.place, point)], radius: pane.brush, erase: board.erase };
      pane.strokes.push(drag.stroke);
    }
    board.refresh(pane);
  });

  stage.addEventListener("pointermove", (event) => {
    if (pane.empty) return;
    const point = pointOf(event);
    if (drag?.stroke) {
      drag.stroke.path.push(toArray(pane.place, point));
    } else if (drag) {
      dragged ||= Math.hypot(point.y - drag.start.y, point.x - drag.start.x) > STILL;
      if (dragged && drag.aims) {
        const at = toArray(pane.place, point);
        board.aim(pane, { y: drag.aims.y ? at.y : null, x: drag.aims.x ? at.x : null });
      } else if (dragged && drag.from) {
        board.measuring.draft(pane, drag.from, toArray(pane.place, point), false);
      } else if (dragged && !pane.spectrum) {
        board.look(pane, panned(pane.view, pane.room, pane.extent, { y: point.y - drag.point.y, x: point.x - drag.point.x }));
        drag.point = point;
      }
    }
    board.cursors.point(pane, point, "off");
  });

  const release = (/** @type {PointerEvent} */ event) => {
    if (drag?.stroke) board.stroke(pane, drag.stroke);
    if (drag?.from && dragged) board.measuring.draft(pane, drag.from, toArray(pane.place, pointOf(event)), true);
    drag = null;
    if (event.type === "pointercancel") dragged = true;
  };
  stage.addEventListener("pointerup", release);
  stage.addEventListener("pointercancel", release);
  stage.addEventListener("pointerleave", () => board.cursors.point(pane, null, "off"));

  stage.addEventListener("click", (event) => {
    if (pane.spectrum) return board.measuring.ring(pane, pointOf(event));
    // The second click of a double click, which shows the whole picture, is not a separate click.
    const under = pane.under(pointOf(event));
    if (!under || dragged || pane.brush || event.detail > 1) return undefined;
    if (under.pane.aim && !board.tool) board.aim(under.pane, under.at);
    else board.click(under.pane, under.at);
    return undefined;
  });
  stage.addEventListener("dblclick", () => {
    if (!pane.brush && !pane.spectrum) board.look(pane, WHOLE);
  });
  stage.addEventListener("keydown", (event) => {
    if (!pane.empty && !event.ctrlKey && !event.metaKey && !event.altKey && pressed(pane, board, event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  });
}

/** What a drag does. aims: which lines of the crosshair it moves; from: the end of a measurement that stays.
 * @typedef {{ point: Point, start: Point, stroke: Stroke | null, from: Point | null, aims: { y: boolean, x: boolean } | null }} Drag */

/** Which lines of the crosshair are near this point and move with it, {y, x}; null: none.
 * @type {(aim: Aim, place: Place, point: Point) => { y: boolean, x: boolean } | null} */
export function grasped(aim, place, point) {
  const at = toScreen(place, { y: aim.y ?? 0, x: aim.x ?? 0 });
  const [y, x] = [aim.y !== null && Math.abs(at.y - point.y) <= NEAR, aim.x !== null && Math.abs(at.x - point.x) <= NEAR];
  return y || x ? { y, x } : null;
}

/** The centre of the element of the array at this point, [y, x], where the crosshair of a pane stands.
 * @type {(pane: { picture: Pick<Picture, "bands">, extent: Point }, aim: Aim) => [number | null, number | null]} */
export function aimedAt({ picture, extent }, { y, x }) {
  const [down, across] = picture.bands ?? [1, 1];
  /** @type {(value: number | null, band: number, size: number) => number | null} */
  const centre = (value, band, size) => (value === null ? null : (Math.floor(within(value, 0, size - 1e-6) / band) + 0.5) * band);
  return [centre(y, down, extent.y), centre(x, across, extent.x)];
}

/** The end of the measurement that stays while the one near this point is moved; null if none is near.
 * @type {(pane: Pick<Pane, "measure" | "place">, tool: string, point: Point) => Point | null} */
export function fixedEnd({ measure, place }, tool, point) {
  if (measure?.kind !== tool) return null;
  const ends = [measure.start, measure.stop].map(([y, x]) => ({ y, x }));
  const near = ends.findIndex((end) => {
    const at = toScreen(place, end);
    return Math.hypot(at.y - point.y, at.x - point.x) <= NEAR;
  });
  return near < 0 ? null : ends[1 - near];
}

/** Executes the action of a key; returns whether it has one.
 * @type {(pane: Pane, board: Board, event: KeyboardEvent) => boolean} */
function pressed(pane, board, event) {
  if (pane.spectrum) return false;
  const { room, extent, view } = pane;
  const arrow = ARROWS[event.key];
  if (arrow && event.shiftKey && pane.aim && !board.tool) {
    moveCrosshair(pane, board, arrow);
  } else if (arrow && event.shiftKey) {
    moveCross(pane, board, arrow);
  } else if (arrow) {
    board.look(pane, panned(view, room, extent, { y: -0.1 * arrow[0] * room.height, x: -0.1 * arrow[1] * room.width }));
  } else if (["+", "=", "-", "_"].includes(event.key)) {
    const middle = pane.cross ? toScreen(pane.place, pane.cross) : { y: room.height / 2, x: room.width / 2 };
    board.look(pane, zoomed(view, room, extent, middle, "+=".includes(event.key) ? 1.25 : 0.8));
  } else if (event.key === "0") {
    board.look(pane, WHOLE);
  } else if (event.key === "Enter" && pane.cross) {
    if (board.tool) {
      // The first Enter sets one end, the second the other.
      if (pane.anchor) board.measuring.draft(pane, pane.anchor, pane.cross, true);
      pane.anchor = pane.anchor ? null : pane.cross;
    } else if (pane.brush) {
      const stroke = { path: [pane.cross], radius: pane.brush, erase: board.erase };
      pane.strokes.push(stroke);
      board.stroke(pane, stroke);
    } else {
      board.click(pane, pane.cross);
    }
  } else if (event.key === "Escape" && pane.cross) {
    pane.cross = pane.anchor = null;
    board.cursors.point(pane, null, "off");
  } else {
    return false;
  }
  board.refresh(pane);
  return true;
}

/** A step of the crosshair: about four screen pixels, at least one element of the array.
 * @type {(pane: Pane, board: Board, arrow: Ends) => void} */
function moveCrosshair(pane, board, [down, across]) {
  const [high, wide] = pane.picture.bands ?? [1, 1];
  /** @type {(band: number) => number} */
  const step = (band) => band * Math.max(1, Math.round(4 / (pane.place.scale * band)));
  const { y, x } = /** @type {Aim} */ (pane.aim);
  board.aim(pane, { y: y === null ? null : y + step(high) * down, x: x === null ? null : x + step(wide) * across });
}

/** A step of the cross: about four screen pixels, at least one of the array; the picture follows it.
 * @type {(pane: Pane, board: Board, arrow: Ends) => void} */
function moveCross(pane, board, [down, across]) {
  const { room, extent } = pane;
  const step = Math.max(1, Math.round(4 / pane.place.scale));
  const from = pane.cross ?? toArray(pane.place, { y: room.height / 2, x: room.width / 2 });
  /** @type {(value: number, by: number, size: number) => number} */
  const move = (value, by, size) => within(Math.floor(value) + by + 0.5, 0.5, size - 0.5);
  pane.cross = { y: move(from.y, pane.cross ? step * down : 0, extent.y), x: move(from.x, pane.cross ? step * across : 0, extent.x) };
  const at = toScreen(pane.place, pane.cross);
  /** @type {(value: number, size: number) => number} */
  const over = (value, size) => Math.max(0, value - size + 12) + Math.min(0, value - 12);
  const by = { y: -over(at.y, room.height), x: -over(at.x, room.width) };
  if (by.y || by.x) board.look(pane, panned(pane.view, room, extent, by));
  board.cursors.point(pane, null, "polite");
}
