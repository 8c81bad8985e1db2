// The viewer: takes frames, lays out panes, draws on animation frames, and confirms what is drawn.

import { make, write } from "../elements.js";
import { listening } from "../model.js";
import { within } from "../numbers.js";
import { Colouring } from "./colouring.js";
import { Cursors } from "./cursor.js";
import { WHOLE, zoomed } from "./geometry.js";
import { aimedAt, listen } from "./input.js";
import { Measuring } from "./measuring.js";
import { Pairing } from "./pair.js";
import { Pane } from "./pane.js";
import { decoded } from "./pixels.js";
import { visibleRegion, wantedRegion } from "./region.js";
import { figureOf, offerFile, seenIn, titleOf } from "./saving.js";
import { makeToolbar } from "./toolbar.js";

/** @import { Aim, Frame, Model, Point, Region, RegionFrame, Render, Size, Source, Stroke, View } from "../types" */

const SYNC_MS = 100;
/** For how long a page asks for frames in advance, and how many at most. JupyterLab shows the kernel as busy and idle for
 * each message to it, which takes a page longer than a picture does. */
const AHEAD_MS = 800;
const MOST_AHEAD = 8;
/** How long a zoom or a move rests before a part is asked for with more pixels. */
const REST_MS = 150;
/** Height of what stands around a picture in full screen. */
const AROUND = 84;

export class Board {
  /** @param {Model} model @param {HTMLElement} element */
  constructor(model, element) {
    this.model = model;
    /** @type {Map<string, Pane>} */
    this.panes = new Map();
    /** Options that are open.
     * @type {Set<string>} */
    this.open = new Set();
    this.colouring = new Colouring(this);
    this.cursors = new Cursors(this);
    this.measuring = new Measuring(this);
    this.pairing = new Pairing(this);
    this.root = make("div", "ptynb-viewer");
    this.tools = makeToolbar(this);
    this.problem = make("div", "ptynb-problem");
    this.problem.setAttribute("role", "alert");
    this.shelf = make("div", "ptynb-panes");
    const edge = make("div", "ptynb-edge");
    edge.append(this.tools.row, this.tools.options);
    this.root.append(edge, this.problem, this.shelf);
    element.append(this.root);
    /** The newest frame, decoded, until it is drawn.
     * @type {{ frame: Frame, bitmaps: (Source | null)[] } | null} */
    this.waiting = null;
    /** @type {number | null} */
    this.animation = null;
    /** The newest pictures of a part, until they are drawn.
     * @type {{ part: RegionFrame, bitmaps: (Source | null)[] } | null} */
    this.waitingPart = null;
    /** @type {number | null} */
    this.timer = null;
    /** The part that is asked for with more pixels, and when it will be.
     * @type {Region | []} */
    this.region = this.get("region") ?? []; // that of another page, or of this one before it was loaded again
    /** @type {number | undefined} */
    this.resting = undefined;
    /** @type {Map<string, unknown>} */
    this.unsent = new Map();
    this.taken = this.takenPart = -1;
    this.drawnAt = -Infinity; // of no frame
    this.pace = Infinity;
    this.granted = 0;
    this.gone = this.decoding = this.stale = false;
    this.coarse = 1;
    this.sizes = new ResizeObserver((entries) => entries.forEach((entry) => this.resized(entry)));
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.layoutAgain = () => this.layout();
    document.addEventListener("fullscreenchange", this.layoutAgain);
    window.addEventListener("resize", this.layoutAgain);
    this.unfollow = this.follow();
    this.identity = Math.random().toString(36).slice(2);
    this.onScreen = false;
    this.watching = new IntersectionObserver(([entry]) => this.seen(entry.isIntersecting));
    this.watching.observe(this.root);
    this.seen(true);
  }

  /** Tells the kernel whether a user can see the viewer, which gets no frames otherwise.
   * @type {(onScreen: boolean) => void} */
  seen(onScreen) {
    if (onScreen === this.onScreen) return;
    this.onScreen = onScreen;
    this.model.send({ kind: onScreen ? "shown" : "hidden", name: this.identity });
  }

  /** @type {(trait: string) => any} */
  get(trait) {
    return this.model.get(trait);
  }

  /** Registers listeners for the kernel, and applies its current state; returns what ends the listeners. */
  follow() {
    const end = listening(this.model, {
      "change:frame change:region_frame": () => this.take(),
      "change:tables change:colours change:percentiles change:limits": () => this.recolour(),
      "change:view": () => this.viewed(),
      "change:points change:moves change:chosen change:labels": () => this.marked(),
      "change:crosshair": () => this.aimed(),
      "change:swipe change:swipe_at change:pairing": () => this.paired(),
      "change:columns change:height change:share change:tools": () => this.layout(),
      "change:percentiles change:limits change:linked_colours": () => this.tools.follow(),
      "change:linked_colours": () => this.recolour(),
      "change:figures change:said": () => this.equip(),
      "change:painted change:brush change:erase change:tool": () => this.equip(),
      "change:measure": () => this.measured(),
      "change:spectrum": () => this.transformed(),
      "change:resolution": () => this.encircled(),
      "change:problem": () => this.complain(this.get("problem")),
      "msg:custom": (message) => this.cursors.answered(message),
    });
    this.layout();
    this.complain(this.get("problem"));
    this.take();
    return end;
  }

  /**
   * Sets a trait, and sends it to the kernel at most a few times per second.
   *
   * The kernel echoes what it gets, so that an earlier value may come back before a later one is sent.
   * @type {(trait: string, value: unknown) => void}
   */
  says(trait, value) {
    this.unsent.set(trait, value);
    this.model.set(trait, value);
    this.timer ??= setTimeout(() => this.send(), SYNC_MS);
  }

  send() {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    for (const [trait, value] of this.unsent) this.model.set(trait, value);
    this.unsent.clear();
    this.model.save_changes();
  }

  /** @type {(text: string) => void} */
  complain(text) {
    write(this.problem, text);
    if (text) this.tools.follow();
  }

  // Frames

  async take() {
    if (this.decoding) return;
    this.decoding = true;
    while (!this.gone && (this.get("frame").number !== this.taken || this.regionFrame.number !== this.takenPart)) {
      /** @type {Frame} */
      const frame = this.get("frame");
      const part = this.regionFrame;
      const [fresh, freshPart] = [frame.number !== this.taken, part.number !== this.takenPart];
      [this.taken, this.takenPart] = [frame.number, part.number];
      const decode = (/** @type {Frame | RegionFrame} */ of, /** @type {boolean} */ wanted) => Promise.all(wanted ? of.pictures.map(decoded) : []);
      const [whole, parts] = await Promise.all([decode(frame, fresh), decode(part, freshPart)]);
      this.drop(fresh, freshPart);
      if (fresh) this.waiting = { frame, bitmaps: whole };
      if (freshPart) this.waitingPart = { part, bitmaps: parts };
      if (this.gone) this.drop();
      else this.schedule();
    }
    this.decoding = false;
  }

  /** The newest pictures of a part.
   * @returns {RegionFrame} */
  get regionFrame() {
    return this.get("region_frame") ?? { number: this.takenPart, pictures: [], corner: [0, 0] }; // a report has none
  }

  /** Discards a frame, and pictures of a part, that were not drawn. */
  drop(frame = true, part = true) {
    if (frame) {
      this.waiting?.bitmaps.forEach((bitmap) => bitmap?.close());
      this.waiting = null;
    }
    if (part) {
      this.waitingPart?.bitmaps.forEach((bitmap) => bitmap?.close());
      this.waitingPart = null;
    }
  }

  schedule() {
    this.animation ??= requestAnimationFrame(() => {
      this.animation = null;
      const number = this.waiting?.frame.number;
      if (this.waiting) this.change(this.waiting);
      this.waiting = null; // the panes have what was decoded
      if (this.waitingPart) this.showPart(this.waitingPart);
      this.waitingPart = null;
      // Here, so that several changes within a frame, as of a drag, take the colours once.
      if (this.stale) this.colouring.recolour();
      this.stale = false;
      for (const pane of this.panes.values()) pane.draw();
      this.measure();
      this.askForRegion();
      if (number !== undefined) this.confirm(number);
    });
  }

  /** @type {(waiting: { frame: Frame, bitmaps: (Source | null)[] }) => void} */
  change({ frame, bitmaps }) {
    const names = frame.pictures.map((picture) => picture.name);
    if (String(names) !== String([...this.panes.keys()])) this.build(names);
    frame.pictures.forEach((picture, index) => this.panes.get(picture.name)?.take(picture, bitmaps[index]));
    this.colouring.recolour(); // after all are there: their contrast may depend on each other
    this.root.dataset.frame = String(frame.number);
    this.pairing.follow();
    this.measuring.follow();
    if (this.get("spectrum")) this.measuring.transform();
    for (const pane of this.panes.values()) if (pane.pointer || pane.cross || pane.ghost) this.cursors.tell(pane);
  }

  /** Draws pictures of a part over those of all, unless nobody looks closer any more.
   * @type {(waiting: { part: RegionFrame, bitmaps: (Source | null)[] }) => void} */
  showPart({ part, bitmaps }) {
    const [y, x] = part.corner;
    const others = new Map(this.panes);
    part.pictures.forEach((picture, index) => {
      const [pane, source] = [this.panes.get(picture.name), bitmaps[index]];
      if (!source || !pane?.picture || !this.region.length) return source?.close();
      pane.showPart(picture, source, { y, x });
      return others.delete(picture.name);
    });
    for (const pane of others.values()) pane.removePart();
    this.root.dataset.part = String(part.number);
    this.colouring.recolour();
    this.measuring.follow();
    if (this.get("spectrum")) this.measuring.transform();
  }

  /** Asks for a part with more pixels where one of a picture is larger than one of the screen, once the user rests. */
  askForRegion() {
    if (!this.get("shows_regions")) return;
    const panes = [...this.panes.values()].filter((pane) => !pane.empty && !pane.figure.hidden);
    /** @type {(pane: Pane, reduction: number) => boolean} */
    const coarse = (pane, reduction) => reduction > 1 && pane.place.scale * reduction * (window.devicePixelRatio || 1) > 1;
    const close = panes.filter((pane) => coarse(pane, pane.picture.reduction));
    const visible = close.map((pane) => visibleRegion(pane.place, pane.room, pane.extent));
    const sharp = close.every(({ part }, index) => part?.covers(visible[index]) && !coarse(close[index], part.picture.reduction));
    const region = wantedRegion(visible, close[0]?.extent, this.region, sharp);
    this.root.dataset.region = String(region);
    if (String(region) === String(this.region)) return;
    this.region = region;
    if (!region.length) {
      for (const pane of this.panes.values()) pane.removePart();
      this.schedule();
    }
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      this.says("region", this.region);
      this.send();
    }, region.length ? REST_MS : 0);
  }

  /** Sends the required resolution of pictures, only if it changed on this page: other pages may differ. */
  measure() {
    const scales = [...this.panes.values()].filter((pane) => !pane.empty).map((pane) => pane.place.scale);
    if (scales.length === 0) return;
    const coarse = Math.max(1, Math.floor(1 / (Math.max(...scales) * (window.devicePixelRatio || 1))));
    if (coarse === this.coarse) return;
    this.coarse = coarse;
    this.says("coarse", coarse);
  }

  /** Asks for frames in advance: as many as were drawn in `AHEAD_MS` of late, again once less than half of them remain.
   * @type {(number: number) => void} */
  confirm(number) {
    if (!this.get("confirms") || this.get("shown") >= number) return;
    const now = performance.now();
    const took = now - this.drawnAt;
    this.pace = Number.isFinite(this.pace) ? (this.pace + took) / 2 : took;
    this.drawnAt = now;
    this.model.set("shown", number);
    const ahead = within(Math.floor(AHEAD_MS / this.pace), 1, MOST_AHEAD);
    if (this.granted - number > ahead / 2) return;
    this.granted = number + ahead;
    this.model.set("granted", this.granted);
    this.model.save_changes();
  }

  // Panes

  /** @type {(names: string[]) => void} */
  build(names) {
    const before = this.panes;
    this.pairing.end();
    this.panes = new Map(names.map((name) => [name, before.get(name) ?? this.makePane(name)]));
    for (const [name, pane] of before) {
      if (this.panes.has(name)) continue;
      this.sizes.unobserve(pane.stage);
      pane.end();
    }
    this.shelf.replaceChildren(...[...this.panes.values()].map((pane) => pane.figure));
    this.marked();
    this.aimed();
    this.layout();
  }

  /** @type {(name: string) => Pane} */
  makePane(name) {
    const pane = new Pane(name, this);
    pane.view = this.get("view");
    listen(pane, this);
    this.sizes.observe(pane.stage);
    return pane;
  }

  /** @type {(entry: ResizeObserverEntry) => void} */
  resized({ target, contentRect }) {
    for (const pane of this.panes.values()) {
      if (pane.stage !== target || !contentRect.width) continue;
      pane.resize(contentRect.width, contentRect.height);
      // Immediately: a canvas of a new size is empty until it is drawn.
      pane.draw();
    }
    if (this.get("spectrum")) this.measuring.transform();
  }

  layout() {
    const full = document.fullscreenElement === this.root ? this.filling() : null;
    const columns = full?.columns ?? this.get("columns");
    this.shelf.classList.toggle("ptynb-in-columns", columns > 0);
    this.shelf.style.setProperty("--ptynb-columns", String(columns || 1));
    const height = `max(${this.get("height")}px, ${100 * (this.get("share") ?? 0)}vh)`; // a report has no share
    this.shelf.style.setProperty("--ptynb-height", full ? `${full.height}px` : height);
    this.equip();
  }

  /** {columns, height}: with which the panes fill the screen. */
  filling() {
    const seen = [...this.panes.values()].filter((pane) => !pane.figure.hidden && pane.picture);
    const [width, height] = [window.innerWidth - 32, window.innerHeight - 60];
    const arrangements = seen.map((_, index) => {
      const columns = index + 1;
      const room = { width: width / columns - 14, height: height / Math.ceil(seen.length / columns) - AROUND };
      const scale = Math.min(...seen.map((pane) => Math.min(room.width / pane.extent.x, room.height / pane.extent.y)));
      return { columns, height: Math.max(room.height, 60), scale };
    });
    return arrangements.sort((one, other) => other.scale - one.scale)[0] ?? null;
  }

  fullScreen() {
    if (document.fullscreenElement === this.root) document.exitFullscreen();
    else this.root.requestFullscreen().catch(() => this.complain("This page may not fill the screen."));
  }

  /** Applies tools and brush to the panes. */
  equip() {
    this.tools.follow();
    const shown = this.get("tools") && this.open.has("contrast");
    for (const pane of this.panes.values()) {
      pane.brush = this.get("painted") === pane.name ? this.get("brush") : null;
      pane.stage.classList.toggle("ptynb-painted", pane.brush !== null);
      const hidden = !shown || !pane.picture?.limits || pane.spectrum !== null;
      pane.foot.classList.toggle("ptynb-plain", !hidden); // the histogram has the colours
      if (pane.contrast.root.hidden !== hidden) {
        pane.contrast.root.hidden = hidden;
        if (!hidden) pane.contrast.draw();
      }
      this.refresh(pane);
    }
  }

  /** Opens or closes options: "contrast", "pair", "figure" or "help".
   * @type {(name: string) => void} */
  toggle(name) {
    if (!this.open.delete(name)) this.open.add(name);
    this.equip();
  }

  recolour() {
    this.stale = true;
    this.schedule();
  }

  /** Draws all panes again: one may be part of another. */
  redraw() {
    for (const pane of this.panes.values()) pane.dirty = pane.overlayDirty = true;
    this.schedule();
  }

  /** @type {(pane: Pane) => void} */
  refresh(pane) {
    pane.overlayDirty = true;
    this.schedule();
  }

  // Zoom and pan

  /** @type {(pane: Pane, view: View) => void} */
  look(pane, view) {
    if (this.get("linked")) {
      this.says("view", view);
    } else {
      pane.view = view;
      this.redraw();
    }
  }

  viewed() {
    for (const pane of this.panes.values()) pane.view = this.get("view");
    if (this.get("spectrum")) this.measuring.transform();
    this.redraw();
  }

  /** @type {(factor: number) => void} */
  zoom(factor) {
    const middle = (/** @type {Size} */ { width, height }) => ({ y: height / 2, x: width / 2 });
    const panes = [...this.panes.values()].filter((pane) => !pane.empty);
    for (const pane of this.get("linked") ? panes.slice(0, 1) : panes) {
      this.look(pane, zoomed(pane.view, pane.room, pane.extent, middle(pane.room), factor));
    }
  }

  whole() {
    for (const pane of this.panes.values()) this.look(pane, WHOLE);
  }

  // Tools

  get tool() {
    return this.get("tools") && this.get("tool");
  }

  get erase() {
    return this.get("erase");
  }

  get tables() {
    return this.colouring.tables;
  }

  /** Executes the key of a tool, unless it is typed into a field.
   * @type {(event: KeyboardEvent) => void} */
  pressed(event) {
    const typing = /** @type {Element} */ (event.target).closest("input, select, textarea");
    if (!this.get("tools") || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const ending = event.key === "Escape" && this.get("tool") ? () => this.says("tool", "") : undefined;
    const act = ending ?? this.tools.keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  marked() {
    const floats = (/** @type {ArrayBufferView | undefined} */ bytes) => {
      return bytes && new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
    };
    for (const [name, pane] of this.panes) {
      const points = floats(this.get("points")[name]);
      pane.marks = { points, moves: floats(this.get("moves")[name]), chosen: this.get("chosen")[name] };
      pane.label = this.get("labels")[name] ?? "";
      this.refresh(pane);
    }
  }

  aimed() {
    for (const [name, pane] of this.panes) {
      const [y, x] = this.get("crosshair")[name] ?? [];
      pane.aim = y === undefined ? null : { y, x };
      this.refresh(pane);
    }
  }

  /** Moves the crosshair of a pane, and of those of the same shape, to a point of the array; null: it stays there.
   * @type {(pane: Pane, aim: Aim) => void} */
  aim(pane, { y, x }) {
    const shape = String(pane.picture.shape);
    /** @type {Record<string, [number, number]>} */
    const crosshair = this.get("crosshair");
    const moved = Object.fromEntries(Object.entries(crosshair).map(([name, place]) => {
      const same = String(this.panes.get(name)?.picture?.shape) === shape;
      return [name, same ? aimedAt(pane, { y: y ?? place[0], x: x ?? place[1] }) : place];
    }));
    this.says("crosshair", moved);
  }

  measured() {
    this.measuring.follow();
    this.equip();
  }

  transformed() {
    this.measuring.transform();
    this.measuring.follow();
    this.recolour();
    this.equip();
  }

  encircled() {
    this.measuring.encircle();
    this.equip();
  }

  paired() {
    this.pairing.follow();
    this.layout();
  }

  /** Shows two pictures in one pane; how: "swipe", "flicker", "difference", "": side by side again.
   * @type {(left: string, right: string, how?: string) => void} */
  pairUp(left, right, how = this.get("swipe").length ? this.get("pairing") : "") {
    if (how && left !== right) {
      this.says("pairing", how);
      this.says("swipe", [left, right]);
    } else {
      this.says("swipe", []);
    }
  }

  async save() {
    const panes = [...this.panes.values()].filter((pane) => !pane.empty && !pane.figure.hidden);
    if (!panes.length) return;
    const titles = panes.flatMap((pane) => seenIn(pane).map((one) => titleOf(one, pane)));
    const blob = await figureOf(this.shelf, panes, (pane) => this.colouring.mapOf(pane));
    offerFile(blob, `${titles.join("-").replace(/[^\w-]+/g, "_").slice(0, 80)}.png`);
  }

  /** @type {(pane: Pane, at: Point) => void} */
  click(pane, { y, x }) {
    if (this.get("clickable")) this.model.send({ kind: "click", name: pane.name, y, x });
  }

  /** @type {(pane: Pane, stroke: Stroke) => void} */
  stroke(pane, { path, radius, erase }) {
    const values = new Float32Array(path.flatMap(({ y, x }) => [y, x]));
    this.model.send({ kind: "stroke", name: pane.name, radius, erase }, undefined, [values.buffer]);
  }

  end() {
    this.gone = true;
    this.watching.disconnect();
    this.seen(false);
    this.unfollow();
    document.removeEventListener("fullscreenchange", this.layoutAgain);
    window.removeEventListener("resize", this.layoutAgain);
    if (this.timer !== null) this.send();
    clearTimeout(this.resting);
    this.cursors.end();
    this.measuring.end();
    this.pairing.end();
    if (this.animation !== null) cancelAnimationFrame(this.animation);
    this.sizes.disconnect();
    this.drop();
    for (const pane of this.panes.values()) pane.end();
    this.panes.clear();
    this.root.remove();
  }
}

/** @type {Render} */
export function render({ model, el }) {
  const board = new Board(model, el);
  return () => board.end();
}
