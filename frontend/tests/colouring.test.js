import assert from "node:assert/strict";
import { test } from "node:test";

import { Colouring } from "../src/viewer/colouring.js";
import { near } from "./near.js";

const flat = new Uint32Array(256).fill(10);

function boardOf(panes, traits = {}) {
  const values = { linked_colours: true, percentiles: [0.5, 99.5], colours: {}, limits: {}, cyclic: ["twilight"], ...traits };
  const board = {
    panes: new Map(panes.map((pane) => [pane.name, pane])),
    get: (name) => values[name],
    says: (name, value) => (values[name] = value),
    values,
  };
  return { board, colouring: new Colouring(board) };
}

function paneOf(name, limits, kind = "phase") {
  return { name, kind, counts: flat, limits, picture: { limits, colours: "viridis" } };
}

test("linked pictures of one kind show equal values in equal colours", () => {
  const [one, other] = [paneOf("one", [0, 255]), paneOf("other", [-255, 510])];
  const { colouring } = boardOf([one, other, paneOf("probe", [0, 1e6], "amplitude")]);
  // Levels 1 to 254 of the wider picture: of its values -252 to 507.
  const [low, high] = colouring.contrast(one, "viridis").contrast;
  near(low, -252);
  near(high, 507);
  assert.deepEqual(colouring.contrast(other, "viridis").contrast, [1, 254]);
});

test("separate pictures have each their own contrast, and the whole range needs no histogram", () => {
  const [one, other] = [paneOf("one", [0, 255]), paneOf("other", [-255, 510])];
  const { board, colouring } = boardOf([one, other], { linked_colours: false });
  assert.deepEqual(colouring.contrast(one, "viridis").contrast, [1, 254]);
  board.values.percentiles = [0, 100];
  one.counts = null;
  assert.deepEqual(colouring.contrast(one, "viridis").contrast, [0, 255]);
});

test("locked limits are levels of each picture, whatever its own limits", () => {
  const { colouring } = boardOf([paneOf("one", [0, 255]), paneOf("other", [0, 510])], { limits: { one: [51, 102] } });
  const [one, other] = colouring.board.panes.values();
  assert.deepEqual(colouring.contrast(one, "viridis"), { contrast: [51, 102], locked: true, cyclic: false });
  assert.deepEqual(colouring.contrast(other, "viridis").contrast, [25.5, 51]); // one like it that came later follows
});

test("a cyclic map shows the whole circle, also with locked limits", () => {
  const { colouring } = boardOf([paneOf("one", [0, 255])], { limits: { one: [51, 102] } });
  const [one] = colouring.board.panes.values();
  assert.deepEqual(colouring.contrast(one, "twilight"), { contrast: [0, 255], locked: false, cyclic: true });
});

test("a choice holds for all linked pictures of one kind, and for no other", () => {
  const { board, colouring } = boardOf([paneOf("one", [0, 1]), paneOf("other", [0, 1]), paneOf("probe", [0, 1], "amplitude")]);
  const [one, , probe] = board.panes.values();
  colouring.map(one, "magma");
  assert.deepEqual(board.values.colours, { one: "magma", other: "magma" });
  assert.equal(colouring.mapOf(probe), "viridis");
  colouring.limit(one, [0.2, 0.4]);
  assert.deepEqual(board.values.limits, { one: [0.2, 0.4], other: [0.2, 0.4] });
  colouring.limit(one, null);
  assert.deepEqual(board.values.limits, {});
});

test("separated pictures keep what they had together; linked again, they take the first choice", () => {
  const { board, colouring } = boardOf([paneOf("one", [0, 1]), paneOf("other", [0, 1])], { colours: { one: "magma" } });
  const [one, other] = board.panes.values();
  colouring.link(false);
  assert.deepEqual(board.values.colours, { one: "magma", other: "magma" });
  colouring.map(other, "gray");
  assert.equal(colouring.mapOf(one), "magma");
  colouring.link(true);
  assert.equal(colouring.mapOf(other), "magma");
});

test("automatic contrast unlocks all limits", () => {
  const { board, colouring } = boardOf([paneOf("one", [0, 1])], { limits: { one: [0, 0.5] } });
  colouring.automatic([1, 99]);
  assert.deepEqual([board.values.limits, board.values.percentiles], [{}, [1, 99]]);
});
