import assert from "node:assert/strict";
import { test } from "node:test";

import {
  complexOf,
  complexText,
  contrastOf,
  levelsAt,
  levelValue,
  narrowed,
  shade,
  stretched,
  tablesOf,
} from "../src/viewer/levels.js";
import { near } from "./near.js";

const flat = new Uint32Array(256).fill(10);
const grey = Uint32Array.from({ length: 256 }, (_, level) => (0xff000000 | (level * 0x010101)) >>> 0);

test("percentiles of a flat histogram are the levels themselves", () => {
  assert.deepEqual(contrastOf(flat, [0, 100]), [0, 255]);
  assert.deepEqual(contrastOf(flat, [25, 75]), [63, 191]);
  assert.deepEqual(contrastOf(flat, [0.5, 99.5]), [1, 254]);
});

test("a contrast has two different ends, also of a picture with one level", () => {
  for (const level of [0, 100, 255]) {
    const counts = new Uint32Array(256);
    counts[level] = 7;
    const [low, high] = contrastOf(counts, [0.5, 99.5]);
    assert.ok(low < high && low >= 0 && high <= 255, `${low} ${high}`);
    assert.ok(low <= level && level <= high);
  }
});

test("one bright pixel in a thousand does not set the contrast", () => {
  const counts = new Uint32Array(256);
  for (let level = 0; level < 100; level += 1) counts[level] = 10;
  counts[255] = 1;
  assert.equal(contrastOf(counts, [0, 99.5])[1], 99);
  assert.equal(contrastOf(counts, [0, 100])[1], 255);
});

test("a table is stretched between the ends of the contrast, and clipped outside", () => {
  assert.deepEqual(stretched(grey, [0, 255]), grey);
  const half = stretched(grey, [64, 192]);
  assert.equal(half[64], grey[0]);
  assert.equal(half[10], grey[0]);
  assert.equal(half[128], grey[128]);
  assert.equal(half[192], grey[255]);
  assert.equal(half[250], grey[255]);
});

test("a locked contrast may lie outside of the levels", () => {
  const beyond = stretched(grey, [-255, 510]);
  assert.equal(beyond[0], grey[85]);
  assert.equal(beyond[255], grey[170]);
});

test("the value of a level is the middle of its interval", () => {
  near(levelValue(0, [10, 266]), 10.5);
  near(levelValue(255, [10, 266]), 265.5);
  near(levelValue(128, [-1, 1]), 1 / 256);
});

test("values at levels and levels at values lead to each other", () => {
  assert.deepEqual(narrowed([0, 255], [10, 20]), [10, 20]);
  assert.deepEqual(narrowed([-1, 1], [0, 255]), [-1, 1]);
  levelsAt([3, 7.5], narrowed([3, 7.5], [17, 201])).forEach((level, end) => near(level, [17, 201][end]));
});

test("tables of the kernel have red in the lowest byte, as canvases do, and are opaque", () => {
  const bytes = new Uint8Array(4 + 768); // where a message puts them, an array may begin anywhere
  bytes.set([1, 2, 3], 4);
  bytes.set([250, 251, 252], 4 + 3 * 255);
  const { one } = tablesOf({ one: new DataView(bytes.buffer, 4, 768) });
  assert.equal(one.length, 256);
  assert.deepEqual([...new Uint8Array(one.buffer, 0, 4)], [1, 2, 3, 255]);
  assert.deepEqual([...new Uint8Array(one.buffer, 4 * 255, 4)], [250, 251, 252, 255]);
});

test("pixels take the colours of their levels and keep their opacity", () => {
  const pixels = Uint32Array.from([0xff111111, 0x00222222]);
  shade(pixels, Uint8Array.from([7, 200]), grey);
  assert.deepEqual([...pixels], [0xff070707, 0x00c8c8c8]);
});

test("the hue of a complex picture is its phase, the brightness its amplitude", () => {
  const third = (2 * Math.PI) / 3;
  for (const [rgb, amplitude, phase] of [
    [[255, 0, 0], 1, 0],
    [[0, 255, 0], 1, third],
    [[0, 0, 255], 1, -third],
    [[0, 127.5, 127.5], 0.5, Math.PI],
    [[51, 51, 0], 0.2, Math.PI / 3],
  ]) {
    const found = complexOf(...rgb);
    near(found[0], amplitude);
    near(Math.cos(found[1] - phase), 1);
  }
  assert.deepEqual(complexOf(255, 255, 255), [1, null]);
});

test("a complex value in words", () => {
  assert.equal(complexText([0, 0, 255]), "100% of the largest, phase −2.09 rad");
  assert.equal(complexText([0, 0, 0]), "0% of the largest");
});
