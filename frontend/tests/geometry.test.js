import assert from "node:assert/strict";
import { test } from "node:test";

import { bounded, distanceOf, panned, placed, scaleBarOf, toArray, toScreen, WHOLE, zoomed } from "../src/viewer/geometry.js";
import { aimedAt, fixedEnd, grasped } from "../src/viewer/input.js";
import { elementAt, placeText } from "../src/viewer/cursor.js";
import { near } from "./near.js";

const ROOM = { width: 301, height: 199 };
const EXTENT = { y: 97, x: 131 };

test("the whole picture is in the middle of its pane, as large as it fits", () => {
  const place = placed(WHOLE, ROOM, EXTENT);
  near(place.scale, 199 / 97);
  near(place.top, 0);
  near(place.left, (301 - 131 * place.scale) / 2);
});

test("a point of the screen and its pixel lead to each other, in a picture of odd sizes at any zoom", () => {
  for (const scale of [1, 3.7, 400]) {
    const place = placed({ y: 0.31, x: 0.77, scale }, ROOM, EXTENT);
    for (const point of [{ y: 0, x: 0 }, { y: 98.5, x: 150.5 }, { y: 199, x: 301 }]) {
      const back = toScreen(place, toArray(place, point));
      near(back.y, point.y);
      near(back.x, point.x);
    }
  }
});

test("the middle of a pane is the middle of the array, of even and of odd sizes", () => {
  for (const [y, x] of [[97, 131], [96, 130], [1, 1]]) {
    const at = toArray(placed(WHOLE, ROOM, { y, x }), { y: 199 / 2, x: 301 / 2 });
    near(at.y, y / 2);
    near(at.x, x / 2);
  }
});

test("zoom keeps the pixel under the mouse where it is", () => {
  const point = { y: 80, x: 170 };
  const view = { y: 0.5, x: 0.5, scale: 4 };
  const before = toArray(placed(view, ROOM, EXTENT), point);
  for (const factor of [1.25, 0.8, 3]) {
    const closer = zoomed(view, ROOM, EXTENT, point, factor);
    near(closer.scale, 4 * factor);
    const after = toArray(placed(closer, ROOM, EXTENT), point);
    near(after.y, before.y);
    near(after.x, before.x);
  }
});

test("zoom ends at the whole picture and at 400 times its size", () => {
  assert.deepEqual(zoomed({ y: 0.2, x: 0.3, scale: 1.1 }, ROOM, EXTENT, { y: 0, x: 0 }, 0.1), WHOLE);
  const [view, point] = [{ y: 0.5, x: 0.5, scale: 399 }, { y: 9, x: 15 }];
  const largest = zoomed(view, ROOM, EXTENT, point, 2);
  assert.equal(largest.scale, 400);
  near(toArray(placed(largest, ROOM, EXTENT), point).x, toArray(placed(view, ROOM, EXTENT), point).x);
});

test("pan moves the picture by screen pixels", () => {
  const view = { y: 0.5, x: 0.5, scale: 5 };
  const before = placed(view, ROOM, EXTENT);
  const after = placed(panned(view, ROOM, EXTENT, { y: 12, x: -31 }), ROOM, EXTENT);
  near(after.top - before.top, 12);
  near(after.left - before.left, -31);
  near(after.scale, before.scale);
});

test("pan ends where the picture would leave a part of the pane empty", () => {
  const far = placed(panned({ y: 0.5, x: 0.5, scale: 5 }, ROOM, EXTENT, { y: 1e4, x: -1e4 }), ROOM, EXTENT);
  near(far.top, 0);
  near(far.left + 131 * far.scale, 301);
  assert.equal(bounded({ y: 0.9, x: 0.1, scale: 1 }, ROOM, EXTENT).y, 0.5);
});

test("a scale bar has a round length of at most a third of the pane", () => {
  const bar = scaleBarOf(25e-9, 2, 300);
  assert.equal(bar.text, "1 µm");
  near(bar.pixels, 80);
  for (const size of [1.3e-10, 7e-9, 2e-6]) {
    const { pixels } = scaleBarOf(size, 3.3, 250);
    assert.ok(pixels <= 250 / 3 + 0.1 && pixels > 250 / 3 / 2.6, `${pixels}`);
  }
});

test("distances have the length and angle of a triangle, also of pixels that are not square", () => {
  const plain = distanceOf({ y: 10, x: 2 }, { y: 6, x: 5 }, null);
  near(plain.pixels, 5);
  assert.equal(plain.length, null);
  near(plain.angle, (Math.atan2(4, 3) * 180) / Math.PI);
  const tall = distanceOf({ y: 4, x: 0 }, { y: 0, x: 3 }, [2e-9, 5e-9]);
  near(tall.pixels, 5);
  near(tall.length * 1e9, Math.hypot(8, 15));
  near(tall.angle, (Math.atan2(8, 15) * 180) / Math.PI);
});

test("a crosshair stands in the centre of an element, within the array", () => {
  const picture = { bands: [4, 1] };
  assert.deepEqual(aimedAt({ picture, extent: { y: 12, x: 7 } }, { y: 5.2, x: 3.9 }), [6, 3.5]);
  assert.deepEqual(aimedAt({ picture, extent: { y: 12, x: 7 } }, { y: 99, x: null }), [10, null]);
  assert.deepEqual(aimedAt({ picture: {}, extent: { y: 12, x: 7 } }, { y: -3, x: 7 }), [0.5, 6.5]);
});

test("lines of a crosshair, and ends of a measurement, are grasped within 9 pixels", () => {
  const place = { scale: 2, left: 10, top: 20 };
  assert.deepEqual(grasped({ y: 5, x: 50 }, place, { y: 30 + 9, x: 60 }), { y: true, x: false });
  assert.equal(grasped({ y: 5, x: null }, place, { y: 30 + 9.1, x: 60 }), null);
  const measure = { kind: "ruler", start: [0, 0], stop: [10, 20] };
  assert.deepEqual(fixedEnd({ measure, place }, "ruler", { y: 42, x: 55 }), { y: 0, x: 0 });
  assert.equal(fixedEnd({ measure, place }, "profile", { y: 42, x: 55 }), null);
  assert.equal(fixedEnd({ measure, place }, "ruler", { y: 70, x: 70 }), null);
});

test("the element under the cursor is the array's, of a coarse axis the band with its length", () => {
  assert.deepEqual(elementAt({}, { y: 2.99, x: 3 }), [2, 3]);
  const cut = { axes: ["z", "x"], bands: [5, 1], pixel_size: [1e-9, 2e-9] };
  assert.deepEqual(elementAt(cut, { y: 12.5, x: 3.1 }), [2, 3]);
  assert.equal(placeText(cut, 2, 3), "z 2 (10 nm), x 3");
  assert.equal(placeText({}, 12, 30), "y 12, x 30");
});
