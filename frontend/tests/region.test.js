import assert from "node:assert/strict";
import { test } from "node:test";

import { placed, WHOLE } from "../src/viewer/geometry.js";
import { visibleRegion, wantedRegion } from "../src/viewer/region.js";

const ROOM = { width: 400, height: 200 };
const EXTENT = { y: 1000, x: 1000 };

test("what is visible of an array ends at its edges", () => {
  assert.deepEqual(visibleRegion(placed(WHOLE, ROOM, EXTENT), ROOM, EXTENT), [0, 1000, 0, 1000]);
  const [top, bottom, left, right] = visibleRegion(placed({ y: 0.5, x: 0, scale: 4 }, ROOM, EXTENT), ROOM, EXTENT);
  assert.deepEqual([top, bottom, left, right], [375, 625, 0, 500]);
});

test("nothing is asked for where no picture is too coarse", () => {
  assert.deepEqual(wantedRegion([], EXTENT, [0, 10, 0, 10], false), []);
});

test("what is asked for has a margin of a quarter, within the array, in whole pixels", () => {
  assert.deepEqual(wantedRegion([[375, 625, 0, 500]], EXTENT, [], false), [312, 688, 0, 625]);
});

test("what several panes show is asked for together", () => {
  assert.deepEqual(wantedRegion([[400, 600, 400, 500], [450, 550, 300, 500]], EXTENT, [], false), [350, 650, 250, 550]);
});

test("a move within the margin asks for nothing new, and one beyond it does", () => {
  const before = [312, 688, 0, 625];
  assert.equal(wantedRegion([[400, 650, 100, 600]], EXTENT, before, false), before);
  assert.deepEqual(wantedRegion([[460, 710, 100, 600]], EXTENT, before, true), [397, 773, 0, 725]);
});

test("a closer look asks anew unless the pixels of the array are there, or more than the screen has", () => {
  const before = [312, 688, 0, 625];
  const visible = [[450, 550, 200, 400]];
  assert.equal(wantedRegion(visible, EXTENT, before, true), before);
  assert.deepEqual(wantedRegion(visible, EXTENT, before, false), [425, 575, 150, 450]);
});
