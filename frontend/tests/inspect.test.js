import assert from "node:assert/strict";
import { test } from "node:test";

import { drawn, fire, marks, settled } from "./channel.js";

const BASE = {  };
const [view] = marks("not shown");
const PANELS = {
  Statistics: ["inspectStatistics", { view, patterns: 0, octaves: [], scale: "log", exponent: 0.5 }],
  Mask: ["inspectMask", { view, shape: [8, 6], text: "0 pixels", new: 0, changed: false, painting: false, disc: { y: 4, x: 3, radius: 5 } }],
  Positions: ["inspectPositions", { rotation: {}, text: "", rows: [[7, "dark"], [20, "brighter"]], exclude: "3" }],
  Prepare: ["inspectPreparation", { view, facts: ["scan"], kinds: [["centre", "", ""], ["bin", "factor", "2"]], lines: [], recipe: "" }],
  "First pictures": ["inspectDirect", { view, live: false, text: "", rows: [], note: "", guess: false, reading: {} }],
};
const INSPECT = {
  ...BASE, facts: ["<b>name</b>", "36 patterns"], length: 36, map_view: view, view, maps: ["counts", "dark field"], live: false, can_undo: false,
  surveyed: 30, arrivals: {}, pattern_message: "", message: "", survey_message: "", note: "", chosen: 5,
  pattern_note: "9 counts", paused: true, tab: "Statistics", scale: "log", exponent: 0.5, map_kind: "counts", radius: 0, dots: true,
};

/** The inspector with one panel in front, and what a user finds and does there. */
function opened(tab, values = {}, ofPanel = {}) {
  const panels = Object.fromEntries(Object.entries(PANELS).map(([title, [component, own]]) => [title, [component, { ...BASE, ...own, ...ofPanel }]]));
  const found = drawn({ i: ["inspect", { ...INSPECT, tab, panels: Object.fromEntries(Object.keys(panels).map((title) => [title, marks(title)[0]])), ...values }], ...panels });
  const button = (text) => [...found.el.querySelectorAll("button")].find((one) => one.textContent.trim() === text);
  const field = (text) => {
    const label = [...found.el.querySelectorAll("label")].find((one) => one.textContent.trim() === text);
    return label && (label.querySelector("input") ?? document.getElementById(label.getAttribute("for")));
  };
  const press = (text) => {
    button(text).click();
    return found.channel.taken();
  };
  const enter = (text, value) => {
    fire(field(text), "change", { value });
    return found.channel.taken();
  };
  return { ...found, button, field, press, enter };
}
const called = (to, command, given = {}) => [{ to, command, arguments: given }];

const ARRIVALS = { planned: 36, arrived: 3, placed: 3, admitted: null, remarks: [], rate: "", lag: "", ended: "", silence: "" };

test("patterns are chosen and stepped through, and fields follow what they are about", async () => {
  const { channel, el, button, field, press, enter } = opened("Statistics");
  assert.ok(el.textContent.includes("<b>name</b> \u00a0·\u00a0 36 patterns"));
  assert.ok(el.textContent.includes("30 of 36 patterns surveyed, paused"));
  assert.deepEqual(enter("Pattern", "99"), called("i", "choose", { index: 35 }));
  assert.deepEqual([...press("Previous"), ...press("Next")], [...called("i", "step", { by: -1 }), ...called("i", "step", { by: 1 })]);
  channel.change("i", { chosen: 6 });
  await settled();
  assert.equal(field("Pattern").value, "6");
  assert.deepEqual(press("Pause survey"), [{ to: "i", set: { paused: false } }]);
  assert.equal(button("Undo last change").disabled, true);
  for (const name of ["Exponent", "Radius [pixels]"]) assert.equal(field(name), undefined);
  channel.change("i", { map_kind: "dark field", scale: "gamma", can_undo: true, surveyed: 36 });
  await settled();
  assert.deepEqual(enter("Radius [pixels]", "4"), [{ to: "i", set: { radius: 4 } }]);
  assert.deepEqual(enter("Exponent", "9"), [{ to: "i", set: { exponent: 5 } }]);
  assert.deepEqual(press("Undo last change"), called("i", "undo"));
  assert.equal(button("Pause survey"), undefined);
});

test("errors and notes are shown, and a scan that is being measured has no survey", () => {
  const { el, field } = opened("First pictures", { live: true, message: "an error\nmore", note: "a note", arrivals: ARRIVALS }, { live: true });
  assert.deepEqual([...el.querySelectorAll("[role=alert]")].map((one) => one.firstChild.textContent), ["an error"]);
  assert.equal(el.querySelector("[role=status]").textContent, "a note");
  assert.ok(el.textContent.includes("3 of 36 patterns came"));
  for (const name of ["Map", "Compute"]) assert.equal(field(name), undefined);
});

test("statistics have a bar for each octave", () => {
  const octaves = Array(40).fill(0);
  [octaves[0], octaves[21], octaves[22], octaves[35]] = [60, 1200, 2, 1];
  const { el, enter } = opened("Statistics", {}, { patterns: 1000, octaves });
  assert.ok(el.textContent.includes("Counts of the pixels of 1,000 patterns"));
  const bars = [...el.querySelectorAll(".ptynb-inspect-histogram rect")];
  assert.deepEqual(bars.slice(0, 4).map((bar) => bar.textContent), ["0: 60", "1: 1,200", "2: 2", "4: 0"].map((text) => `from ${text.replace(":", " counts:")} pixels`));
  assert.deepEqual([bars.length, bars[15].textContent], [16, "from 16K counts: 1 pixels"]);
  assert.ok(Number(bars[1].getAttribute("height")) > Number(bars[0].getAttribute("height")));
  assert.deepEqual(enter("Map", "dark field"), [{ to: "i", set: { map_kind: "dark field" } }]);
});

test("a mask is edited with a disc, files, and what was found", async () => {
  const { channel, button, press, enter } = opened("Mask");
  assert.deepEqual(press("Paint"), [{ to: "Mask", set: { painting: true } }]);
  assert.deepEqual(enter("y", "20"), [{ to: "Mask", set: { disc: { y: 7, x: 3, radius: 5 } } }]);
  assert.deepEqual(press("Unmask disc"), called("Mask", "set_disc", { good: true }));
  enter("File", "other.h5");
  await settled();
  assert.deepEqual([...press("Save"), ...press("Load")], ["save", "load"].flatMap((name) => called("Mask", name, { path: "other.h5" })));
  assert.deepEqual([button("Undo").disabled, button("Mask found").disabled], [true, true]);
  channel.change("Mask", { changed: true, new: 3 });
  await settled();
  assert.deepEqual([...press("Undo"), ...press("Mask found"), ...press("Use mask")], ["undo", "mask_found", "use"].flatMap((name) => called("Mask", name)));
});

test("a suspicious pattern is shown by a click, and patterns are excluded", async () => {
  const { channel, button, field, press, enter } = opened("Positions");
  assert.deepEqual([...field("Suspicious").options].map((option) => option.textContent), ["7: dark", "20: brighter"]);
  fire(field("Suspicious"), "change", { selectedIndex: 1 });
  assert.deepEqual(channel.taken(), called("i", "choose", { index: 20 }));
  assert.deepEqual(enter("Exclude", "3, 7"), [{ to: "Positions", set: { exclude: "3, 7" } }]);
  assert.deepEqual(press("Remove from scan"), called("Positions", "remove_excluded"));
  assert.equal(button("Rotate positions").disabled, true);
  channel.change("Positions", { rotation: { angle: "25.00°", text: "from y to x", lines: "scan = rotated" } });
  await settled();
  assert.deepEqual(press("Rotate positions"), called("Positions", "rotate"));
});

test("a step has the default of its kind, and steps are removed and applied once there are some", async () => {
  const { channel, el, button, field, press } = opened("Prepare");
  assert.equal(field("Number").disabled, true);
  fire(field("Step"), "change", { selectedIndex: 1 });
  await settled();
  assert.deepEqual([field("Number").value, field("Number").disabled], ["2", false]);
  assert.deepEqual(press("Add step"), called("Prepare", "add", { kind: "bin", number: "2" }));
  assert.equal(button("Apply").disabled, true);
  channel.change("Prepare", { lines: ["scan = 1", "scan = 2"], recipe: "prepare:" });
  await settled();
  assert.equal(el.querySelector("code").textContent, "scan = 1\nscan = 2");
  assert.deepEqual([...press("Remove last"), ...press("Apply")], [...called("Prepare", "remove"), ...called("Prepare", "apply")]);
});

test("reading for first pictures has a bar and can be cancelled; then they have a table", async () => {
  const { channel, el, button, press } = opened("First pictures");
  assert.deepEqual(press("Compute"), called("First pictures", "compute"));
  assert.equal(button("Use as first guess").disabled, true);
  channel.change("First pictures", { reading: { done: 3, total: 9 } });
  await settled();
  assert.deepEqual(press("Cancel pictures"), called("First pictures", "cancel"));
  channel.change("First pictures", { reading: {}, guess: true, rows: [["quantity", "value"], ["C10", "-3 mm"]] });
  await settled();
  assert.deepEqual(press("Use as first guess"), called("First pictures", "use_guess"));
  assert.equal(button("Cancel pictures"), undefined);
  assert.deepEqual([...el.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent)), [["quantity", "value"], ["C10", "-3 mm"]]);
});

test("a tab is chosen in the kernel, which draws what it shows", () => {
  const { channel, el } = opened("Statistics");
  el.querySelectorAll("[role=tab]")[1].click();
  assert.deepEqual(channel.taken(), [{ to: "i", set: { tab: "Mask" } }]);
});
