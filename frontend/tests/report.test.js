import assert from "node:assert/strict";
import { test } from "node:test";

import { decadeTicks, roundTicks } from "../src/widgets/curve.js";
import { bytesOf, numbersOf, tiffOf, valueIn, wordsOf } from "../src/report/values.js";
import { textChunk, withTexts } from "../src/viewer/saving.js";
import { near } from "./near.js";

/** Two layers of 3 x 4 complex numbers, each e^(i layer angle) times its index. */
function planeOf(quantity, layers = [1]) {
  const numbers = new Float32Array(2 * 24);
  for (let at = 0; at < 24; at += 1) {
    const angle = 0.1 * (1 + Math.floor(at / 12));
    numbers.set([at * Math.cos(angle), at * Math.sin(angle)], 2 * at);
  }
  return { numbers, extent: [3, 4], layers, corner: [1, 1], shape: [2, 3], phase: [0, 0, 0], quantity };
}

test("a value is that of the pixel at the corner plus its place, less the phase that was subtracted", () => {
  const [amplitude, phase] = valueIn(planeOf("phase"), 1, 2); // row 2, column 3 of layer 1
  near(amplitude, 12 + 2 * 4 + 3, 1e-6);
  near(phase, 0.2, 1e-6);
  near(valueIn({ ...planeOf("phase"), phase: [0.05, 0.01, 0.02] }, 1, 2)[1], 0.2 - 0.05 - 0.01 - 0.04, 1e-6);
});

test("layers are multiplied, and phases wrapped", () => {
  const [amplitude, phase] = valueIn({ ...planeOf("phase", [0, 1]), phase: [7, 0, 0] }, 0, 0);
  near(amplitude, 5 * 17, 1e-6);
  near(phase, 0.3 - 7 + 2 * Math.PI, 1e-5);
});

test("values that are not finite are 0", () => {
  const plane = planeOf("amplitude");
  plane.numbers.fill(NaN);
  assert.equal(valueIn(plane, 0, 0)[0], 0);
});

test("values in words have the digits of single precision", () => {
  assert.equal(wordsOf({ quantity: "phase" }, [2, -0.5]), "−0.50000 rad");
  assert.equal(wordsOf({ quantity: "amplitude" }, [2, -0.5]), "2.00000");
  assert.equal(wordsOf({}, [2, 0.5]), "2.00000, phase 0.50000 rad");
});

test("the numbers of a .npy file begin after its header", () => {
  const file = new Uint8Array(10 + 118 + 16);
  new DataView(file.buffer).setUint16(8, 118, true);
  new DataView(file.buffer).setFloat32(128, 1.5, true);
  assert.deepEqual([...numbersOf(file)], [1.5, 0, 0, 0]);
  assert.deepEqual([...bytesOf(btoa("\x00ÿA"))], [0, 255, 65]);
});

test("a TIFF has a page for each plane, with its values and the size of its pixels", () => {
  const planes = [planeOf("amplitude"), planeOf("phase")];
  const view = new DataView(tiffOf(planes, [1e-8, 2e-8]));
  assert.equal(view.getUint16(0, true), 0x4949);
  assert.equal(view.getUint16(2, true), 42);
  let at = view.getUint32(4, true);
  for (const [page, expected] of [17, 0.2].entries()) {
    const tags = new Map();
    const count = view.getUint16(at, true);
    for (let index = 0; index < count; index += 1) {
      const entry = at + 2 + 12 * index;
      const long = view.getUint16(entry + 2, true) !== 3;
      tags.set(view.getUint16(entry, true), long ? view.getUint32(entry + 8, true) : view.getUint16(entry + 8, true));
    }
    assert.deepEqual([tags.get(256), tags.get(257), tags.get(258), tags.get(339)], [3, 2, 32, 3]);
    near(view.getFloat32(tags.get(273), true), expected, 1e-6);
    const perCentimetre = (tag) => view.getUint32(tags.get(tag), true) / view.getUint32(tags.get(tag) + 4, true);
    near(perCentimetre(282), 0.01 / 2e-8);
    near(perCentimetre(283), 0.01 / 1e-8);
    at = view.getUint32(at + 2 + 12 * count, true);
    assert.equal(at === 0, page === 1);
  }
});

test("ticks of a linear axis are round and within it", () => {
  assert.deepEqual(roundTicks(1, 10, 5), [2, 4, 6, 8, 10]);
  assert.deepEqual(roundTicks(3, 97, 5), [20, 40, 60, 80]);
  assert.equal(roundTicks(-0.1, 0.1, 4).length, 5);
});

test("ticks of a logarithmic axis are 1, 2, 5 and powers, or powers alone over many", () => {
  assert.deepEqual(decadeTicks(0.9, 21), [1, 2, 5, 10, 20]);
  assert.deepEqual(decadeTicks(1e-3, 1e3), [1e-3, 1e-2, 1e-1, 1, 10, 100, 1e3]);
  assert.ok(decadeTicks(1e-30, 1e30).length <= 9);
});

test("a saved picture says what it shows, in a chunk that PNG readers accept", async () => {
  const chunk = textChunk("Description", "0 to 2π rad");
  const view = new DataView(chunk.buffer);
  assert.equal(view.getUint32(0), chunk.length - 12);
  assert.equal(view.getUint32(chunk.length - 4), 0x620c8039); // zlib.crc32 of Python, of type and data
  const file = Uint8Array.from({ length: 60 }, (_, index) => index);
  const saved = new Uint8Array(await (await withTexts(new Blob([file]), { Description: "0 to 2π rad" })).arrayBuffer());
  assert.deepEqual([...saved], [...file.subarray(0, 33), ...chunk, ...file.subarray(33)]);
});
