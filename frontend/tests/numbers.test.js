import assert from "node:assert/strict";
import { test } from "node:test";

import { areaText, lengthText, numberText, readNumber, shortNumber } from "../src/numbers.js";

test("a value has the digits that a grey level resolves", () => {
  assert.equal(numberText(1.23456, [0, 2.55]), "1.23");
  assert.equal(numberText(123.456, [0, 255]), "123");
  assert.equal(numberText(-0.123456, [-1, 1]), "−0.123");
  assert.equal(numberText(1e-9, [0, 1]), "0");
  assert.equal(numberText(0.4, [0, 1000]), "0");
});

test("large and small values have an exponent, without zeros at the end", () => {
  assert.equal(numberText(123456, [0, 255000]), "1.235e5");
  assert.equal(numberText(200000, [0, 255000]), "2e5");
  assert.equal(numberText(-3.2e-5, [-2.55e-4, 0]), "−3.2e-5");
});

test("limits that are equal give three digits", () => {
  assert.equal(numberText(0.5, [0.5, 0.5]), "0.500");
  assert.equal(numberText(2345678, [2345678, 2345678]), "2.346e6");
});

test("lengths are in the unit that suits them", () => {
  assert.equal(lengthText(1.5), "1.5 m");
  assert.equal(lengthText(2.5e-6), "2.5 µm");
  assert.equal(lengthText(0.9999e-6), "1 µm");
  assert.equal(lengthText(12.34e-9), "12.3 nm");
  assert.equal(lengthText(4e-13), "0.4 pm");
});

test("areas are in squares of the unit that suits them", () => {
  assert.equal(areaText(100, null), "100 px²");
  assert.equal(areaText(100, [10e-9, 20e-9]), "0.02 µm² (100 px)");
  assert.equal(areaText(4, [1e-9, 1e-9]), "4 nm² (4 px)");
});

test("numbers of a curve have six digits at its ticks and five at its cursor", () => {
  assert.equal(shortNumber(0.1 + 0.2), "0.3");
  assert.equal(shortNumber(-1234.5), "−1234.5");
  assert.equal(shortNumber(1e6), "1e6");
  assert.equal(shortNumber(0), "0");
  assert.equal(readNumber(1.2345678), "1.2346");
  assert.equal(readNumber(-2.5e-7), "−2.5e-7");
});
