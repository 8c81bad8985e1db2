import assert from "node:assert/strict";
import { test } from "node:test";

import { components, DEFAULTS, drawn, fire, marks, pageOf, settled, show } from "./channel.js";
import { press } from "./page.js";

test("what is being typed stays while another value changes, and goes when this one does", async () => {
  const { channel, el } = drawn({ a: ["text", { value: "old", continuous_update: false }] });
  const input = el.querySelector("input");
  fire(input, "input", { value: "unfinished" });
  channel.change("a", { tooltip: "changed" });
  await settled();
  assert.equal(input.getAttribute("title"), "changed");
  assert.equal(input.value, "unfinished");
  assert.deepEqual(channel.taken(), []);
  channel.change("a", { value: "kernel" });
  await settled();
  assert.equal(input.value, "kernel");
  fire(input, "change", { value: "finished" });
  assert.deepEqual(channel.taken(), [{ to: "a", set: { value: "finished" } }]);
});

test("a field that is updated continuously sends each key, one of several lines too", () => {
  const { channel, el } = drawn({ a: ["box", { children: marks("b", "c") }], b: ["text", {}], c: ["textarea", { rows: 3 }] });
  fire(el.querySelector("input"), "input", { value: "x" });
  fire(el.querySelector("textarea"), "input", { value: "y" });
  assert.deepEqual(channel.taken(), [{ to: "b", set: { value: "x" } }, { to: "c", set: { value: "y" } }]);
  assert.equal(el.querySelector("textarea").getAttribute("rows"), "3");
});

test("a number is sent within its limits, and another text is replaced by the number before", async () => {
  const { channel, el } = drawn({ a: ["number", { value: 5, min: 1, max: 10 }] });
  const input = el.querySelector("input");
  assert.equal(input.value, "5");
  for (const [typed, sent, shown] of [["20", 10, "10"], ["-1e3", 1, "1"], ["2.5", 2.5, "2.5"], ["many", undefined, "2.5"]]) {
    fire(input, "change", { value: typed });
    await settled();
    assert.equal(input.value, shown, typed);
    assert.deepEqual(channel.taken().map(({ set }) => set.value), sent === undefined ? [] : [sent], typed);
  }
  channel.change("a", { value: 7 });
  await settled();
  assert.equal(input.value, "7");
});

test("a number without limits may be any, and none is taken out of a text", () => {
  const { channel, el } = drawn({ a: ["number", { value: 5 }] });
  const input = el.querySelector("input");
  for (const typed of ["1e9", "-1E-3", ".5", "", "1 2", "0x10", "Infinity"]) fire(input, "change", { value: typed });
  assert.deepEqual(channel.taken().map(({ set }) => set.value), [1e9, -1e-3, 0.5]);
});

test("a list shows the option of its index, also after other options came, and sends the chosen one's", async () => {
  const { channel, el } = drawn({ a: ["dropdown", { labels: ["x", "y", "z"], index: 1 }] });
  const select = el.querySelector("select");
  assert.equal(select.selectedIndex, 1);
  channel.change("a", { index: null });
  await settled();
  assert.equal(select.selectedIndex, -1);
  channel.change("a", { labels: ["v", "w", "x", "y", "z"] });
  await settled();
  assert.equal(select.selectedIndex, -1);
  channel.change("a", { labels: ["p", "q"], index: 1 });
  await settled();
  assert.deepEqual(Array.from(select.options, (option) => option.textContent), ["p", "q"]);
  assert.equal(select.selectedIndex, 1);
  fire(select, "change", { selectedIndex: 0 });
  await settled();
  assert.deepEqual(channel.taken(), [{ to: "a", set: { index: 0 } }]);
  channel.change("a", { index: 1 }); // the kernel refuses
  await settled();
  assert.equal(select.selectedIndex, 1);
});

test("buttons and ticks say what was done with them", async () => {
  const { channel, el } = drawn({
    a: ["box", { children: marks("b", "t", "c") }],
    b: ["button", { description: "Go", icon: "play" }],
    t: ["toggle", { value: true }],
    c: ["checkbox", { description: "Tick" }],
  });
  const [button, toggle] = el.querySelectorAll("button");
  assert.ok(button.querySelector(".ptynb-button-icon[aria-hidden=true] > svg"));
  assert.equal(button.textContent.trim(), "Go");
  button.click();
  toggle.click();
  const tick = el.querySelector("input");
  tick.click();
  assert.deepEqual(channel.taken(), [
    { to: "b", content: { click: true } },
    { to: "t", set: { value: false } },
    { to: "c", set: { value: true } },
  ]);
  await settled();
  assert.equal(toggle.getAttribute("aria-pressed"), "false");
  channel.change("b", { disabled: true });
  channel.change("c", { value: false });
  await settled();
  assert.ok(button.disabled);
  assert.equal(tick.checked, false);
});

test("a label belongs to its field, and a field gets the focus when the kernel says so", async () => {
  const { channel, el } = drawn({ a: ["text", { description: "Name", style: { description_width: "44px" } }] });
  await settled(60); // effects come after a frame
  const label = el.querySelector("label");
  const input = el.querySelector("input");
  assert.ok(document.getElementById(label.getAttribute("for")) === input);
  assert.equal(label.style.width, "44px");
  channel.say({ to: "a", content: { focus: "a" } });
  await settled();
  assert.ok(document.activeElement === input);
});

test("layout and classes are those of the element, and follow it", async () => {
  const { channel, el } = drawn({ a: ["box", { layout: { flex_flow: "row wrap", width: "10px" }, classes: ["one"] }] });
  const box = el.firstElementChild;
  assert.equal(box.style.flexFlow, "row wrap");
  channel.change("a", { layout: { display: "none" }, classes: ["two"] });
  await settled();
  assert.deepEqual([box.style.display, box.style.width, box.style.flexFlow], ["none", "", ""]);
  assert.ok(box.classList.contains("two") && !box.classList.contains("one"));
});

test("children that stay keep their nodes, wherever they are moved", async () => {
  const { channel, el } = drawn({ a: ["box", { children: marks("b", "c") }], b: ["html", { value: "b" }], c: ["html", { value: "c" }] });
  const [b, c] = el.querySelectorAll(".ptynb-html");
  channel.change("a", { children: marks("c", "b") });
  await settled();
  assert.ok([...el.querySelectorAll(".ptynb-html")].every((node, index) => node === [c, b][index]));
});

test("a box that changes does not draw its children again", async () => {
  const { channel, el } = drawn({ a: ["box", { children: marks("b") }], b: ["html", { value: "b" }] });
  const child = pageOf(channel).element("b");
  let draws = 0;
  child.use = () => {
    draws += 1;
    return child.version.value >= 0 && child.values;
  };
  channel.change("b", { value: "own" });
  await settled();
  assert.equal(draws, 1);
  channel.change("a", { classes: ["wide"] });
  await settled();
  assert.ok(el.firstElementChild.classList.contains("wide"));
  assert.equal(draws, 1);
});

const TABS = {
  a: ["tab", { sent: marks("b", "c", "d"), titles: ["B", "C", "D"] }],
  b: ["html", { value: "b" }],
  c: ["html", { value: "c" }],
  d: ["html", { value: "d" }],
};

test("a tab draws its page when it is opened first, and keeps it then", async () => {
  const { channel, el } = drawn(TABS);
  await settled();
  const shown = () => [...el.querySelectorAll(".ptynb-tab-page")].map((page) => `${page.textContent}${page.hidden ? "" : "!"}`);
  assert.deepEqual(shown(), ["b!", "", ""]);
  el.querySelectorAll("[role=tab]")[1].click();
  await settled();
  assert.deepEqual(channel.taken(), [{ to: "a", set: { selected_index: 1 } }]);
  assert.deepEqual(shown(), ["b", "c!", ""]);
  channel.change("a", { selected_index: 0 });
  await settled();
  assert.deepEqual(shown(), ["b!", "c", ""]);
  const selected = [...el.querySelectorAll("[role=tab]")].map((tab) => [tab.getAttribute("aria-selected"), tab.tabIndex]);
  assert.deepEqual(selected, [["true", 0], ["false", -1], ["false", -1]]);
});

test("a tab asks for the pages that it does not have, after the first is drawn", async () => {
  const { channel, el } = drawn({ ...TABS, a: ["tab", { sent: [...marks("b"), null], titles: ["B", "C"] }] });
  await settled();
  assert.equal(el.querySelector(".ptynb-tab-page").textContent, "b");
  assert.deepEqual(channel.taken(), []);
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.deepEqual(channel.taken(), [{ to: "a", content: { more: true } }]);
  channel.change("a", { sent: marks("b", "c"), selected_index: 1 });
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.equal(el.querySelectorAll(".ptynb-tab-page")[1].textContent, "c");
  assert.deepEqual(channel.taken(), []);
});

test("arrows, Home and End move along the tabs, and stop at the ends", () => {
  const { el } = drawn(TABS);
  const tabs = [...el.querySelectorAll("[role=tab]")];
  tabs[0].focus();
  const pressed = (key) => {
    const done = press(key);
    return [tabs.indexOf(document.activeElement), done];
  };
  const steps = { ArrowRight: 1, End: 2, ArrowLeft: 1, Home: 0 };
  for (const [key, index] of Object.entries(steps)) assert.deepEqual(pressed(key), [index, true], key);
  assert.deepEqual(pressed("ArrowLeft"), [0, true]);
  assert.deepEqual(pressed("x"), [0, false]);
});

test("a text of the kernel is HTML, and follows it", async () => {
  const { channel, el } = drawn({ a: ["html", { value: "<b>1</b> & 2" }] });
  const content = el.querySelector(".ptynb-html > .ptynb-html-content");
  assert.equal(content.innerHTML, "<b>1</b> &amp; 2");
  channel.change("a", { value: "<i>3</i>" });
  await settled();
  assert.equal(content.querySelector("i").textContent, "3");
  assert.equal(content.textContent, "3");
});

test("fields show what they are for, and whether they can be changed", async () => {
  const control = { placeholder: "none", tooltip: "help", disabled: true };
  for (const [kind, tag] of [["text", "input"], ["textarea", "textarea"]]) {
    const { channel, el } = drawn({ a: [kind, { ...control, value: "1" }] });
    const field = el.querySelector(tag);
    assert.deepEqual([field.value, field.placeholder, field.disabled, field.title], ["1", "none", true, "help"], kind);
    assert.equal(el.querySelector("label"), null);
    channel.change("a", { disabled: false, placeholder: "any", description: "Name" });
    await settled();
    assert.deepEqual([field.placeholder, field.disabled], ["any", false], kind);
    const label = el.querySelector("label.ptynb-label");
    assert.deepEqual([label.textContent, label.title], ["Name", "Name"], kind);
  }
});

test("several lines are sent when they are finished, and replaced by those of the kernel", async () => {
  const { channel, el } = drawn({ a: ["textarea", { value: "old", continuous_update: false }] });
  const field = el.querySelector("textarea");
  fire(field, "input", { value: "x\ny" });
  assert.deepEqual(channel.taken(), []);
  fire(field, "change");
  assert.deepEqual(channel.taken(), [{ to: "a", set: { value: "x\ny" } }]);
  channel.change("a", { value: "new" });
  await settled();
  assert.equal(field.value, "new");
});

test("a number tells the browser its limits and steps, which follow the kernel", async () => {
  const { channel, el } = drawn({ a: ["number", { value: 5, min: 1, max: 10, step: 2 }] });
  const input = el.querySelector("input[type=number]");
  const limits = () => ["min", "max", "step"].map((name) => input.getAttribute(name) || null);
  assert.deepEqual(limits(), ["1", "10", "2"]);
  channel.change("a", { min: null, max: 20, step: null });
  await settled();
  assert.deepEqual(limits(), [null, "20", "any"]);
  fire(input, "change", { value: "-15" });
  fire(input, "change", { value: "25" });
  assert.deepEqual(channel.taken().map(({ set }) => set.value), [-15, 20]);
});

test("a tick has a text, which is no HTML, and stands below fields if it is indented", async () => {
  const text = "<b>Bold</b>";
  const { channel, el } = drawn({ a: ["checkbox", { value: true, description: text, style: { description_width: "44px" } }] });
  const label = el.querySelector(".ptynb-checkbox-label");
  assert.deepEqual([label.textContent, el.querySelector("b")], [text, null]);
  assert.equal(el.querySelector("input").checked, true);
  assert.equal(el.querySelector(".ptynb-label").style.width, "44px");
  channel.change("a", { indent: false, disabled: true });
  await settled();
  assert.equal(el.querySelector(".ptynb-label"), null);
  assert.ok(el.querySelector("input").disabled);
});

test("a button has the look, the icon and the text of its values, and sends no click while it is disabled", async () => {
  const { channel, el } = drawn({ a: ["button", { description: "Go", button_style: "primary", tooltip: "Starts" }] });
  const button = el.querySelector("button");
  assert.deepEqual([...button.classList], ["ptynb-element", "ptynb-button", "ptynb-primary"]);
  assert.deepEqual([button.title, button.querySelector("svg")], ["Starts", null]);
  channel.change("a", { description: "Stop", icon: "stop", button_style: "", disabled: true });
  await settled();
  assert.deepEqual([...button.classList], ["ptynb-element", "ptynb-button"]);
  assert.ok(button.querySelector(".ptynb-button-icon > svg"));
  assert.equal(button.textContent.trim(), "Stop");
  button.click();
  assert.deepEqual(channel.taken(), []);
});

test("a toggle is as the kernel says, and sends the other state", async () => {
  const { channel, el } = drawn({ a: ["toggle", { description: "More", icon: "plus" }] });
  const toggle = el.querySelector("button.ptynb-toggle");
  const pressed = () => toggle.getAttribute("aria-pressed");
  assert.deepEqual([toggle.textContent.trim(), pressed()], ["More", "false"]);
  assert.ok(toggle.querySelector("svg"));
  channel.change("a", { value: true, description: "Less" });
  await settled();
  assert.deepEqual([toggle.textContent.trim(), pressed()], ["Less", "true"]);
  toggle.click();
  await settled();
  assert.deepEqual([channel.taken(), pressed()], [[{ to: "a", set: { value: false } }], "false"]);
});

test("a bar shows the part of its way from the least to the most", async () => {
  const { channel, el } = drawn({ a: ["progress", { value: 15, min: 10, max: 30, description: "Epochs" }] });
  const bar = el.querySelector("progress");
  const shown = () => ["value", "max"].map((name) => Number(bar.getAttribute(name) ?? bar[name]));
  assert.deepEqual(shown(), [5, 20]);
  assert.equal(el.querySelector("label").getAttribute("for"), bar.id);
  channel.change("a", { value: 30, max: 40 });
  await settled();
  assert.deepEqual(shown(), [20, 30]);
});

test("a tab whose pages change shows the new ones", async () => {
  const { channel, el } = drawn(TABS);
  channel.change("a", { sent: marks("d", "b"), titles: ["Z", "B"], selected_index: 0 });
  await settled();
  assert.deepEqual([...el.querySelectorAll("[role=tab]")].map((tab) => tab.textContent), ["Z", "B"]);
  const [first, second] = el.querySelectorAll(".ptynb-tab-page");
  assert.deepEqual([first.textContent, first.hidden, second.hidden], ["d", false, true]);
  assert.equal(el.querySelector("[role=tabpanel]").getAttribute("aria-labelledby"), el.querySelector("[role=tab]").id);
});

test("an accordion shows the page of the open title, of which it tells the kernel, as of its closing", async () => {
  const { channel, el } = drawn({ ...TABS, a: ["accordion", { children: marks("b", "c", "d"), titles: ["B", "C", "D"], selected_index: 1 }] });
  const pages = [...el.querySelectorAll("details")];
  const shown = () => pages.map((page) => `${page.querySelector("summary").textContent}${page.open ? "!" : ""}${page.children[1]?.textContent ?? ""}`);
  await settled();
  assert.deepEqual(shown(), ["B", "C!c", "D"]);
  assert.deepEqual(channel.taken(), []);
  fire(pages[2], "toggle", { open: true });
  await settled();
  assert.deepEqual(channel.taken(), [{ to: "a", set: { selected_index: 2 } }]);
  assert.deepEqual(shown(), ["B", "C", "D!d"]);
  fire(pages[2], "toggle", { open: false });
  await settled();
  assert.deepEqual(channel.taken(), [{ to: "a", set: { selected_index: null } }]);
  assert.deepEqual(shown(), ["B", "C", "D"]);
  channel.change("a", { selected_index: 0 });
  await settled();
  assert.deepEqual(shown(), ["B!b", "C", "D"]);
  assert.deepEqual(channel.taken(), []);
});

test("what a script of its own draws gets the element, and is told of its end", async () => {
  const seen = [];
  components.script = ({ model, el: node }) => {
    node.textContent = model.get("value");
    return () => seen.push("end");
  };
  const { channel, el } = drawn({ a: ["box", { children: marks("b") }], b: ["script", { ...DEFAULTS.html, value: "drawn" }] });
  await settled();
  assert.equal(el.querySelector(".ptynb-drawn").textContent, "drawn");
  channel.change("a", { children: [] });
  await settled();
  assert.equal(el.querySelector(".ptynb-drawn"), null);
  assert.deepEqual(seen, ["end"]);
});

test("arrows choose the next segment and the previous one, around the ends", async () => {
  const values = { options: ["a", "b", "c"], icons: ["", "", ""], chosen: "b", description: "Which" };
  const { channel, el } = drawn({ a: ["segments", values] });
  const buttons = [...el.querySelectorAll("button")];
  const checked = () => buttons.map((button) => button.getAttribute("aria-checked")).join(" ");
  assert.equal(checked(), "false true false");
  buttons[1].focus();
  for (const [key, chosen] of [["ArrowRight", "c"], ["ArrowDown", "a"], ["ArrowLeft", "c"]]) {
    assert.ok(press(key));
    await settled();
    assert.deepEqual(channel.taken(), [{ to: "a", set: { chosen } }]);
    assert.equal(document.activeElement.textContent, chosen);
  }
  assert.equal(checked(), "false false true");
  assert.deepEqual(buttons.map((button) => button.tabIndex), [-1, -1, 0]);
});

test("a drawer draws a page when it is opened, shows one at a time or none, and keeps it", async () => {
  const values = { titles: ["Settings", "Log"], icons: ["list-checks", ""], pages: marks("b", "c"), description: "Pages" };
  const { channel, el } = drawn({ a: ["drawer", values], b: ["html", { value: "first" }], c: ["html", { value: "second" }] });
  const [settings, log] = el.querySelectorAll("button");
  const shown = () => [...el.querySelectorAll("[role=region]")].map((page) => (page.hidden ? "" : page.textContent));
  assert.deepEqual(shown(), ["", ""]);
  assert.equal(el.querySelector("[role=region]").textContent, "");
  for (const [button, title, texts] of [[settings, "Settings", ["first", ""]], [log, "Log", ["", "second"]], [log, null, ["", ""]]]) {
    button.click();
    await settled();
    assert.deepEqual([channel.taken(), shown()], [[{ to: "a", set: { shown: title } }], texts]);
    assert.equal(button.getAttribute("aria-expanded"), String(title !== null));
  }
  channel.change("a", { shown: "Settings" });
  await settled();
  assert.deepEqual(shown(), ["first", ""]);
});

test("a page is shown in several places, which follow the kernel, until it is removed from one", async () => {
  const { channel, el } = drawn({ a: ["html", { value: "1" }] });
  const other = document.body.appendChild(document.createElement("section"));
  const remove = show({ channel, model: null, el: other });
  channel.change("a", { value: "2" });
  await settled();
  assert.deepEqual([el.textContent, other.textContent], ["2", "2"]);
  remove();
  assert.deepEqual([el.textContent, other.textContent], ["2", ""]);
});
