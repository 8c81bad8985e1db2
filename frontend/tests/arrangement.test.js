import assert from "node:assert/strict";
import { test } from "node:test";

import { arranged, cellsFor, cutsWidth, GAP } from "../src/widgets/arrangement.js";
import { near } from "./near.js";

test("pictures get the columns with which they are largest", () => {
  assert.equal(cellsFor(2, { width: 1000, height: 400 }, 1, 40).columns, 2);
  assert.equal(cellsFor(2, { width: 400, height: 1000 }, 1, 40).columns, 1);
  assert.equal(cellsFor(4, { width: 800, height: 800 }, 1, 0).columns, 2);
  assert.equal(cellsFor(3, { width: 900, height: 900 }, 3, 0).columns, 1);
});

test("the area of a picture is that of a room less gaps and texts", () => {
  near(cellsFor(1, { width: 500, height: 340 }, 1, 40).area, 300 ** 2);
  near(cellsFor(2, { width: 600 + GAP, height: 620 }, 0.5, 0).area, 300 * 600);
  assert.equal(cellsFor(1, { width: 500, height: 30 }, 1, 40).area, 0);
});

test("the strip is below the pictures of a high room, and beside those of a wide one", () => {
  assert.equal(arranged({ width: 700, height: 1400 }, 1, 1, 40, 30).place, "below");
  assert.equal(arranged({ width: 1800, height: 700 }, 1, 1, 40, 30).place, "beside");
});

test("the strip and the column of cuts keep their limits", () => {
  for (const room of [{ width: 300, height: 250 }, { width: 4000, height: 3000 }]) {
    const { place, strip } = arranged(room, 2, 1, 40, 30);
    const [low, high] = place === "below" ? [150, 340] : [170, 460];
    assert.ok(low <= strip && strip <= high, `${strip}`);
  }
  assert.deepEqual([cutsWidth(100), cutsWidth(1000), cutsWidth(5000)], [150, 270, 440]);
});
