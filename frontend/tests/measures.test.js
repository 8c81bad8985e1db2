import assert from "node:assert/strict";
import { test } from "node:test";

import { measureLine, measureText, profileOf, spectrumLine, statisticsOf } from "../src/viewer/measures.js";
import { near } from "./near.js";

/** A picture of levels, whose values are the levels. */
function gridOf(height, width, level, reduction = 1) {
  const levels = Uint8Array.from({ length: height * width }, (_, at) => level(Math.floor(at / width), at % width));
  const values = Float64Array.from({ length: 256 }, (_, value) => value);
  return { levels, values, width, height, reduction, limits: [0, 255], unit: "rad" };
}

const ramp = gridOf(20, 31, (row, column) => 3 * column + 5 * row);

test("a profile along a plane is a line, from end to end", () => {
  const { distances, values } = profileOf(ramp, { y: 2.5, x: 3.5 }, { y: 14.5, x: 19.5 }, 1);
  near(distances[distances.length - 1], 20);
  assert.equal(distances.length, 21);
  values.forEach((value, index) => near(value, 3 * (3 + 0.8 * distances[index]) + 5 * (2 + 0.6 * distances[index])));
});

test("the width of a profile averages across it, and does not shift it", () => {
  const step = gridOf(21, 31, (row) => (row === 10 ? 90 : 0));
  const centre = (wide) => profileOf(step, { y: 10.5, x: 4 }, { y: 10.5, x: 25 }, wide).values[10];
  near(centre(1), 90);
  near(centre(3), 30);
  near(centre(9), 10);
});

test("a picture of a part is measured in pixels of the whole array", () => {
  const part = { ...gridOf(10, 16, (row, column) => 3 * column + 5 * row), corner: { y: 40, x: 60 } };
  const { values } = profileOf(part, { y: 42.5, x: 63.5 }, { y: 42.5, x: 67.5 }, 1);
  values.forEach((value, index) => near(value, 3 * (3 + index) + 5 * 2));
  const { mean, pixels } = statisticsOf(part, { y: 41, x: 62 }, { y: 43, x: 64 }, "rectangle");
  near(mean, 3 * 2.5 + 5 * 1.5);
  assert.equal(pixels, 4);
});

test("a profile beyond the picture repeats its edge, and of no length has two values", () => {
  const { values } = profileOf(ramp, { y: 0.5, x: -9 }, { y: 0.5, x: 0.5 }, 1);
  assert.ok(values.every((value) => value === 0));
  assert.equal(profileOf(ramp, { y: 3, x: 3 }, { y: 3, x: 3 }, 1).values.length, 2);
});

test("a profile of a reduced picture is in pixels of the array", () => {
  const coarse = gridOf(10, 16, (_, column) => 10 * column, 4);
  const { distances, values } = profileOf(coarse, { y: 20, x: 2 }, { y: 20, x: 42 }, 1);
  near(distances[distances.length - 1], 40);
  assert.equal(distances.length, 11);
  values.forEach((value, index) => near(value, 10 * index));
});

test("statistics of a rectangle are those of the pixels with their centres in it", () => {
  const found = statisticsOf(ramp, { y: 12.4, x: 9.6 }, { y: 1.6, x: 3.6 }, "rectangle"); // rows 2 to 11, columns 4 to 9
  assert.equal(found.pixels, 60);
  near(found.mean, 3 * 6.5 + 5 * 6.5);
  near(found.deviation, Math.sqrt((9 * (6 ** 2 - 1)) / 12 + (25 * (10 ** 2 - 1)) / 12));
  assert.equal(found.least, 3 * 4 + 5 * 2);
  assert.equal(found.most, 3 * 9 + 5 * 11);
  assert.deepEqual(found.clipped, [false, false]);
});

test("an ellipse has the area and the symmetry of one", () => {
  const disc = gridOf(200, 300, (row, column) => (((row - 99.5) / 80) ** 2 + ((column - 149.5) / 120) ** 2 <= 1 ? 200 : 1));
  const found = statisticsOf(disc, { y: 20, x: 30 }, { y: 180, x: 270 }, "ellipse");
  near(found.pixels, Math.PI * 80 * 120, 2e-3);
  assert.equal(found.least, 200);
  near(found.deviation, 0);
});

test("pixels are counted in those of the array, and clipped levels are known", () => {
  const found = statisticsOf(gridOf(4, 4, (row) => (row < 2 ? 0 : 255), 2), { y: 0, x: 0 }, { y: 8, x: 8 }, "rectangle");
  assert.equal(found.pixels, 64);
  assert.deepEqual(found.clipped, [true, true]);
  near(found.mean, 127.5);
});

test("a region without a pixel's centre has no statistics", () => {
  assert.equal(statisticsOf(ramp, { y: 3.6, x: 3.6 }, { y: 3.9, x: 3.9 }, "rectangle"), null);
  const text = measureText({ kind: "rectangle", start: [3.6, 3.6], stop: [3.9, 3.9] }, ramp, null);
  assert.equal(text, "No pixel has its centre in this region.");
});

test("the words of measurements have lengths, angles, units and limits", () => {
  const ruler = { kind: "ruler", start: [4, 0], stop: [0, 3] };
  assert.equal(measureText(ruler, ramp, null), "Length 5 px; angle 53.1°");
  assert.equal(measureText({ ...ruler, start: [0, 0], stop: [4, 3] }, ramp, [1e-9, 1e-9]), "Length 5 nm, 5 px; angle −53.1°");
  const flat = gridOf(4, 4, () => 255);
  assert.equal(
    measureText({ kind: "rectangle", start: [0, 0], stop: [4, 4] }, flat, [1e-8, 1e-8]),
    "Rectangle: mean 255 rad, standard deviation 0 rad, minimum 255 rad, maximum ≥ 255 rad, area 1600 nm² (16 px)",
  );
});

test("lines of Python count from the centre of the first pixel", () => {
  const picture = { pixel_size: [2e-9, 3e-9] };
  const line = (kind, more) => measureLine({ kind, start: [0.5, 1.5], stop: [10.5, 21.5], ...more }, picture, "phase");
  assert.equal(line("profile", { width: 3 }), "pt.analysis.line_profile(phase, (0, 1), (10, 21), width=3, pixel_size=(2e-9, 3e-9))");
  assert.equal(line("ellipse"), 'pt.analysis.region_statistics(phase, (0, 1), (10, 21), shape="ellipse", pixel_size=(2e-9, 3e-9))');
  assert.equal(line("ruler"), "np.hypot(10 * 2e-9, 20 * 3e-9)");
  assert.equal(spectrumLine({ top: 1, left: 2, height: 3, width: 4 }, {}, "image"), "pt.analysis.amplitude_spectrum(image[1:4, 2:6])");
});
