import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS, drawn, fire, settled } from "./channel.js";

const STATE = { state: "running", done: 4, wanted: 20, unfinished: 1, score: "1", file: "/kept/a.journal" };
DEFAULTS.tuner = {
  trials: 20, epochs: 30, metric: "loss", sampler: "tpe", file: "", scan_ranges: "",
  functions: ["roughness"], shown_form: null, state: { state: "" }, best: null, parameters: [], rows: {}, pictures: {}, message: "",
};
const PARAMETERS = [
  { label: "Rate", ends: [[0, "0.001", "start"], [1, "0.1", "end"]] },
  { label: "Batch", ends: [[0.25, "8", "middle"], [0.75, "16", "middle"]] },
];
const trial = (number, state, score, place, more = {}) => ({
  number, state, reason: "", score, text: score === null ? "" : `${score}`, values: [`rate ${number}`, `batch ${number}`],
  places: [place, 0.25], epochs: number, time: "1 s", engines: "0", pictured: true, ...more,
});
const TRIALS = [trial(1, "complete", 10, 0.5), trial(2, "complete", 1, 0), trial(3, "pruned", null, 1, { reason: "Hopeless." }), trial(4, "complete", 100, 1), trial(5, "running", null, 0)];
const rowsOf = (trials) => Object.fromEntries(trials.map((one) => [one.number, one]));
const SHOWN = { state: STATE, best: 2, parameters: PARAMETERS, rows: rowsOf(TRIALS), pictures: { 1: "data:image/png;base64,AAAA" } };

const opened = (values) => {
  const { channel, el } = drawn({ t: ["tuner", values] });
  const button = (text) => [...el.querySelectorAll("button")].find((one) => one.textContent.trim() === text);
  const field = (label) => document.getElementById([...el.querySelectorAll("label[for]")].find((one) => one.textContent === label).htmlFor);
  const choose = async (label, text) => {
    fire(field(label), "change", { selectedIndex: [...field(label).options].findIndex((one) => one.textContent === text) });
    await settled();
  };
  const open = () => ["Start", "Stop", "Continue", "Use"].filter((text) => !button(text).disabled);
  const firsts = () => [...el.querySelectorAll("tbody tr")].map((row) => row.firstChild.textContent);
  return { channel, el, button, field, choose, open, firsts };
};

test("fields are sent, a score is explained, and buttons are open when they can do something", async () => {
  const { channel, el, button, field, choose, open } = opened({});
  assert.deepEqual(open(), ["Start"]);
  assert.ok(el.textContent.includes("No study"));
  fire(field("Trials"), "change", { value: "0" });
  await choose("Score", "Fourier ring correlation of halves");
  assert.ok(el.textContent.includes("each from half of the scan"));
  await choose("Score", "roughness");
  assert.ok(el.textContent.includes("your function"));
  await choose("Sampler", "random");
  fire(field("Scan"), "change", { value: "bin: 1, 2" });
  button("Start").click();
  assert.deepEqual(channel.taken().map(({ set, command }) => set ?? command), [
    { trials: 1 }, { metric: "frc" }, { metric: "roughness" }, { sampler: "random" }, { scan_ranges: "bin: 1, 2" }, "start",
  ]);
  channel.change("t", { state: STATE });
  await settled();
  assert.deepEqual(open(), ["Stop"]);
  for (const text of ["4 of 20 trials", "1 running", "best score 1", "/kept/a.journal"]) assert.ok(el.textContent.includes(text), text);
  channel.change("t", { state: { ...STATE, state: "ready" }, best: 2 });
  await settled();
  assert.deepEqual(open(), ["Start", "Continue", "Use"]);
});

test("trials are ordered by score or by number, the best one marked in words", async () => {
  const { channel, el, choose, firsts } = opened(SHOWN);
  assert.deepEqual(firsts(), ["★ 2 best", "1", "4", "5", "3"]);
  const heads = [...el.querySelectorAll("th")].map((one) => one.textContent);
  assert.deepEqual(heads, ["trial", "object phase", "Rate", "Batch", "score", "state", "epochs", "time", "engines"]);
  assert.equal(el.querySelector("tbody img").alt, "object phase of trial 1");
  assert.equal(el.querySelector("tbody details").textContent, "prunedHopeless.");
  await choose("Order", "newest first");
  assert.deepEqual(firsts(), ["5", "4", "3", "★ 2 best", "1"]);
  const many = Array.from({ length: 50 }, (_, index) => trial(index + 1, "complete", index + 1, 0));
  channel.change("t", { rows: rowsOf(many) });
  await settled();
  assert.equal(firsts().length, 40);
  assert.ok(el.textContent.includes("and 10 more; study.trials has all of them."));
  await choose("View", "pictures");
  assert.equal(el.querySelectorAll("figure").length, 24);
  assert.ok(el.textContent.includes("and 26 more."));
});

test("a trial is picked by its picture, and stays picked while others come", async () => {
  const { channel, el, button, choose, field } = opened(SHOWN);
  await choose("View", "pictures");
  assert.deepEqual([...el.querySelectorAll("figcaption")].map((one) => one.textContent.split("Rate")[0]), [
    "★ trial 2 best: 1", "trial 1: 10", "trial 4: 100", "trial 5: running", "trial 3: pruned",
  ]);
  await choose("Pick", "trial 3: pruned");
  channel.change("t", { rows: { $changed: { 6: trial(6, "complete", 0.5, 0) }, $removed: [] }, best: 6 });
  await settled();
  assert.equal(field("Pick").value, "3");
  button("Use").click();
  channel.change("t", { rows: rowsOf([TRIALS[0]]) });
  await settled();
  assert.equal(field("Pick").value, "0", "the best one, as the picked one is of another study");
  button("Use").click();
  assert.deepEqual(channel.taken().map(({ arguments: given }) => given), [{ trial: 3 }, { trial: 0 }]);
});

test("plots put scores where their parameters are", async () => {
  const { channel, el } = opened(SHOWN);
  const plots = [...el.querySelectorAll("svg[role=img]")];
  assert.deepEqual(plots.map((plot) => plot.getAttribute("aria-label")), ["score against Rate", "score against Batch"]);
  const spots = [...plots[0].querySelectorAll("circle")].map((spot) => ["cx", "cy"].map((name) => Number(spot.getAttribute(name))));
  assert.deepEqual(spots.map(([x]) => (x - 62) / 166), [0.5, 1]);
  const texts = [...plots[0].querySelectorAll("text")].map((one) => one.textContent);
  assert.deepEqual(texts, ["1", "100", "0.001", "0.1", "Rate"]);
  const [low, high] = [...plots[0].querySelectorAll("text")].slice(0, 2).map((one) => Number(one.getAttribute("y")) - 4);
  assert.ok(Math.abs(spots[0][1] - (low + high) / 2) < 0.01, "10 is in the middle between 1 and 100: scores are logarithmic");
  assert.equal(spots[1][1], high);
  assert.equal(plots[0].querySelector("polygon").textContent, "trial 2: 1");
  assert.equal(plots[0].querySelector(".ptynb-tuner-pruned").textContent, "trial 3: pruned");
  channel.change("t", { rows: rowsOf([trial(1, "complete", 0.5, 0), trial(2, "complete", 0.5, 1)]) });
  await settled();
  assert.ok(Number(el.querySelector("circle").getAttribute("cy")) > 0, "equal scores have a place");
  channel.change("t", { rows: rowsOf([TRIALS[2]]) });
  await settled();
  assert.equal(el.querySelector("svg[role=img]"), null);
});
