import assert from "node:assert/strict";

/** Asserts that two numbers are equal but for rounding. */
export function near(found, expected, tolerance = 1e-9) {
  const allowed = tolerance * Math.max(1, Math.abs(expected));
  assert.ok(Math.abs(found - expected) <= allowed, `found ${found}, expected ${expected}`);
}
