import assert from "node:assert/strict";
import { test } from "node:test";

import { alikeNames, differenceOf } from "../src/viewer/pair.js";
import { seenIn, titleOf } from "../src/viewer/saving.js";
import { near } from "./near.js";

const paneOf = (name, kind) => ({ name, kind, picture: kind ? { title: name } : null });

test("the pair that is offered is the first two pictures of one kind, else the first two", () => {
  const [phase, amplitude, other] = [paneOf("a", "phase"), paneOf("b", "amplitude"), paneOf("c", "phase")];
  assert.deepEqual(alikeNames([phase, amplitude, other]), ["a", "c"]);
  assert.deepEqual(alikeNames([amplitude, phase, other]), ["a", "c"]);
  assert.deepEqual(alikeNames([phase, amplitude]), ["a", "b"]);
  assert.deepEqual(alikeNames([paneOf("x", null), paneOf("y", null), phase]), ["x", "y"]);
});

test("a difference is of values, not of levels", () => {
  const values = (low, step) => Float64Array.from({ length: 256 }, (_, level) => low + step * level);
  const one = { levels: Uint8Array.from([0, 100, 255]), values: values(0, 1), limits: [0, 255] };
  const other = { levels: Uint8Array.from([10, 10, 10]), values: values(-5, 2), limits: [-5, 505] };
  const found = differenceOf(one, other, undefined);
  assert.deepEqual([...found.values], [-15, 85, 240]);
  assert.equal(differenceOf(one, other, found.values).values, found.values);
  assert.equal(differenceOf(one, other, new Float32Array(2)).values.length, 3);
});

test("one value in 200 may exceed the ends of the colours of a difference", () => {
  const grid = { levels: Uint8Array.from({ length: 1000 }, (_, at) => (at < 4 ? 255 : 50)), limits: [0, 255] };
  grid.values = Float64Array.from({ length: 256 }, (_, level) => level);
  const nothing = { levels: new Uint8Array(1000), values: grid.values, limits: [0, 255] };
  near(differenceOf(grid, nothing, undefined).most, 50);
  near(differenceOf(nothing, grid, undefined).most, 50);
});

test("equal pictures have a difference in colours of a level", () => {
  const grid = { levels: new Uint8Array(4), values: new Float64Array(256), limits: [1, 52] };
  near(differenceOf(grid, grid, undefined).most, 0.2);
});

test("of a pair in one pane the picture that is seen is saved, both at a slider", () => {
  const right = paneOf("right", "phase");
  const left = (at) => ({ ...paneOf("left", "phase"), beside: { pane: right, at } });
  const seen = (at) => seenIn(left(at)).map(({ name }) => name);
  assert.deepEqual([seen(0), seen(0.5), seen(1)], [["right"], ["left", "right"], ["left"]]);
  assert.deepEqual(seenIn(right), [right]);
  assert.equal(titleOf(right, { ...left(0), difference: { title: "left − right" } }), "left − right");
  assert.equal(titleOf(right, left(0)), "right");
});
