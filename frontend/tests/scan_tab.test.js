import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS, drawn, fire, marks, settled } from "./channel.js";
import { press } from "./page.js";

const [chooser, options, listening, fields] = marks("c", "o", "l", "f");
const OPTION = { label: "Source", about: "one of these: pva://X", placeholder: "", kind: "text", choices: [], units: [] };
Object.assign(DEFAULTS, {
  fileChooser: {
    folder: "/night", more: 0, current: "/night/scan.h5", recent: ["/old/a.h5"], message: "", all_files: false,
    items: [["data", "folder", "", ""], ["scan.h5", "scan", "2 MB", "2026-01-02 10:00"], ["<img src=x>.txt", "other", "1 kB", "2026-01-03 11:00"]],
  },
  optionFields: { fields: [{ name: "source", ...OPTION }], values: { source: "" }, units: {}, notes: {}, problems: {}, folded: [], hidden: [], disabled: [], more: "", line: "" },
  listenPanel: { fields, busy: false, waiting: "", notice: "", status: "" },
  scanTab: {
    live: false, unfolded: true, path: "", remarks: [], title: [], facts: [], suggestion: "", being_written: false,
    receiving: "", question: "", chooser, options, listening, inspection: null,
  },
});
const open = (values = {}) => drawn({ t: ["scanTab", values], c: ["fileChooser", {}], o: ["optionFields", {}], l: ["listenPanel", {}], f: ["optionFields", {}] });
const buttons = (el) => [...el.querySelectorAll("button:not(.ptynb-files button)")].map((one) => one.textContent.trim() || one.title);
const click = (el, text) => [...el.querySelectorAll("button")].find((one) => one.textContent.trim() === text).click();
const commands = (channel) => channel.taken().map(({ command, arguments: given, set }) => set ?? [command, given]);

test("keys move along files, letters find them, and Backspace goes up", async () => {
  const { channel, el } = drawn({ c: ["fileChooser", {}] });
  const files = [...el.querySelectorAll(".ptynb-files button")];
  assert.deepEqual(files.map((button) => button.tabIndex), [-1, 0, -1]);
  assert.equal(files[1].getAttribute("aria-current"), "true");
  assert.equal(el.querySelector("img"), null, "names are text");
  files[1].focus();
  for (const [key, name] of [["ArrowDown", "<img"], ["ArrowDown", "<img"], ["Home", "data/"], ["s", "scan.h5"], ["z", "scan.h5"], ["End", "<img"]]) {
    press(key);
    assert.ok(document.activeElement.textContent.startsWith(name), `${key}: ${document.activeElement.textContent}`);
  }
  press("Backspace");
  assert.equal(press("s", { ctrlKey: true }), false);
  files[0].click();
  files[0].dispatchEvent(new window.Event("dblclick", { bubbles: true }));
  files[1].dispatchEvent(new window.Event("dblclick", { bubbles: true })); // what lies there after the first click
  assert.deepEqual(commands(channel), [["up", {}], ["open", { name: "data" }], ["open", { name: "data", twice: true }]]);
});

test("other folders, all files and those that were loaded last are chosen", async () => {
  const { channel, el } = drawn({ c: ["fileChooser", { message: "cannot be read", more: 3 }] });
  const [folder, filter, recent] = el.querySelectorAll("input, select");
  for (const button of el.querySelectorAll(".ptynb-file-chooser-row button")) button.click();
  fire(folder, "change", { value: "/other" });
  fire(filter, "change", { selectedIndex: 1 });
  assert.equal(recent.options[1].textContent, "a.h5  (/old)");
  fire(recent, "change", { selectedIndex: 1 });
  assert.deepEqual(commands(channel), [
    ["up", {}], ["show", {}], ["refresh", {}], ["show", { folder: "/other" }], { all_files: true }, ["recall", { path: "/old/a.h5" }],
  ]);
  channel.change("c", { current: "/old/a.h5" });
  await settled();
  assert.equal(recent.selectedIndex, 0, "the same one may be chosen again, from another folder");
  assert.equal(el.querySelector("[role=alert]").textContent, "cannot be read");
  assert.ok(el.textContent.includes("and 3 more"));
  channel.change("c", { folder: "/", recent: [] });
  await settled();
  assert.deepEqual([el.querySelector("button").disabled, recent.disabled], [true, true]);
});

test("a file is named, described and loaded, and what is known of it is shown", async () => {
  const { channel, el } = open();
  assert.ok(el.textContent.includes("Click a file"));
  fire(el.querySelector("input"), "change", { value: "a.h5" });
  click(el, "Load");
  click(el, "Info");
  click(el, "Choose file");
  assert.deepEqual(commands(channel), [["name_file", { path: "a.h5" }], ["open", {}], ["describe", {}], { unfolded: false }]);
  await settled();
  assert.equal(el.querySelector(".ptynb-files"), null);
  const remarks = [{ text: "wrong", role: "alert" }, { text: "guessed", role: "status" }];
  channel.change("t", { unfolded: true, path: "a.h5", remarks, title: ["a.h5", "CXI"], facts: [["energy", "8 keV", "entry"]], suggestion: "Use near field", being_written: true });
  await settled();
  assert.deepEqual([...el.querySelectorAll(".ptynb-message")].map((one) => [one.getAttribute("role"), one.textContent]), [["alert", "wrong"], ["status", "guessed"]]);
  assert.deepEqual([...el.querySelectorAll("td")].map((one) => one.textContent), ["energy", "8 keV", "entry"]);
  click(el, "Use near field");
  click(el, "Listen to this file");
  assert.deepEqual(commands(channel), [["suggest", {}], ["listen_to_file", {}]]);
});

test("a live source is listened to, waited for and ended after a question", async () => {
  const { channel, el } = open({ receiving: "on" });
  click(el, "Live source");
  await settled();
  assert.equal(el.querySelector(".ptynb-addresses").textContent, "one of these: pva://X");
  fire(el.querySelector("input"), "change", { value: "pva://X" });
  click(el, "Listen");
  click(el, "Stop listening");
  assert.deepEqual(commands(channel), [{ live: true }, ["enter", { name: "source", value: "pva://X" }], ["listen", {}], ["stop", {}]]);
  channel.change("l", { busy: true, waiting: "waiting, 0:01", notice: "a pattern came" });
  channel.change("t", { question: "End the scan?" });
  await settled();
  assert.deepEqual(buttons(el).filter((text) => text !== ""), ["File", "Live source", "Listen", "Cancel", "Plan", "Stop listening", "Open received scan", "End the scan", "Keep listening"]);
  assert.ok(el.textContent.includes("waiting, 0:01"));
  assert.ok(el.textContent.includes("a pattern came"));
  for (const text of ["Cancel", "Keep listening", "End the scan"]) click(el, text);
  assert.deepEqual(commands(channel), [["cancel", {}], ["answer", { end: false }], ["answer", { end: true }]]);
  channel.change("t", { receiving: "ended", question: "" });
  await settled();
  const [stop, received] = [...el.querySelectorAll("button")].slice(-2);
  assert.deepEqual([stop.disabled, received.disabled], [true, false]);
  received.click();
  assert.deepEqual(commands(channel), [["open_received", {}]]);
});
