import assert from "node:assert/strict";
import { test } from "node:test";

import { periodAt, transform, visiblePart } from "../src/viewer/spectrum.js";
import { near } from "./near.js";

const SIDE = 32;

test("the transform of a wave is one point, with the axes exchanged", () => {
  const [real, imaginary] = [new Float32Array(SIDE * SIDE), new Float32Array(SIDE * SIDE)];
  for (let row = 0; row < SIDE; row += 1) {
    for (let column = 0; column < SIDE; column += 1) {
      const phase = (2 * Math.PI * (3 * row + 7 * column)) / SIDE;
      real[row * SIDE + column] = Math.cos(phase);
      imaginary[row * SIDE + column] = Math.sin(phase);
    }
  }
  transform(real, imaginary, SIDE);
  for (let index = 0; index < SIDE * SIDE; index += 1) {
    near(real[index], index === 7 * SIDE + 3 ? SIDE * SIDE : 0, 1e-2);
    near(imaginary[index], 0, 1e-2);
  }
});

test("the transform is that of the definition", () => {
  const given = Float64Array.from({ length: 64 }, (_, index) => ((index * 37) % 23) - 11);
  const [real, imaginary] = [Float32Array.from(given), new Float32Array(64)];
  transform(real, imaginary, 8);
  for (let row = 0; row < 8; row += 1) {
    for (let column = 0; column < 8; column += 1) {
      let [sumReal, sumImaginary] = [0, 0];
      for (let at = 0; at < 64; at += 1) {
        const phase = (-2 * Math.PI * (row * Math.floor(at / 8) + column * (at % 8))) / 8;
        sumReal += given[at] * Math.cos(phase);
        sumImaginary += given[at] * Math.sin(phase);
      }
      near(real[column * 8 + row], sumReal, 1e-4);
      near(imaginary[column * 8 + row], sumImaginary, 1e-4);
    }
  }
});

const SPECTRUM = { side: 64, pixel: 128 }; // of a picture whose pixels are two of the array
const ROOM = { width: 640, height: 640 };

test("a point of the spectrum has the period of its frequency", () => {
  const at = { y: 325, x: 325 + 80 }; // eight pixels of the spectrum right of the middle
  const found = periodAt(ROOM, SPECTRUM, null, at);
  near(found.pixels, 16);
  assert.equal(found.length, null);
  near(found.angle, 0);
  near(periodAt(ROOM, SPECTRUM, [1e-9, 2e-9], at).length * 1e9, 32);
  near(periodAt(ROOM, SPECTRUM, [1e-9, 2e-9], { y: 325 - 80, x: 325 }).length * 1e9, 16);
  near(periodAt(ROOM, SPECTRUM, null, { y: 325 - 80, x: 325 }).angle, 90);
});

test("the middle of a spectrum, and what is outside, has no period", () => {
  assert.equal(periodAt(ROOM, SPECTRUM, null, { y: 325, x: 326 }), null);
  assert.equal(periodAt({ width: 900, height: 640 }, SPECTRUM, null, { y: 300, x: 5 }), null);
});

test("the visible part is in pixels of the picture, within it, and at most 1024 of them", () => {
  const room = { width: 100, height: 50 };
  const part = (place, width, height, reduction = 1) => {
    return visiblePart({ place, room, source: { width, height }, picture: { reduction } });
  };
  assert.deepEqual(part({ scale: 2, left: -20, top: -10 }, 200, 200), { top: 5, left: 10, height: 25, width: 50 });
  assert.deepEqual(part({ scale: 2, left: -20, top: -10 }, 20, 9, 2), { top: 3, left: 5, height: 6, width: 15 });
  assert.deepEqual(part({ scale: 0.02, left: 0, top: 0 }, 5000, 500), { top: 0, left: 1988, height: 500, width: 1024 });
});
