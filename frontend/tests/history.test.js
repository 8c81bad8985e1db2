import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS, drawn, fire, settled } from "./channel.js";

const row = (key, epoch, more = {}) => ({ key, name: `epoch ${epoch}`, epoch: `${epoch}`, loss: "0.2", branch: "main", written: "10:00:00", size: "2.5 MB", stays: false, ...more });
DEFAULTS.history = { checkpoints: [], branches: ["main"], present: "main", over: false, message: "", notice: "", comparison: null };

const opened = (values) => {
  const { channel, el } = drawn({ h: ["history", { checkpoints: [row("/2", 2), row("/4", 4, { stays: true })], ...values }] });
  const [list, branches] = el.querySelectorAll("select");
  const button = (text) => [...el.querySelectorAll("button")].find((one) => one.textContent.trim() === text);
  const selected = () => el.querySelector(".ptynb-history-selected").textContent;
  const select = async (...keys) => {
    for (const option of list.options) option.selected = keys.includes(option.value);
    fire(list, "change");
    await settled();
  };
  return { channel, el, list, branches, button, selected, select };
};

test("the selection enables what can be done with it, and commands have its keys", async () => {
  const { channel, button, selected, select } = opened();
  const open = () => ["Restore", "Compare", "Save now", "Branch", "Switch"].filter((text) => !button(text).disabled);
  assert.deepEqual(open(), ["Save now", "Branch"]);
  assert.match(selected(), /^Selected: current state\. Select a second one/);
  await select("/4");
  assert.deepEqual(open(), ["Restore", "Save now", "Branch"]);
  button("Restore").click();
  await select("now", "/4");
  assert.deepEqual(open(), ["Compare", "Save now"]);
  assert.equal(selected(), "Selected: current state, epoch 4. Restore and Branch use one: select it alone.");
  button("Compare").click();
  button("Save now").click();
  assert.deepEqual(channel.taken().map(({ command, arguments: given }) => [command, given]), [
    ["restore", { checkpoint: "/4" }], ["compare", { checkpoints: ["now", "/4"] }], ["save", {}],
  ]);
  channel.change("h", { over: true });
  await settled();
  assert.deepEqual(open(), ["Compare"], "checkpoints of a closed reconstruction are compared only");
});

test("a checkpoint that is deleted is no longer selected, another one does not take its place", async () => {
  const { channel, button, list, selected, select } = opened();
  const kept = list.options[2];
  await select("/2");
  channel.change("h", { checkpoints: [row("/4", 4), row("/6", 6)] });
  await settled();
  assert.equal(list.options[1], kept, "options that stay keep their nodes, and so the list its place");
  assert.equal(selected(), "Nothing is selected.");
  assert.deepEqual([...list.options].filter((option) => option.selected), []);
  assert.ok(button("Restore").disabled && button("Branch").disabled);
});

test("texts lie below the titles of their columns", () => {
  const { el, list } = opened({ checkpoints: [row("/4", 4, { stays: true, branch: "a very long name of a branch" })] });
  const head = el.querySelector(".ptynb-list-head").textContent;
  const text = list.options[1].textContent;
  for (const [title, value] of [["epoch", "4"], ["loss", "0.2"], ["branch", "a\u00a0very\u00a0long\u00a0nam…"], ["written", "10:00:00"], ["size", "2.5\u00a0MB"]]) {
    assert.equal(text.indexOf(value), head.indexOf(title), title);
  }
  assert.ok(text.includes("permanent"));
});

test("a branch is named, and one is switched to; once it is present the name is empty again", async () => {
  const { channel, el, branches, button } = opened({ branches: ["main", "trial"] });
  const name = el.querySelector("input[type=text]");
  fire(name, "input", { value: "late" });
  await settled();
  button("Branch").click();
  fire(branches, "change", { selectedIndex: 1 });
  await settled();
  button("Switch").click();
  assert.deepEqual(channel.taken().map(({ arguments: given }) => given), [{ checkpoint: "now", name: "late" }, { name: "trial" }]);
  channel.change("h", { branches: ["main", "trial", "late"], present: "late" });
  await settled();
  assert.deepEqual([name.value, branches.selectedIndex, button("Switch").disabled], ["", 2, true]);
});
