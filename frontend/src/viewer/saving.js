// Files from the page: a picture of all panes as they are shown, with what it shows written into the file.

import { contextOf, make } from "../elements.js";
import { placed, toArray } from "./geometry.js";
import { DIVERGING } from "./pair.js";

/** @import { Context, Pane } from "../types" */

const MARGIN = 10;
const FOOT = 24;
/** @type {("y" | "x")[]} */
export const AXES = ["y", "x"];

/** @type {(blob: Blob, name: string) => void} */
export function offerFile(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", "", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const CRC = Uint32Array.from({ length: 256 }, (_, value) => {
  let rest = value;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? 0xedb88320 ^ (rest >>> 1) : rest >>> 1;
  return rest;
});

/** A chunk of a PNG file with a text (iTXt, UTF-8).
 * @type {(keyword: string, text: string) => Uint8Array<ArrayBuffer>} */
export function textChunk(keyword, text) {
  const body = new TextEncoder().encode(`iTXt${keyword}\0\0\0\0\0${text}`);
  const bytes = new Uint8Array(body.length + 8);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, body.length - 4);
  bytes.set(body, 4);
  const sum = body.reduce((rest, byte) => CRC[(rest ^ byte) & 255] ^ (rest >>> 8), 0xffffffff);
  view.setUint32(body.length + 4, ~sum >>> 0);
  return bytes;
}

/** The PNG with texts after its first chunk, the header of 33 bytes.
 * @type {(blob: Blob, texts: Record<string, string>) => Promise<Blob>} */
export async function withTexts(blob, texts) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const chunks = Object.entries(texts).map(([keyword, text]) => textChunk(keyword, text));
  return new Blob([bytes.subarray(0, 33), ...chunks, bytes.subarray(33)], { type: "image/png" });
}

/** A canvas as a PNG file.
 * @type {(canvas: HTMLCanvasElement) => Promise<Blob>} */
export async function pngOf(canvas) {
  const blob = await new Promise((/** @type {BlobCallback} */ take) => canvas.toBlob(take, "image/png"));
  if (blob === null) throw new Error("The browser made no PNG of this canvas.");
  return blob;
}

/** The panes whose pictures are seen in the place of one: its own; of two in turn one of them; both at a slider.
 * @type {(pane: Pane) => Pane[]} */
export function seenIn(pane) {
  const { beside } = pane;
  if (!beside || beside.at >= 1) return [pane];
  return beside.at <= 0 ? [beside.pane] : [pane, beside.pane];
}

/** What is above a picture; owner: the pane in whose place it is seen.
 * @type {(pane: Pane, owner: Pane) => string} */
export function titleOf(pane, owner) {
  if (owner.spectrum) return `${owner.picture.title}, spectrum`;
  return owner.difference ? owner.difference.title : pane.picture.title;
}

/** A picture in words: values at the ends of the colours, map, pixel, part. owner: the pane in whose place it is seen.
 * @type {(pane: Pane, owner: Pane, map: string) => string} */
function descriptionOf(pane, owner, map) {
  const { picture } = pane;
  const { room, difference } = owner;
  const place = placed(owner.view, room, pane.extent);
  const [begin, end] = [toArray(place, { y: 0, x: 0 }), toArray(place, { y: room.height, x: room.width })];
  const part = AXES.map((axis) => {
    return `${axis} ${Math.max(0, Math.floor(begin[axis]))} to ${Math.min(pane.extent[axis], Math.ceil(end[axis]))}`;
  });
  const size = picture.pixel_size ? `pixel ${picture.pixel_size.join(" x ")} m (y, x)` : "";
  const ends = difference ? [-difference.most, difference.most] : pane.ends;
  const range = picture.limits ? `${ends.join(" to ")} ${picture.unit}`.trim() : "hue: phase, brightness: amplitude";
  const colours = picture.limits ? `colour map ${difference ? DIVERGING : map}` : "";
  return [titleOf(pane, owner), range, colours, `${part.join(", ")} px`, size].filter(Boolean).join("; ");
}

/**
 * All visible panes as one PNG, where they are on the page; at least two pixels for one of the screen. mapOf: the colour
 * map of a pane.
 * @type {(shelf: Element, panes: Pane[], mapOf: (pane: Pane) => string) => Promise<Blob>}
 */
export async function figureOf(shelf, panes, mapOf) {
  const seen = panes.filter((pane) => !pane.empty && !pane.figure.hidden);
  const factor = Math.max(2, window.devicePixelRatio || 1);
  const origin = shelf.getBoundingClientRect();
  const boxes = seen.map((pane) => pane.stage.getBoundingClientRect());
  const right = Math.max(...boxes.map((box) => box.right)) - origin.left;
  const bottom = Math.max(...boxes.map((box) => box.bottom)) - origin.top;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round((right + 2 * MARGIN) * factor);
  canvas.height = Math.round((bottom + FOOT + 2 * MARGIN) * factor);
  const context = contextOf(canvas);
  context.scale(factor, factor);
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  seen.forEach((pane, index) => {
    const box = boxes[index];
    context.save();
    context.translate(box.left - origin.left + MARGIN, box.top - origin.top + MARGIN);
    const shown = seenIn(pane);
    shown.forEach((one, at) => drawFrame(context, one, pane, at / shown.length, 1 / shown.length));
    context.beginPath();
    context.rect(0, 0, pane.room.width, pane.room.height);
    context.clip();
    pane.drawStage(context);
    pane.drawOver(context);
    context.restore();
  });
  const blob = await pngOf(canvas);
  const lines = seen.flatMap((pane) => seenIn(pane).map((one) => descriptionOf(one, pane, mapOf(one))));
  return withTexts(blob, { Description: lines.join("\n") });
}

/** Title above a picture, colours and their ends below, in a part of the width of the pane in whose place it is seen.
 * @type {(context: Context, pane: Pane, owner: Pane, from: number, part: number) => void} */
function drawFrame(context, pane, owner, from, part) {
  const { picture, low, high, bar } = pane;
  const { height } = owner.room;
  const [start, width] = [from * owner.room.width, part * owner.room.width - (part < 1 ? MARGIN : 0)];
  context.fillStyle = "#1c2024";
  context.textAlign = "left";
  context.font = "600 13px system-ui, sans-serif";
  context.fillText(titleOf(pane, owner), start, -8, width);
  context.font = "12px system-ui, sans-serif";
  if (owner.difference) context.fillText(owner.difference.colours, start, height + 17, width);
  if (!picture.limits || owner.spectrum || owner.difference) return;
  const [left, right] = [low, high].map(({ textContent }) => context.measureText(textContent).width + 6);
  context.fillText(low.textContent, start, height + 17);
  context.drawImage(bar, start + left, height + 8, Math.max(width - left - right, 1), 10);
  context.fillText(high.textContent, start + width - right + 6, height + 17);
}
