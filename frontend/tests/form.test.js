// The form of settings: from its schema and values to fields, and from what a user does to commands.

import assert from "node:assert/strict";
import { test } from "node:test";

import { drawn, fire, marks, settled } from "./channel.js";

const SCHEMA = {
  groups: [
    { name: "Batches", title: "Batches", about: "Patterns of an update", first: 1, fields: [
      { name: "batch", label: "Batch", kind: "integer", about: "Patterns per update", unit: "patterns", limits: ["at least 1"], live: true },
      { name: "loss", label: "Loss", kind: "choice", about: "Minimised", choices: [["l1", "L1 norm"], ["l2", "L2 norm"]] },
    ] },
    { name: "slices", title: "Slices", about: "Of a thick object", first: 1, switch: true, fields: [
      { name: "slices.thickness", label: "Slice distance", kind: "number", about: "Distance", units: ["nm", "µm"], limits: ["above 0", "over 0"], optional: true },
      { name: "slices.fit", label: "Fit slices", kind: "switch", about: "Refines them" },
    ] },
    { name: "constraints", title: "Constraints", about: "Imposed in this order", kinds: [
      { kind: "blur", title: "Blur", about: "Smooths.", fields: [0, 1] },
      { kind: "denoise", title: "Denoise", about: "Total variation.", fields: [1] },
    ] },
  ],
  entryFields: [
    { name: "sigma", label: "Sigma", kind: "number", about: "Width", unit: "pixels" },
    { name: "every", label: "Interval", kind: "integer", about: "Epochs" },
  ],
};
const FORM = {
  schema: SCHEMA, mode: "plain",
  values: { batch: "16", loss: "l2", "slices.thickness": { texts: ["3000", "3"], fit: 1 }, "slices.fit": false },
  marks: {}, revisions: {}, entries: { constraints: [] },
  groups: { Batches: { on: null, summary: "Patterns of an update", changed: 0 }, slices: { on: true, summary: "Of a thick object", changed: 0 }, constraints: { on: null, summary: "none", changed: 0 } },
  sources: ["defaults", "changed"], source: { name: "defaults", title: "default", about: "", reasons: {}, changed: false },
  tuned: {}, waiting: { changes: [], problem: "" }, frozen: {}, invalid: "", message: "", file: "settings.yaml",
};

/** A drawn form with these values, and how to look at it and use it. */
function open(values = {}) {
  const { channel, el } = drawn({ a: ["settingsForm", { ...FORM, ...values }] });
  const commands = () => channel.taken().map(({ command, arguments: given }) => ({ command, ...given }));
  const button = (name) => [...el.querySelectorAll("button")].find((one) => (one.textContent.trim() || one.title) === name);
  const field = (name) => {
    const label = [...el.querySelectorAll("label")].find((one) => one.textContent === name);
    return label?.querySelector("input") ?? el.querySelector(`#${label?.getAttribute("for")}`);
  };
  const press = async (name) => {
    button(name).click();
    await settled();
  };
  const titled = (name) => el.querySelector(`[title="${name}"]`);
  return { channel, el, commands, button, field, press, titled };
}

test("a group shows its first fields while its part is on, and all once it is unfolded", async () => {
  const { channel, el, field, press, commands } = open();
  assert.ok(field("Batch"));
  assert.equal(field("Loss"), null);
  await press("Batches: all settings");
  assert.equal(field("Loss").value, "l2");
  channel.change("a", { groups: { $changed: { slices: { on: false, summary: "off", changed: 0 } }, $removed: [] } });
  await settled();
  assert.equal(field("Slice distance"), null);
  await press("Slices: all settings");
  assert.ok(field("Slice distance"), "though it is off");
  field("Slices").click();
  assert.deepEqual(commands(), [{ command: "switch", part: "slices", on: true }]);
  const columns = () => [...el.querySelectorAll(".ptynb-group-column")].map((one) => [...one.querySelectorAll(".ptynb-group-title")].map((title) => title.textContent));
  const [batches, slices, constraints] = SCHEMA.groups;
  const added = (name) => ({ name, title: name, about: "" });
  const groups = [batches, slices, added("aberrations"), added("new"), constraints];
  channel.change("a", { schema: { $changed: { groups }, $removed: [] },
    groups: { $changed: { new: FORM.groups.Batches, aberrations: FORM.groups.Batches }, $removed: [] } });
  await settled();
  assert.deepEqual(columns(), [["Batches", "Slices", "aberrations"], ["new", "Constraints"]]);
});

test("what is entered is sent with the unit that is shown", async () => {
  const { el, channel, field, press, commands } = open();
  await press("Batches: all settings");
  await press("Slices: all settings");
  assert.equal(field("Slice distance").value, "3", "in the unit that fits");
  fire(field("Slice distance"), "change", { value: "5" });
  fire(field("Batch"), "change", { value: "many" });
  fire(field("Loss"), "change", { selectedIndex: 0 });
  field("Fit slices").click();
  assert.deepEqual(commands().map((given) => Object.values(given)), [
    ["enter", "slices.thickness", "5", "µm"], ["enter", "batch", "many", ""], ["enter", "loss", "l1", ""], ["enter", "slices.fit", true, ""],
  ]);
  fire(el.querySelector("[aria-label='Unit of Slice distance']"), "change", { selectedIndex: 0 });
  await settled();
  assert.equal(field("Slice distance").value, "3000");
  assert.deepEqual(commands(), [], "no value has changed");
  fire(field("Batch"), "change", { value: "" });
  channel.change("a", { revisions: { $changed: { batch: 1 }, $removed: [] } });
  await settled();
  assert.equal(field("Batch").value, "16", "as it was read");
});

test("marks say what was changed, why, what is wrong, and reset it", async () => {
  const { channel, el, button, commands } = open({
    marks: { batch: { was: "8", problem: "expected a number" }, "slices.thickness": { was: { texts: ["", ""], fit: 0 } } },
    source: { ...FORM.source, title: "preset x", about: "for tests", changed: true },
    invalid: "Edits are applied after this is corrected: Batch.",
  });
  const said = () => [...el.querySelectorAll(".ptynb-row .ptynb-clip")].map((one) => one.textContent);
  assert.deepEqual(said(), ["patterns · ● changed (preset x: 8 patterns) · Patterns per update; at least 1", "● changed (preset x: none µm) · Distance; over 0"]);
  assert.equal(el.querySelector(".ptynb-row-problem[role=alert]").textContent, "⚠ expected a number");
  assert.equal(el.querySelector(".ptynb-form-about").textContent, "for tests");
  button("Batch: reset to preset x").click();
  assert.deepEqual(commands(), [{ command: "reset", name: "batch" }]);
  channel.change("a", { marks: { $changed: {}, $removed: ["batch"] }, source: { $changed: { reasons: { batch: "few patterns" } }, $removed: [] } });
  await settled();
  assert.ok(button("Batch: reset to preset x").classList.contains("ptynb-invisible"));
  assert.equal(said()[0], "patterns · ◆ preset x: few patterns · Patterns per update; at least 1");
});

test("entries of a list are added, entered, switched, moved and removed", async () => {
  const entry = { name: "constraints.7", kind: "blur", on: true, problem: "no slices" };
  const { el, press, field, button, commands } = open({
    entries: { constraints: [entry] }, values: { ...FORM.values, "constraints.7.sigma": "2", "constraints.7.every": "1" },
    marks: { "constraints.7.sigma": { problem: "too wide" }, "constraints.7.every": { was: "2" } }, source: { ...FORM.source, title: "preset x" },
  });
  await press("Constraints: all settings");
  fire(field("Sigma"), "change", { value: "3" });
  field("Blur").click();
  for (const name of ["Move up", "Remove", "Interval: reset to default"]) button(name).click();
  fire(field("New constraint"), "change", { selectedIndex: 1 });
  await settled();
  assert.match(el.textContent, /Total variation/);
  button("Add").click();
  assert.deepEqual(commands(), [
    { command: "enter", name: "constraints.7.sigma", value: "3", unit: "" }, { command: "switch_entry", entry: "constraints.7", on: false },
    { command: "move_up", entry: "constraints.7" }, { command: "remove", entry: "constraints.7" },
    { command: "reset", name: "constraints.7.every" }, { command: "add", list_name: "constraints", kind: "denoise" },
  ]);
  assert.deepEqual([...el.querySelectorAll("[role=alert]")].map((one) => one.textContent), ["⚠ too wide", "no slices."]);
});

test("fields and lists are found by all words in names, descriptions and choices", async () => {
  const { el, field, titled } = open();
  const find = async (words) => {
    fire(field("Find"), "input", { value: words });
    await settled();
    return [...el.querySelectorAll(".ptynb-settings-form > div:not([hidden]) .ptynb-row .ptynb-label")].map((one) => one.textContent);
  };
  assert.deepEqual(await find("DISTANCE slice"), ["Slice distance"]);
  assert.ok(titled("Batches: all settings").closest("[hidden]"));
  assert.deepEqual(await find("norm"), ["Loss"]);
  assert.deepEqual(await find("variation"), ["New constraint"]);
  assert.deepEqual(await find("nothing like this"), []);
  assert.match(el.textContent, /No setting has these words/);
  await find("");
  assert.equal(titled("Batches: all settings").closest("[hidden]"), null);
});

test("a source is chosen, and one of any name is told from edited settings", async () => {
  const { channel, field, press, commands } = open();
  const options = () => [...field("Preset").options].map((option) => option.textContent);
  assert.deepEqual([options(), field("Preset").selectedIndex], [["defaults", "changed"], 0]);
  fire(field("Preset"), "change", { selectedIndex: 1 });
  assert.deepEqual(commands(), [{ command: "choose", source: "changed" }]);
  channel.change("a", { source: { $changed: { changed: true }, $removed: [] } });
  await settled();
  assert.deepEqual([options(), field("Preset").selectedIndex], [["defaults", "changed", "defaults, changed"], 2]);
  fire(field("Preset"), "change", { selectedIndex: 2 });
  fire(field("Settings file"), "change", { value: "mine.yaml" });
  await press("Load");
  await press("Save");
  assert.deepEqual(channel.taken(), [
    { to: "a", set: { file: "mine.yaml" } }, { to: "a", command: "load", arguments: {} }, { to: "a", command: "save", arguments: {} },
  ]);
});

test("in a run changed fields come first, and others than live ones wait for Apply", async () => {
  const { channel, el, field, press, button, titled, commands } = open({
    mode: "live", marks: { loss: { was: "l1" } }, frozen: { batch: { on: false, rate: 0 } },
    groups: { ...FORM.groups, Batches: { on: null, summary: "loss L2 norm", changed: 1 } },
  });
  assert.equal(field("Preset"), null);
  assert.deepEqual([Boolean(field("Batch")), Boolean(field("Loss"))], [false, true], "folded");
  assert.match(el.textContent, /with Apply/);
  assert.deepEqual([...el.querySelectorAll(".ptynb-group")].map((one) => one.style.order), ["-1", "0", "0"]);
  await press("Batches: all settings");
  assert.equal(titled("Batch: set to 0").textContent, "Freeze");
  button("Freeze").click();
  channel.change("a", { frozen: { $changed: { batch: { on: true, rate: 0 } }, $removed: [] },
    waiting: { changes: [["Batch", "16 → 8"], ["Constraints", ""]], problem: "" } });
  await settled();
  assert.ok(button("Unfreeze").disabled);
  assert.match(el.querySelector("[role=status]").textContent, /Waiting for Apply: Batch 16 → 8, Constraints/);
  for (const name of ["Apply", "Discard"]) button(name).click();
  assert.deepEqual(commands().map(({ command }) => command), ["freeze", "apply", "discard"]);
  channel.change("a", { waiting: { changes: [["Batch", "16 → 8"]], problem: "not now" } });
  await settled();
  assert.ok(button("Apply").disabled);
  assert.match(el.textContent, /not now/);
});

test("ticked fields show their range, whose ends follow the unit, or the choices to try", async () => {
  const { channel, el, field, press, commands } = open({ mode: "ranges", tuned: {
    "slices.thickness": { problem: "", low: ["100", "0.1"], high: ["some", "some"], logarithmic: true },
    loss: { problem: "select one.", chosen: ["l2"] }, "slices.fit": { problem: "", chosen: [false] },
  } });
  assert.equal(el.textContent.includes("Constraints"), false);
  await press("Batches: all settings");
  await press("Slices: all settings");
  const tick = (name) => el.querySelector(`[aria-label="Tune ${name}"]`);
  assert.deepEqual([tick("Batch").checked, tick("Loss").checked], [false, true]);
  assert.deepEqual([field("lowest").value, field("highest").value, field("logarithmic").checked], ["0.1", "some", true]);
  tick("Batch").click();
  fire(field("highest"), "change", { value: "2" });
  field("logarithmic").click();
  field("L1 norm").click();
  field("L2 norm").click();
  field("on").click();
  assert.deepEqual(commands(), [
    { command: "tune", name: "batch", on: true },
    { command: "set_range", name: "slices.thickness", unit: "µm", high: "2" },
    { command: "set_range", name: "slices.thickness", unit: "µm", logarithmic: false },
    { command: "set_range", name: "loss", unit: "", chosen: ["l1", "l2"] },
    { command: "set_range", name: "loss", unit: "", chosen: [] },
    { command: "set_range", name: "slices.fit", unit: "", chosen: [false, true] },
  ]);
  fire(el.querySelector("[aria-label='Unit of Slice distance']"), "change", { selectedIndex: 0 });
  await settled();
  assert.equal(field("lowest").value, "100");
  assert.match(el.textContent, /select one/);
  channel.change("a", { tuned: { $changed: {}, $removed: ["slices.thickness"] } });
  await settled();
  assert.equal(field("lowest"), null);
});

test("beside the form stand memory, trials and what they found, once there is a scan", async () => {
  const table = { heads: ["", "bytes"], rows: [["object", "1 MB"], ["together", "2 MB"]], caption: "Each of 1 engine.", left: [0] };
  const values = { form: marks("f")[0], viewer: marks("v")[0], with_scan: false, memory: {}, measuring: false, advice: {}, trials: null, finding: "", recommended: {}, previewed: false, message: "" };
  const { channel, el } = drawn({ a: ["setUp", values], f: ["settingsForm", FORM], v: ["words", { value: "the viewer" }] });
  const button = (text) => [...el.querySelectorAll("button")].find((one) => one.textContent.trim() === text);
  assert.ok(el.querySelector(".ptynb-settings-form"));
  assert.equal(button("Preview"), undefined);
  channel.change("a", { with_scan: true, memory: { sentence: "Each takes 2 MB.", table, problem: "Too much." }, trials: 40, finding: "trial 2 ...", previewed: true });
  await settled();
  assert.deepEqual([...el.querySelectorAll("tr")].map((row) => row.textContent), ["bytes", "object1 MB", "together2 MB"]);
  assert.ok(button("Recommend").disabled);
  assert.equal(el.querySelector("progress").value, 40);
  assert.match(el.textContent, /Each takes 2 MB.*Too much.*trial 2.*the viewer/s);
  for (const text of ["Preview", "Time and advice", "Cancel trials"]) button(text).click();
  assert.deepEqual(channel.taken().map(({ command }) => command), ["preview", "measure", "cancel"]);
});
