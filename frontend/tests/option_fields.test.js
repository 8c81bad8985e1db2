import assert from "node:assert/strict";
import { test } from "node:test";

import { DEFAULTS, drawn, fire, settled } from "./channel.js";

const field = (name, more = {}) => ({ name, label: name.toUpperCase(), about: `about ${name}`, placeholder: "", kind: "text", choices: [], units: [], ...more });
const STORE = {
  fields: [
    field("energy", { units: ["eV", "keV"] }),
    field("geometry", { kind: "choice", choices: [["far", "far field"], ["near", "near field"]] }),
    field("clip", { kind: "switch" }),
    field("mask", { placeholder: "dataset or file" }),
    field("secret"),
  ],
  values: { energy: "8", geometry: "far", clip: false, mask: "", secret: "" },
  units: { energy: "keV" },
  notes: {},
  problems: {},
  folded: ["mask"],
  hidden: ["secret"],
  disabled: [],
  more: "More",
  line: "",
};
DEFAULTS.optionFields = { ...STORE };

const inputs = (el) => [...el.querySelectorAll("input, select")].map((one) => one.name || one.title || one.parentNode.title);

test("what is entered is sent with its name, a unit by itself", () => {
  const { channel, el } = drawn({ a: ["optionFields", {}] });
  const [energy, unit, geometry, clip] = el.querySelectorAll("input, select");
  assert.deepEqual(inputs(el), ["a-energy", "Unit of ENERGY", "a-geometry", "a-clip"]);
  assert.equal(unit.value, "keV");
  fire(energy, "change", { value: "12.4" });
  fire(unit, "change", { selectedIndex: 0 });
  fire(geometry, "change", { selectedIndex: 1 });
  clip.click();
  assert.deepEqual(channel.taken().map(({ command, arguments: given }) => [command, given]), [
    ["enter", { name: "energy", value: "12.4" }],
    ["enter", { name: "energy", unit: "eV" }],
    ["enter", { name: "geometry", value: "near" }],
    ["enter", { name: "clip", value: true }],
  ]);
});

test("notes are beside the fields and problems below, and what is typed stays where it is", async () => {
  const { channel, el } = drawn({ a: ["optionFields", {}] });
  const input = el.querySelector("input");
  fire(input, "input", { value: "unfinished" });
  channel.change("a", { notes: { $changed: { energy: { text: "missing", needed: true } }, $removed: [] }, folded: [], disabled: ["clip"], problems: { $changed: { mask: "no file" }, $removed: [] } });
  await settled();
  assert.equal(el.querySelector("input"), input);
  assert.equal(input.value, "unfinished");
  assert.equal(el.querySelector(".ptynb-option-needed").textContent, "● missing");
  assert.equal(el.querySelector("[role=alert]").textContent, "no file");
  assert.deepEqual([...el.querySelectorAll("input, select")].map((one) => one.disabled), [false, false, false, true, false]);
  assert.equal(el.querySelector("details"), null);
});

test("the kernel moves the cursor into a field, which is unfolded for it", async () => {
  const { channel, el } = drawn({ a: ["optionFields", {}] });
  await settled(60); // effects come after a frame
  channel.say({ to: "a", content: { focus: "mask" } });
  await settled(30);
  assert.ok(el.querySelector("details").open);
  assert.equal(document.activeElement.name, "a-mask");
  assert.equal(document.activeElement.placeholder, "dataset or file");
});
