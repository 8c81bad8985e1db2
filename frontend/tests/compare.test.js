import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS, drawn, fire, settled } from "./channel.js";

DEFAULTS.compare = {
  columns: ["A", "B"],
  options: { picture: ["phase", "probe"], slice: ["all"], pair: ["B − A", "none"], slider: ["off", "A | B"], flicker: ["off", "A | B"] },
  chosen: { picture: "phase", slice: "all", pair: "B − A", slider: "off", flicker: "off", registered: true, positions: false, cuts: false },
  thick: false, viewer: null, cuts: null, busy: false, message: "", notes: [], cut_notes: [], difference: {}, losses: {}, settings: [], facts: [],
};
DEFAULTS.compareTab = { results: ["one", "two"], chosen: ["one"], said: "", comparison: null };

const opened = (values) => {
  const { channel, el } = drawn({ c: ["compare", values] });
  const field = (label) => document.getElementById([...el.querySelectorAll("label[for]")].find((one) => one.textContent === label).htmlFor);
  const check = (label) => [...el.querySelectorAll("input[type=checkbox]")].find((one) => one.nextSibling.textContent === label);
  const section = async (title) => {
    [...el.querySelectorAll("[role=tab]")].find((one) => one.textContent === title).click();
    await settled();
    return el.querySelector(".ptynb-tab-page:not([hidden])");
  };
  return { channel, el, field, check, section };
};

test("fields tell the name of a choice, and follow what the kernel has chosen", async () => {
  const { channel, field, check } = opened({});
  fire(field("Difference"), "change", { selectedIndex: 1 });
  check("Positions").click();
  assert.deepEqual(channel.taken().map(({ command, arguments: given }) => [command, given]), [
    ["choose", { name: "pair", choice: "none" }], ["choose", { name: "positions", choice: true }],
  ]);
  channel.change("c", { chosen: { $changed: { slider: "A | B", registered: false }, $removed: [] } });
  await settled();
  assert.deepEqual([field("Slider").selectedIndex, check("Registered").checked], [1, false]);
  assert.ok(field("Slice").disabled && !check("Cuts"), "objects without slices");
  channel.change("c", { thick: true });
  await settled();
  assert.ok(check("Cuts"));
});

test("tables have a column for each result, and what differs is bold", async () => {
  const { section, channel } = opened({ settings: [["loss", ["auto", "poisson"], true]], facts: [["R-factor", ["0.1", "<b>0.1"], false]] });
  const rows = (page) => [...page.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent));
  assert.deepEqual(rows(await section("Facts")), [["", "A", "B"], ["R-factor", "0.1", "<b>0.1"]]);
  const page = await section("Settings");
  assert.deepEqual(rows(page), [["", "A", "B"], ["loss", "auto", "poisson"]]);
  assert.ok(page.querySelector(".ptynb-compare-differs td"));
  channel.change("c", { settings: [] });
  await settled();
  assert.equal(page.textContent, "Settings that differ: none");
});

test("notes, errors, work and the difference are told", async () => {
  const { channel, el, section } = opened({ notes: ["B is not compared"], message: "No.\nlog", busy: true });
  assert.equal(el.querySelector("[role=alert]").firstChild.textContent, "No.");
  assert.deepEqual([...el.querySelectorAll("[role=status]")].map((one) => one.textContent), ["comparing …", "B is not compared"]);
  assert.equal((await section("Difference")).textContent, "No pair is selected.");
  const curve = { title: "FRC of B and A", axes: ["1/nm"], log: false, lowest: null, highest: 1, lines: [{ name: "FRC", x: [[0, 1]], y: [1, 0] }], marks: [], marked: "", file: "c" };
  channel.change("c", { difference: { registration: "B was moved.", curve, meaning: "It falls." } });
  await settled(20);
  const page = await section("Difference");
  for (const text of ["B was moved.", "FRC of B and A", "It falls."]) assert.ok(page.textContent.includes(text), text);
  assert.ok(!page.textContent.includes("logarithmic"), "its heights may be negative");
  channel.change("c", { difference: { problem: "The object is 0." } });
  await settled();
  assert.equal(page.textContent, "The object is 0.");
});

test("results are selected by name, and a file is named", async () => {
  const { channel, el } = drawn({ t: ["compareTab", {}] });
  const list = el.querySelector("select");
  list.options[1].selected = true;
  fire(list, "change");
  fire(el.querySelector("input"), "input", { value: "night.h5" });
  await settled();
  for (const button of el.querySelectorAll("button")) button.click();
  const [set, ...called] = channel.taken();
  assert.deepEqual(set.set, { chosen: ["one", "two"] });
  assert.deepEqual(called.map(({ command }) => command), ["add", "add_branches", "show", "report"]);
  assert.deepEqual(called[0].arguments, { path: "night.h5" });
  channel.change("t", { results: ["two", "three"], chosen: ["two", "three"] });
  await settled();
  assert.deepEqual([...list.options].map((option) => [option.value, option.selected]), [["two", true], ["three", true]]);
});
