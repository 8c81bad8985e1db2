import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { Window } from "happy-dom";

import { Page } from "../src/page/elements.js";

globalThis.window = new Window(); // which some of the next look at while they are loaded
const { pageOf: pageOfChannel, show } = await import("../src/page/show.jsx");
const ELEMENT = { layout: {}, classes: [], tooltip: null };
const CONTROL = { ...ELEMENT, description: "", disabled: false, style: {} };
const DEFAULTS = {
  html: { ...ELEMENT, value: "" },
  text: { ...CONTROL, value: "", placeholder: "", continuous_update: true },
  textarea: { ...CONTROL, value: "", placeholder: "", continuous_update: true, rows: null },
  number: { ...CONTROL, value: 0, min: null, max: null, step: null, continuous_update: false },
  checkbox: { ...CONTROL, value: false, indent: true, description_allow_html: false },
  button: { ...CONTROL, icon: "", button_style: "" },
  toggle: { ...CONTROL, value: false, icon: "", button_style: "" },
  dropdown: { ...CONTROL, labels: [], index: null },
  multiple: { ...CONTROL, labels: [], index: [], rows: 5 },
  box: { ...ELEMENT, children: [] },
  tab: { ...ELEMENT, children: [], titles: [], selected_index: 0 },
  accordion: { ...ELEMENT, children: [], titles: [], selected_index: null },
};
let el;

beforeEach(() => {
  const window = new Window();
  Object.assign(globalThis, { window, document: window.document });
  globalThis.requestAnimationFrame = (act) => setTimeout(act, 0);
  el = document.body.appendChild(document.createElement("main"));
});

const marks = (...keys) => keys.map((key) => ({ $element: key }));

/** The channel of a kernel whose page has these elements, {key: [component, values]}; the first one is the root. */
class Channel {
  constructor(elements) {
    this.elements = elements;
    this.number = 0;
    this.acts = [];
    this.sent = [];
  }

  get(name) {
    assert.equal(name, "tree");
    return this.tree();
  }

  tree() {
    const known = Object.entries(this.elements).map(([key, [component, values]]) => [key, { component, values }]);
    return { number: this.number, root: known[0][0], defaults: DEFAULTS, elements: Object.fromEntries(known) };
  }

  on(event, act) {
    assert.equal(event, "msg:custom");
    this.acts.push(act);
  }

  send(content) {
    this.sent.push(content);
  }

  /** A message of the kernel, with the next number unless it has one. */
  say(message, buffers = []) {
    this.number = message.number ?? this.number + 1;
    for (const act of this.acts) act({ given: 0, ...message, number: this.number }, buffers);
  }

  change(key, values, more = {}) {
    this.say({ changes: [[key, values]], new: {}, ...more });
  }

  /** What the browser has set and sent since the last time. */
  taken() {
    return this.sent.splice(0).map(({ from: _, ...content }) => content);
  }
}

function pageOf(elements) {
  const channel = new Channel(elements);
  const page = new Page(channel);
  channel.sent = [];
  page.askedAt = -Infinity; // long ago
  return { channel, page };
}

/** Draws a page, and returns its channel. */
function drawn(elements) {
  const channel = new Channel(elements);
  show({ channel, model: {}, el });
  channel.sent = [];
  return channel;
}

const settled = (ms = 5) => new Promise((done) => setTimeout(done, ms));

function fire(node, type, values = {}) {
  Object.assign(node, values);
  node.dispatchEvent(new window.Event(type, { bubbles: true }));
}

// Messages

test("a page asks at once for what came before its script was loaded", () => {
  const channel = new Channel({ a: ["html", { value: "1" }] });
  channel.number = 3;
  const page = new Page(channel);
  assert.deepEqual(channel.sent, [{ seen: 3 }]);
  assert.deepEqual(page.element("a").values, { ...DEFAULTS.html, value: "1" });
});

test("a change is told to those that listen, to one of several events each", () => {
  const { channel, page } = pageOf({ a: ["text", { value: "1" }] });
  const seen = [];
  const act = () => seen.push([page.element("a").get("value"), page.element("a").get("placeholder")]);
  page.element("a").on("change:value change:placeholder", act);
  channel.change("a", { value: "2" });
  channel.change("a", { placeholder: "3" });
  channel.change("a", { tooltip: "4" });
  assert.deepEqual(seen, [["2", ""], ["2", "3"]]);
  page.element("a").off("change:value change:placeholder", act);
  channel.change("a", { value: "5", placeholder: "6" });
  assert.equal(seen.length, 2);
});

test("a message after a missed one is not taken but asked about, and the answer has everything", () => {
  const { channel, page } = pageOf({ a: ["text", { value: "1" }], b: ["text", {}] });
  const a = page.element("a");
  const seen = [];
  a.on("change:value", () => seen.push(a.get("value")));
  channel.change("a", { value: "3" }, { number: 2 });
  channel.change("a", { value: "3" }, { number: 3 });
  assert.equal(a.get("value"), "1");
  assert.deepEqual(channel.sent, [{ seen: 0 }]);
  channel.elements = { a: ["text", { value: "3" }], c: ["html", { value: "new" }] };
  channel.say({ tree: channel.tree() });
  assert.equal(page.element("a"), a);
  assert.deepEqual(seen, ["3"]);
  assert.equal(page.element("c").get("value"), "new");
  assert.equal(page.element("b"), undefined);
  channel.change("a", { value: "old" }, { number: 2 });
  assert.equal(a.get("value"), "3");
  channel.change("a", { value: "4" }, { number: 5 }); // the next one
  assert.equal(a.get("value"), "4");
  assert.equal(channel.sent.length, 1);
  channel.change("a", { value: "6" }, { number: 7 });
  assert.deepEqual(channel.sent[1], { seen: 5 });
});

test("an answer does not undo what was set after the question, but what was set before it", () => {
  const { channel, page } = pageOf({ a: ["text", { value: "old" }], b: ["text", { value: "old" }] });
  const [a, b] = ["a", "b"].map((key) => page.element(key));
  b.put("value", "before");
  channel.change("a", { tooltip: "missed one before" }, { number: 2 });
  a.put("value", "typed");
  a.set("placeholder", "not sent yet");
  const tree = channel.tree();
  channel.say({ tree });
  assert.deepEqual([a.get("value"), a.get("placeholder"), b.get("value")], ["typed", "not sent yet", "old"]);
  channel.change("a", { value: "kernel" });
  assert.equal(a.get("value"), "kernel");
  channel.elements.a[1] = { value: "newer" };
  channel.number += 1;
  channel.say({ tree: channel.tree() });
  assert.equal(a.get("value"), "newer");
});

test("after a lost connection what the kernel has holds, and what is not sent yet", () => {
  const { channel, page } = pageOf({ a: ["text", { value: "old" }] });
  const a = page.element("a");
  a.put("value", "lost on the way");
  a.set("placeholder", "not sent yet");
  channel.number = 1;
  channel.say({ tree: channel.tree(), number: 1 }); // as of a message that was missed
  assert.deepEqual([a.get("value"), a.get("placeholder")], ["old", "not sent yet"]);
  channel.change("a", { value: "next" });
  assert.equal(a.get("value"), "next");
});

test("an answer to another browser changes nothing where no message was missed", () => {
  const { channel, page } = pageOf({ a: ["text", { value: "old" }] });
  page.element("a").put("value", "typed");
  channel.say({ tree: channel.tree() });
  assert.equal(page.element("a").get("value"), "typed");
  channel.change("a", { value: "next" });
  assert.equal(page.element("a").get("value"), "next");
  assert.equal(channel.sent.length, 1);
});

test("a message that the elements contain already changes nothing", () => {
  const channel = new Channel({ a: ["text", { value: "2" }] });
  channel.number = 2;
  const page = new Page(channel);
  channel.change("a", { value: "1" }, { number: 1 });
  channel.change("a", { value: "1" }, { number: 2 });
  assert.equal(page.element("a").get("value"), "2");
  assert.deepEqual(channel.sent, [{ seen: 2 }]);
});

test("what this browser has set itself is not set again by its echo, what others set is", () => {
  const { channel, page } = pageOf({ a: ["text", {}] });
  const a = page.element("a");
  a.put("value", "1");
  a.put("value", "12");
  const [{ from }] = channel.sent;
  channel.change("a", { value: "1" }, { from });
  assert.equal(a.get("value"), "12");
  channel.change("a", { value: "other" }, { from: `${from}x` });
  assert.equal(a.get("value"), "other");
  channel.change("a", { value: "kernel" });
  assert.equal(a.get("value"), "kernel");
});

test("values are sent once, together, and only if they are new", () => {
  const { channel, page } = pageOf({ a: ["multiple", { index: [1] }] });
  const a = page.element("a");
  a.set("index", [1]);
  a.save_changes();
  assert.deepEqual(channel.taken(), []);
  a.set("index", [1, 2]);
  a.set("rows", 3);
  assert.deepEqual(a.get("index"), [1, 2]);
  a.save_changes();
  a.save_changes();
  assert.deepEqual(channel.taken(), [{ to: "a", set: { index: [1, 2], rows: 3 } }]);
});

test("bytes are in the place of their marks, and those of a message follow them", () => {
  const { channel, page } = pageOf({ a: ["text", {}] });
  const a = page.element("a");
  const [one, two, own] = [1, 2, 3].map((number) => new DataView(Uint8Array.of(number).buffer));
  channel.say({ changes: [["a", { value: { x: [{ $buffer: 1 }, { $buffer: 0 }] } }]], new: {}, given: 2 }, [one, two]);
  assert.deepEqual(a.get("value").x, [two, one]);
  assert.equal(a.get("value").x[0], two);
  const seen = [];
  a.on("msg:custom", (content, buffers) => seen.push([content, buffers]));
  channel.say({ to: "a", content: { kind: "answer", picture: { $buffer: 0 } }, given: 1 }, [one, own]);
  assert.equal(seen[0][0].picture, one);
  assert.deepEqual(seen[0][1], [own]);
});

test("elements come with their first use, and go with their last", () => {
  const { channel, page } = pageOf({ a: ["box", {}] });
  const added = { b: { component: "text", values: { value: "b" } } };
  channel.change("a", { children: marks("b") }, { new: added, defaults: { text: DEFAULTS.text } });
  assert.deepEqual(page.element("b").values, { ...DEFAULTS.text, value: "b" });
  channel.change("a", { children: [] }, { gone: ["b"] });
  assert.equal(page.element("b"), undefined);
});

// Controls

test("what is being typed stays while another value changes, and goes when this one does", async () => {
  const channel = drawn({ a: ["text", { value: "old", continuous_update: false }] });
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
  const channel = drawn({ a: ["box", { children: marks("b", "c") }], b: ["text", {}], c: ["textarea", { rows: 3 }] });
  fire(el.querySelector("input"), "input", { value: "x" });
  fire(el.querySelector("textarea"), "input", { value: "y" });
  assert.deepEqual(channel.taken(), [{ to: "b", set: { value: "x" } }, { to: "c", set: { value: "y" } }]);
  assert.equal(el.querySelector("textarea").getAttribute("rows"), "3");
});

test("a number is sent within its limits, and another text is replaced by the number before", async () => {
  const channel = drawn({ a: ["number", { value: 5, min: 1, max: 10 }] });
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
  const channel = drawn({ a: ["number", { value: 5 }] });
  const input = el.querySelector("input");
  for (const typed of ["1e9", "-1E-3", ".5", "", "1 2", "0x10", "Infinity"]) fire(input, "change", { value: typed });
  assert.deepEqual(channel.taken().map(({ set }) => set.value), [1e9, -1e-3, 0.5]);
});

test("a list shows the option of its index, also after other options came, and sends the chosen one's", async () => {
  const channel = drawn({ a: ["dropdown", { labels: ["x", "y", "z"], index: 1 }] });
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
  const channel = drawn({
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
  const channel = drawn({ a: ["text", { description: "Name", style: { description_width: "44px" } }] });
  await settled(60); // effects come after a frame
  const label = el.querySelector("label");
  const input = el.querySelector("input");
  assert.ok(document.getElementById(label.getAttribute("for")) === input);
  assert.equal(label.style.width, "44px");
  channel.say({ to: "a", content: { focus: true } });
  assert.ok(document.activeElement === input);
});

test("layout and classes are those of the element, and follow it", async () => {
  const channel = drawn({ a: ["box", { layout: { flex_flow: "row wrap", width: "10px" }, classes: ["one"] }] });
  const box = el.firstElementChild;
  assert.equal(box.style.flexFlow, "row wrap");
  channel.change("a", { layout: { display: "none" }, classes: ["two"] });
  await settled();
  assert.deepEqual([box.style.display, box.style.width, box.style.flexFlow], ["none", "", ""]);
  assert.ok(box.classList.contains("two") && !box.classList.contains("one"));
});

test("children that stay keep their nodes, wherever they are moved", async () => {
  const channel = drawn({ a: ["box", { children: marks("b", "c") }], b: ["html", { value: "b" }], c: ["html", { value: "c" }] });
  const [b, c] = el.querySelectorAll(".ptynb-html");
  channel.change("a", { children: marks("c", "b") });
  await settled();
  assert.ok([...el.querySelectorAll(".ptynb-html")].every((node, index) => node === [c, b][index]));
});

test("a box that changes does not draw its children again", async () => {
  const channel = drawn({ a: ["box", { children: marks("b") }], b: ["html", { value: "b" }] });
  const child = pageOfChannel(channel).element("b");
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
  a: ["tab", { children: marks("b", "c", "d"), titles: ["B", "C", "D"] }],
  b: ["html", { value: "b" }],
  c: ["html", { value: "c" }],
  d: ["html", { value: "d" }],
};

test("a tab draws its page when it is opened first, and keeps it then", async () => {
  const channel = drawn(TABS);
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

test("arrows, Home and End move along the tabs, and stop at the ends", () => {
  drawn(TABS);
  const tabs = [...el.querySelectorAll("[role=tab]")];
  tabs[0].focus();
  const press = (key) => {
    const event = new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(event);
    return [tabs.indexOf(document.activeElement), event.defaultPrevented];
  };
  const steps = { ArrowRight: 1, End: 2, ArrowLeft: 1, Home: 0 };
  for (const [key, index] of Object.entries(steps)) assert.deepEqual(press(key), [index, true], key);
  assert.deepEqual(press("ArrowLeft"), [0, true]);
  assert.deepEqual(press("x"), [0, false]);
});
