import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS, drawn, fire, marks, settled } from "./channel.js";

const FIELDS = { fields: [], values: {}, units: {}, notes: {}, problems: {}, folded: [], hidden: [], disabled: [], more: "", line: "" };
Object.assign(DEFAULTS, {
  workbench: { facts: { scan: "", about: [] }, message: "", offers: {}, tab: "Scan", views: {}, lines: [] },
  runTab: {
    epochs: 100, stages: "", result_path: "", film_path: "", film_of: "checkpoints", film_rate: 4, page: "", starting: "",
    can_cancel: false, said: "", film: [], view: null,
  },
  clusterFields: { launcher: "local", others: ["wrapped"], problem: "", line: "" },
  optionFields: FIELDS,
  checkpointFields: { ...FIELDS, usual: "by default" },
  diagnosis: { busy: false, progress: [], status: "", findings: [], applied: "", has_places: false },
});
const [SCAN, RUN] = marks("s", "r");
const buttonsOf = (el) => Object.fromEntries([...el.querySelectorAll("button")].map((one) => [one.textContent.trim(), one]));
const fieldOf = (el, label) => {
  const found = [...el.querySelectorAll("label")].find((one) => one.textContent === label);
  return document.getElementById(found.getAttribute("for"));
};

test("tabs that pages do not have yet are asked for once the one in front is drawn, and shown when they come", async () => {
  const { channel, el } = drawn({
    w: ["workbench", { views: { Scan: SCAN, Run: null }, facts: { scan: "A & B", about: ["9 patterns"] }, lines: ["import ptynb as pt"] }],
    s: ["words", { value: "the scan" }],
  });
  assert.equal(el.querySelector(".ptynb-workbench-facts").getAttribute("title"), "A & B · 9 patterns");
  for (let turn = 0; turn < 40 && channel.sent.length === 0; turn++) await settled(50);
  assert.deepEqual(channel.taken(), [{ to: "w", command: "show_all", arguments: {} }]);
  buttonsOf(el).Run.click();
  assert.deepEqual(channel.taken(), [{ to: "w", set: { tab: "Run" } }]);
  channel.say({ changes: [["w", { views: { $changed: { Run: RUN }, $removed: [] } }]], new: { r: { component: "words", values: { value: "the run" } } }, defaults: DEFAULTS });
  await settled();
  assert.equal([...el.querySelectorAll(".ptynb-tab-page")].find((one) => !one.hidden).textContent, "the run");
  buttonsOf(el).Python.click();
  await settled();
  const code = el.querySelector("pre");
  assert.equal(code.textContent, "import ptynb as pt");
  let copied;
  globalThis.navigator = { clipboard: { writeText: async (text) => (copied = text) } };
  buttonsOf(el).Copy.click();
  await settled();
  assert.deepEqual([copied, el.querySelector(".ptynb-code [role=status]").textContent], ["import ptynb as pt", "copied"]);
});

test("runs without a notebook are offered, and messages are shown above the tabs", async () => {
  const { channel, el } = drawn({ w: ["workbench", { offers: { one: "one <run>" }, message: "Wrong.\nmore" }] });
  assert.ok(el.textContent.includes("A run continues without a notebook: one <run>."));
  assert.equal(el.querySelector("[role=alert]").firstChild.textContent, "Wrong.");
  const attach = buttonsOf(el).Attach;
  assert.equal(attach.getAttribute("title"), "pt.attach('one')");
  attach.click();
  assert.deepEqual(channel.taken(), [{ to: "w", command: "attach", arguments: { name: "one" } }]);
  channel.change("w", { offers: { $changed: {}, $removed: ["one"] }, message: "" });
  await settled();
  assert.deepEqual([buttonsOf(el).Attach, el.querySelector("[role=alert]")], [undefined, null]);
});

/** A field of a launcher or of checkpoints. */
const option = (name, label, choices = []) => ({ name, label, about: "", placeholder: "", kind: choices.length ? "choice" : "text", choices, units: [] });
const RUN_TAB = {
  r: ["runTab", { clusters: { $element: "c" }, checkpoints: { $element: "k" } }],
  c: ["clusterFields", { fields: { $element: "f" }, line: "cluster = pt.Cluster(2)" }],
  f: ["optionFields", {
    fields: [option("engines", "Engines"), option("device", "Device", [["auto", "auto"], ["cpu", "cpu"]]), option("threads", "Threads")],
    values: { engines: "2", device: "auto", threads: "" }, problems: { device: "There is no GPU." },
  }],
  g: ["optionFields", { fields: [option("nodes", "Nodes"), option("device", "Device", [["auto", "auto"]])], values: { nodes: "", device: "auto" } }],
  k: ["checkpointFields", { fields: [option("folder", "Checkpoint folder"), option("epochs", "One every [epochs]")], values: { folder: "", epochs: "" } }],
};

test("engines of this machine stand in the bar, and the options of another launcher on their page", async () => {
  const { channel, el } = drawn(structuredClone(RUN_TAB));
  fire(fieldOf(el, "Engines"), "change", { value: "70" });
  fire(fieldOf(el, "Device"), "change", { selectedIndex: 1 });
  fire(fieldOf(el, "Epochs"), "change", { value: "7" });
  buttonsOf(el)["New run"].click();
  buttonsOf(el).Cluster.click();
  assert.deepEqual(channel.taken(), [
    { to: "f", command: "enter", arguments: { name: "engines", value: "64" } },
    { to: "f", command: "enter", arguments: { name: "device", value: "cpu" } },
    { to: "r", set: { epochs: 7 } },
    { to: "r", command: "new_run", arguments: {} },
    { to: "r", set: { page: "Cluster" } },
  ]);
  await settled();
  const page = el.querySelector("[role=region][aria-label=Cluster]");
  assert.ok(fieldOf(page, "Threads") && page.textContent.includes("cluster = pt.Cluster(2)"));
  assert.equal(page.querySelector("[role=alert]").textContent, "There is no GPU.");
  assert.ok(fieldOf(page, "Launcher").textContent.endsWith("existing clusterwrapped"));  // the last one is a plug-in's
  fire(fieldOf(page, "Launcher"), "change", { selectedIndex: 1 });
  assert.deepEqual(channel.taken(), [{ to: "c", set: { launcher: "slurm" } }]);
  channel.change("c", { fields: { $element: "g" }, line: "", problem: "sbatch was not found." });
  await settled();
  assert.ok(fieldOf(page, "Nodes") && fieldOf(page, "Device"));
  assert.equal(page.querySelector("[role=alert]").textContent, "sbatch was not found.");
  assert.ok(el.querySelector(".ptynb-drawer-row").textContent.startsWith("Engines:\u00a0Slurm"));
  for (const name of ["Attach", "Stop engines"]) buttonsOf(page)[name].click();
  assert.deepEqual(channel.taken().map(({ command }) => command), ["attach", "stop_engines"]);
});

test("a cluster that was given is shown and cannot be exchanged", async () => {
  const given = structuredClone(RUN_TAB);
  Object.assign(given.c[1], { launcher: "given" });
  Object.assign(given.f[1], { disabled: ["engines", "device", "threads"], problems: {} });
  given.r[1].page = "Cluster";
  const { el } = drawn(given);
  const launcher = fieldOf(el, "Launcher");
  assert.deepEqual([launcher.disabled, launcher.textContent], [true, "that of this workbench"]);
  assert.deepEqual(["Engines", "Device"].map((label) => fieldOf(el, label).disabled), [true, true]);
  assert.ok(![...el.querySelectorAll("label")].some((label) => label.textContent === "Threads"));
});

test("a start that waits is told, and cancelled where that is possible", async () => {
  const { channel, el } = drawn(structuredClone(RUN_TAB));
  channel.change("r", { starting: "job 12 waits", can_cancel: true });
  await settled();
  assert.ok(el.textContent.includes("job 12 waits"));
  buttonsOf(el).Cancel.click();
  assert.deepEqual(channel.taken(), [{ to: "r", command: "cancel_start", arguments: {} }]);
  channel.change("r", { starting: "It was cancelled.", can_cancel: false });
  await settled();
  assert.deepEqual([buttonsOf(el).Cancel, el.textContent.includes("It was cancelled.")], [undefined, true]);
});

test("result and film are written to the files that are entered, and a film shows its progress", async () => {
  const { channel, el } = drawn({ ...structuredClone(RUN_TAB), r: ["runTab", { ...RUN_TAB.r[1], page: "Result", said: "saved: a.h5" }] });
  assert.ok(el.textContent.includes("saved: a.h5"));
  fire(fieldOf(el, "Result file"), "change", { value: "b.h5" });
  fire(fieldOf(el, "of"), "change", { selectedIndex: 1 });
  for (const name of ["Save result", "Report", "Add to comparison", "Film"]) buttonsOf(el)[name].click();
  assert.deepEqual(channel.taken().map(({ set, command }) => set ?? command), [
    { result_path: "b.h5" }, { film_of: "thumbnails" }, "save", "report", "add_to_comparison", "make_film",
  ]);
  channel.change("r", { film: [1, 4] });
  await settled();
  assert.equal(fieldOf(el, "Film").value, 0.25 * fieldOf(el, "Film").max);
  assert.ok(buttonsOf(el).Film.disabled);
  buttonsOf(el)["Cancel film"].click();
  assert.deepEqual(channel.taken(), [{ to: "r", command: "cancel_film", arguments: {} }]);
});

test("a finding is shown with its remedy, which is applied by name", async () => {
  const finding = { name: "bad pixels", strength: "9 [pixels]: 9, threshold 2", explanation: "They are <dead>.", remedy: "mask them", can_apply: true };
  const { channel, el } = drawn({
    d: ["diagnosis", { findings: [finding, { ...finding, name: "noise", can_apply: false }], status: "Two of 20.", viewer: { $element: "v" } }],
    v: ["words", { value: "places" }],
  });
  assert.ok(el.textContent.includes("bad pixels · 9 [pixels]: 9, threshold 2They are <dead>.Remedy: mask them."));
  assert.ok(!el.textContent.includes("places"));
  for (const name of ["Diagnose", "Try remedies", "Apply"]) buttonsOf(el)[name].click();
  assert.deepEqual(channel.taken().map(({ command, arguments: given }) => [command, given]), [
    ["diagnose", {}], ["diagnose", { trial: true }], ["apply", { name: "bad pixels" }],
  ]);
  channel.change("d", { busy: true, progress: [0, 3], has_places: true });
  await settled();
  assert.ok(buttonsOf(el).Diagnose.disabled && el.textContent.includes("places"));
  buttonsOf(el)["Cancel trials"].click();
  assert.deepEqual(channel.taken(), [{ to: "d", command: "cancel", arguments: {} }]);
});
