// The view of a run: what its controls send, and what is drawn of its values.

import assert from "node:assert/strict";
import { test } from "node:test";

import { curvesOf } from "../src/views/live/record.js";
import { Curve } from "../src/widgets/curve.js";
import { drawn, fire, settled } from "./channel.js";
import { near } from "./near.js";

const SUMMARY = {
  state: "running", epoch: 2, target: 40, after_scan: 0, update: 3, updates: 99, stopped: "", stage: 0, stages: 0,
  loss: "0.125", r_factor: "", r_factor_epoch: 0, speed: "1,105", left: "3 min",
};
const VALUES = {
  panes: ["amplitude", "phase"], slice: 0, object_mode: 1, flat: true, modes: 4, modes_as: "complex", cuts: false,
  positions: false, without_affine: false, arrows: 0, page: null, slices: 1, object_modes: 1, refinement: {},
  summary: SUMMARY, usable: ["pause", "stop", "change"], r_factor_every: 0, record: {}, marks: [], changes: [], health: [],
  parts: { object: { label: "object", rate: 0.1 }, probe: { label: "probe", rate: 0.2 } }, facts: [], arrivals: {},
  messages: [], notices: [], pattern: null, patterns: 9, pattern_facts: "", logarithmic: true, extra: [], pages: {},
  ...Object.fromEntries(["object_pictures", "probe_pictures", "cut_pictures", "pattern_pictures"].map((name) => [name, { $element: name }])),
  errors: { $element: "errors" },
};
const ERRORS = { facts: "", computing: false, done: 0, total: 0, said: "", message: "", map: { $element: "map" }, errors: { $element: "map" } };

function live(values = {}) {
  const view = drawn({
    live: ["live", { ...VALUES, ...values }],
    errors: ["liveErrors", ERRORS],
    page: ["words", { value: "a form" }],
    ...Object.fromEntries(["object_pictures", "probe_pictures", "cut_pictures", "pattern_pictures", "map"].map((name) => [name, ["words", { value: name }]])),
  });
  const button = (text) => [...view.el.querySelectorAll("button")].find((one) => one.textContent.trim() === text);
  const field = (text) => {
    const label = [...view.el.querySelectorAll("label")].find((one) => one.textContent.trim() === text);
    return label && (label.querySelector("input") ?? view.el.querySelector(`[id="${label.getAttribute("for")}"]`));
  };
  const change = async (more) => {
    view.channel.change("live", more);
    await settled();
  };
  const open = async (title) => {
    button(title).click();
    await settled();
    view.channel.taken();
  };
  return { ...view, button, field, change, open, text: () => view.el.textContent };
}

/** Sets a field as a user does: Enter, and the end of the editing. */
function enter(node, value) {
  node.value = value;
  node.dispatchEvent(new window.KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  fire(node, "change");
}
const asked = (command, given = {}, to = "live") => ({ to, command, arguments: given });

test("buttons are those that make sense, and each calls its command at once", async () => {
  const { channel, button, change, field } = live();
  assert.deepEqual([button("Pause").disabled, button("Stop").disabled, button("Start").disabled], [false, false, true]);
  assert.deepEqual([button("Resume"), button("Recover")], [undefined, undefined]);
  button("Pause").click();
  assert.deepEqual(channel.taken(), [asked("pause")]);
  await change({ usable: ["resume", "stop", "recover", "change"] });
  assert.equal(button("Pause"), undefined);
  for (const name of ["Recover", "Resume", "Stop"]) button(name).click();
  assert.deepEqual(channel.taken(), ["recover", "resume", "stop"].map((name) => asked(name)));
  await change({ usable: ["start"] });
  enter(field("More epochs"), "25");
  await settled();
  button("Start").click();
  assert.deepEqual(channel.taken(), [asked("start", { epochs: 25 })]);
});

test("a rate is asked for once, and the old one comes back where it is refused", async () => {
  const { channel, field, change } = live();
  enter(field("Object learning rate"), "-1");
  await settled();
  fire(field("Object learning rate"), "change");
  assert.deepEqual(channel.taken(), [asked("set_rate", { part: "object", rate: -1 })]);
  await change({ facts: ["something else"] });
  assert.equal(field("Object learning rate").value, "-1");
  await change({ parts: { $changed: {}, $removed: [] } });
  assert.equal(field("Object learning rate").value, "0.1");
  await change({ parts: { ...VALUES.parts, probe: { label: "probe", rate: 0 } } });
  assert.deepEqual([field("Freeze object").checked, field("Freeze probe").checked, field("Freeze positions")], [false, true, undefined]);
  fire(field("Freeze object"), "change", { checked: true });
  fire(field("Freeze probe"), "change", { checked: false });
  assert.deepEqual(channel.taken(), [asked("freeze", { part: "object", on: true }), asked("freeze", { part: "probe", on: false })]);
  enter(field("Probe learning rate"), "0.5");
  await change({ parts: { ...VALUES.parts, object: { label: "object", rate: 0 } } }); // which answers to the first
  assert.equal(field("Probe learning rate").value, "0.5");
  await change({ parts: VALUES.parts });
  assert.equal(field("Probe learning rate").value, String(VALUES.parts.probe.rate));
  await change({ usable: [] });
  assert.ok(field("Object learning rate").disabled && field("Freeze probe").disabled);
});

test("what pictures show is chosen, of several slices and modes one", async () => {
  const { channel, field, change } = live();
  assert.deepEqual(["Slice", "Object mode", "Cuts"].map(field), [undefined, undefined, undefined]);
  fire(field("Complex"), "change", { checked: true });
  fire(field("Positions"), "change", { checked: true });
  enter(field("Probe modes"), "99");
  fire(field("Probe as"), "change", { selectedIndex: 1 });
  const sets = [{ panes: ["amplitude", "phase", "complex"] }, { positions: true }, { modes: 12 }, { modes_as: "amplitude" }];
  assert.deepEqual(channel.taken().map(({ set }) => set), sets);
  await change({ slices: 3, object_modes: 2 });
  enter(field("Slice"), "2");
  enter(field("Object mode"), "2");
  fire(field("Cuts"), "change", { checked: true });
  assert.deepEqual(channel.taken().map(({ set }) => set), [{ slice: 2 }, { object_mode: 2 }, { cuts: true }]);
});

test("the interval of the R-factor is called for, and the axis of the loss is the page's own", async () => {
  const { channel, el, field, open } = live();
  await open("More");
  enter(field("R-factor every [epochs]"), "5");
  assert.deepEqual(channel.taken(), [asked("measure_r_factor", { every: 5 })]);
  assert.ok(el.querySelector(".ptynb-curve svg[aria-label='loss over epochs']"));
  fire(field("Loss over"), "change", { selectedIndex: 1 });
  await settled();
  assert.ok(el.querySelector(".ptynb-curve svg[aria-label='loss over seconds']"));
  assert.deepEqual(channel.taken(), []);
});

test("the state is told in the words and units of the field", async () => {
  const { el, change } = live();
  const said = () => el.querySelector(".ptynb-live-head").textContent;
  assert.equal(el.querySelector("b").textContent, "running");
  assert.equal(said(), "runningepoch 2 of 40 + 3/99 updatesloss 0.125R-factor –1,105 patterns/s3 min left");
  const more = { update: 0, target: 0, after_scan: 40, stopped: "no progress", stage: 2, stages: 3, r_factor: "0.0346", left: "" };
  await change({ summary: { ...SUMMARY, ...more } });
  assert.equal(said(), "runningepoch 2, then 40 after the scanstopped: no progressstage 2 of 3loss 0.125R-factor 0.03461,105 patterns/s");
  await change({ summary: { state: "starting" } });
  assert.match(said(), /^starting/);
});

test("a scan that is measured has a bar, errors and notices are read", async () => {
  const { el, change, text } = live();
  assert.equal(el.querySelector("[role=progressbar]"), null);
  const arrivals = {
    planned: 1024, arrived: 600, placed: 580, admitted: 512, remarks: [["3 missing", "that have not come"]], rate: "99.7",
    lag: "4 ms", ended: "", silence: "6 s",
  };
  await change({ arrivals, messages: ["It failed.\n<b>Traceback</b>"], notices: ["A state was not kept."] });
  const bar = el.querySelector("[role=progressbar]");
  assert.deepEqual([...bar.children].map(({ style }) => style.width), ["50.00%", "8.59%"]);
  assert.deepEqual(["max", "now"].map((name) => bar.getAttribute(`aria-value${name}`)), ["1024", "600"]);
  for (const words of ["600 of 1,024 patterns came", "512 used", "3 missing", "rate 99.7/s", "lag 4 ms", "no sign of the receiver for 6 s"]) {
    assert.ok(text().includes(words), words);
  }
  assert.equal(el.querySelector("[role=alert] pre").textContent, "<b>Traceback</b>");
  assert.equal(el.querySelector(".ptynb-message[role=status]").textContent, "A state was not kept.");
});

test("pages are opened by their buttons, and a program's follow the view's own", async () => {
  const { channel, el, button, change, field, open, text } = live({ pages: { Checkpoints: { $element: "page" } } });
  button("Checkpoints").click();
  await settled();
  assert.deepEqual(channel.taken(), [{ to: "live", set: { page: "Checkpoints" } }]);
  assert.ok(text().includes("a form"));
  await open("Pattern");
  assert.ok(text().includes("Click on the object to see a pattern."));
  enter(field("Pattern"), "70");
  assert.deepEqual(channel.taken()[0], asked("look_at", { pattern: 8 }));
  await open("Positions");
  await change({ refinement: { moved: true, moves: ["5 nm", "9 nm"], residual: ["1 nm", "3 nm"], affine: "Scale 1" } });
  assert.deepEqual([...el.querySelectorAll("td")].map((cell) => cell.textContent).slice(1, 4), ["Moves", "5 nm", "9 nm"]);
  fire(field("Arrows"), "change", { selectedIndex: 5 });
  assert.deepEqual(channel.taken(), [{ to: "live", set: { arrows: 20 } }]);
  await open("Changes");
  await change({ changes: [["3", "Probe learning rate", "probe.learning_rate", "0.01", "<i>"]] });
  assert.ok(text().includes("3Probe learning rate0.01 → <i>"));
  await open("Engines");
  await change({ facts: ["2 GPUs", "batch 16"], health: [["0", "GPU 0", "1,234", "–", "–", "–", "–", "running"]] });
  assert.ok(text().includes("2 GPUs \u00a0·\u00a0 batch 16") && text().includes("GPU 01,234"));
});

test("the standard error is computed on request, and can be cancelled", async () => {
  const { channel, button, field, open, text } = live();
  await open("Errors");
  enter(field("Epochs"), "4");
  await settled();
  button("Map the standard error").click();
  assert.deepEqual(channel.taken(), [asked("compute", { epochs: 4, engines: 0 }, "errors")]);
  channel.change("errors", { computing: true, done: 3, total: 8 });
  await settled();
  assert.ok(text().includes("3 of 8 epochs") && button("Map the standard error").disabled);
  button("Cancel").click();
  assert.deepEqual(channel.taken(), [asked("cancel", {}, "errors")]);
});

const piece = (...rows) => new DataView(Float64Array.from(rows.flat()).buffer);
const MADE = {
  "epochs 0": piece([1, 0.5, 2, 0.1, NaN, NaN], [2, NaN, 3, 0.2, NaN, NaN]),
  "epochs 1": piece([3, 0.125, 5, 0.3, 0.5, NaN]),
  "r_factors 0": piece([0, 0.75], [2, 0.25]),
};

test("curves are made of all pieces of a record, over epochs and over seconds", () => {
  const { loss, changes } = curvesOf(MADE, [3]);
  assert.deepEqual(loss.lines[0], { name: "loss", x: [[1, 2, 3], [2, 5, 10]], y: [0.5, null, 0.125] });
  assert.deepEqual(loss.lines[1], { name: "R-factor", x: [[0, 2], [0, 5]], y: [0.75, 0.25] });
  assert.deepEqual(loss.marks, [{ x: [3, 5], text: "" }]); // where the second epoch ended
  assert.deepEqual(changes.lines.map(({ name, y }) => [name, y]), [["object", [0.1, 0.2, 0.3]], ["probe", [null, null, 0.5]]]);
  assert.deepEqual(curvesOf({}, []).loss.lines, [{ name: "loss", x: [[], []], y: [] }]);
});

function curve(spec, size = { width: 300, height: 170 }) {
  const made = new Curve(document.createElement("div"), spec, true);
  made.draw(size);
  const points = () => (made.svg.querySelector("polyline")?.getAttribute("points") ?? "").split(" ").map((pair) => pair.split(",").map(Number));
  const texts = (anchor) => [...made.svg.querySelectorAll(`text[text-anchor=${anchor}]`)];
  return { made, points, texts };
}
const falling = (count) => ({ ...curvesOf({ "epochs 0": piece(...Array.from({ length: count }, (_, n) => [n + 1, 1 / (n + 1), 1, NaN, NaN, NaN])) }, [2]).loss });

test("heights of a curve are proportional to the logarithm, which its ticks tell, and epochs are evenly spaced", () => {
  const { made, points, texts } = curve(falling(8));
  const [first, second, , fourth] = points();
  near(fourth[1] - second[1], second[1] - first[1], 0.11);
  near(fourth[0] - second[0], 2 * (second[0] - first[0]), 0.11);
  const ticks = texts("end").map((text) => [Number(text.textContent), Number(text.getAttribute("y")) - 4]);
  for (const [value, y] of ticks) near(made.toY(value), y, 1e-6);
  near(made.toY(0.5), second[1], 0.06);
  const heights = ticks.map(([, y]) => y).sort((one, other) => one - other);
  assert.ok(heights.length >= 2 && heights.every((y, index) => index === 0 || y - heights[index - 1] >= 11));
  assert.ok(texts("middle").every(({ textContent }) => textContent === "epoch" || Number.isInteger(Number(textContent))));
  near(Number(made.svg.querySelector(".ptynb-curve-mark").getAttribute("x1")), second[0], 0.06);
});

test("a long curve is thinned and keeps both ends, and none says so", () => {
  const { points } = curve(falling(12345));
  assert.ok(points().length <= 1501);
  assert.deepEqual([points()[0][0], points().at(-1)[0]], [52, 288]);
  assert.equal(curve(curvesOf({}, []).loss).made.svg.textContent, "no epoch yet");
  for (const values of [[0.25, 0.25], [1e-300, 1e300], [7]]) {
    const rows = values.map((value, index) => [index + 1, value, 1, NaN, NaN, NaN]);
    const { texts } = curve(curvesOf({ "epochs 0": piece(...rows) }, []).loss);
    assert.ok(texts("end").length >= 1, `${values}`);
  }
});

test("a curve keeps what a user has chosen while it grows", () => {
  const { made } = curve(falling(8));
  made.look([2, 4]);
  made.cursor = 3;
  made.update(falling(9));
  made.draw({ width: 300, height: 170 });
  assert.deepEqual([made.span, made.readout.textContent], [[2, 4], "epoch 3 · loss 0.33333"]);
  made.update(falling(9), 1);
  assert.deepEqual([made.span, made.cursor], [null, null]);
  made.end();
});
