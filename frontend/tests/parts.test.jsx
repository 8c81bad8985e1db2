import assert from "node:assert/strict";
import { test } from "node:test";

import { render } from "preact";

import { components, drawn, fire, marks, pageOf, settled, show } from "./channel.js";
import { openPage, press } from "./page.js";

const { Button, Check, Drawer, Field, Fold, Message, NumberField, Progress, Segments, Select, Tabs, TextArea, TextField } =
  await import("../src/page/parts.jsx");

/** Draws a part with these values, and again with those that change; `taken` is what it has told since the last time. */
function shown(Drawing, first) {
  const el = openPage().appendChild(document.createElement("main"));
  let values = {};
  const told = [];
  const tell = (value) => told.push(value);
  const change = (more) => {
    values = { ...values, ...more };
    render(<Drawing tell={tell} {...values} />, el);
  };
  change(first);
  return { el, change, taken: () => told.splice(0) };
}

const attributes = (node, ...names) => names.map((name) => node.getAttribute(name));

test("what is being typed stays while something else changes, and goes when its value does", () => {
  const { el, change, taken } = shown(({ tell, ...given }) => <TextField {...given} onCommit={tell} />, { value: "old" });
  const input = el.querySelector("input");
  fire(input, "input", { value: "unfinished" });
  change({ title: "changed" });
  assert.deepEqual([input.title, input.value, taken()], ["changed", "unfinished", []]);
  change({ value: "kernel" });
  assert.equal(input.value, "kernel");
  fire(input, "change", { value: "finished" });
  input.focus();
  press("Enter"); // at which JupyterLab keeps the browser from an event "change"
  assert.deepEqual(taken(), ["finished", "finished"]);
});

test("a field tells each key, or what was typed when it is finished", () => {
  for (const [Part, tag] of [[TextField, "input"], [TextArea, "textarea"]]) {
    const { el, change, taken } = shown(({ tell, ...given }) => <Part {...given} rows={3} onCommit={tell} />, { value: "", each: true });
    const field = el.querySelector(tag);
    fire(field, "input", { value: "x" });
    assert.deepEqual(taken(), ["x"]);
    change({ each: false });
    fire(field, "input", { value: "x\ny" });
    assert.deepEqual(taken(), []);
    fire(field, "change");
    assert.equal(taken().length, 1);
  }
});

test("fields say what they are for, and whether they can be changed", () => {
  for (const [Part, tag] of [[TextField, "input"], [TextArea, "textarea"]]) {
    const { el, change } = shown(Part, { value: "1", placeholder: "none", title: "help", disabled: true });
    const field = el.querySelector(tag);
    assert.deepEqual([field.value, field.placeholder, field.disabled, ...attributes(field, "title", "aria-label")], ["1", "none", true, "help", "help"]);
    assert.equal(el.querySelector("label"), null);
    change({ disabled: false, label: "Name", labelWidth: "44px", name: "place" });
    const label = el.querySelector("label");
    assert.deepEqual([field.disabled, field.name, label.textContent, label.style.width], [false, "place", "Name", "44px"]);
    assert.ok(document.getElementById(label.getAttribute("for")) === field);
  }
});

test("a number is told within its limits, and another text is replaced by the number before", () => {
  const { el, change, taken } = shown(
    ({ tell, ...given }) => <NumberField {...given} onCommit={(number) => { tell(number); change({ value: number }); }} />,
    { value: 5, min: 1, max: 10, step: 2 },
  );
  const input = el.querySelector("input");
  assert.deepEqual([input.value, ...attributes(input, "min", "max", "step")], ["5", "1", "10", "2"]);
  for (const [typed, told, text] of [["20", [10], "10"], ["-1e3", [1], "1"], ["2.5", [2.5], "2.5"], ["many", [], "2.5"]]) {
    fire(input, "change", { value: typed });
    assert.deepEqual([input.value, taken()], [text, told], typed);
  }
  change({ value: 7, min: null, max: null, step: null });
  assert.deepEqual([input.value, input.getAttribute("step")], ["7", "any"]);
  for (const typed of ["1e9", "-1E-3", ".5", "", "1 2", "0x10", "Infinity"]) fire(input, "change", { value: typed });
  assert.deepEqual(taken(), [1e9, -1e-3, 0.5]);
});

test("a menu shows the option of its key, also after other options came, and tells the chosen one's", () => {
  const { el, change, taken } = shown(({ tell, ...given }) => <Select {...given} onCommit={tell} />, { options: ["x", ["y", "Y"]], value: "y" });
  const select = el.querySelector("select");
  assert.deepEqual(Array.from(select.options, (option) => option.textContent), ["x", "Y"]);
  assert.equal(select.selectedIndex, 1);
  change({ value: null });
  assert.equal(select.selectedIndex, -1);
  change({ options: ["w", "x", "y"], value: "y" });
  assert.equal(select.selectedIndex, 2);
  fire(select, "change", { selectedIndex: 0 });
  assert.deepEqual(taken(), ["w"]);
});

test("buttons and check boxes tell what was done with them, unless they are disabled", () => {
  const { el, change, taken } = shown(
    ({ tell, disabled, on }) => (
      <>
        <Button text="Go" icon="play" kind="primary" title="Starts" disabled={disabled} onClick={() => tell("go")} />
        <Button icon="plus" title="More" pressed={on} disabled={disabled} onClick={() => tell("toggle")} />
        <Check label="<b>Tick</b>" checked={on} indent labelWidth="44px" disabled={disabled} onCommit={tell} />
      </>
    ),
    { on: true },
  );
  const [go, toggle] = el.querySelectorAll("button");
  const [tick] = el.querySelectorAll("input");
  assert.ok(go.querySelector(".ptynb-button-icon[aria-hidden=true] > svg"));
  assert.deepEqual([go.textContent.trim(), go.title, go.classList.contains("ptynb-primary")], ["Go", "Starts", true]);
  assert.deepEqual(attributes(toggle, "aria-label", "aria-pressed"), ["More", "true"]);
  assert.deepEqual([el.querySelector("label").textContent, el.querySelector("b"), tick.checked], ["<b>Tick</b>", null, true]);
  assert.equal(el.querySelector(".ptynb-label").style.width, "44px");
  [go, toggle, tick].forEach((node) => node.click());
  assert.deepEqual(taken(), ["go", "toggle", false]);
  change({ disabled: true, on: false });
  assert.equal(toggle.getAttribute("aria-pressed"), "false");
  [go, toggle].forEach((node) => node.click());
  assert.deepEqual([taken(), tick.disabled], [[], true]);
});

test("a bar has a label, and a message its first line before the others", () => {
  const { el } = shown(() => (
    <>
      <Progress label="Epochs" value={5} max={20} />
      <Message text={"It failed.\nmore\nlines"} />
      <Message text="" />
      <Field label="Own" kind="own">{({ id }) => <output id={id} />}</Field>
    </>
  ));
  const bar = el.querySelector("progress");
  assert.deepEqual([Number(bar.getAttribute("value") ?? bar.value), Number(bar.getAttribute("max") ?? bar.max)], [5, 20]);
  assert.equal(el.querySelector("label").getAttribute("for"), bar.id);
  const alerts = el.querySelectorAll("[role=alert]");
  assert.deepEqual([alerts.length, alerts[0].firstChild.textContent, el.querySelector("pre").textContent], [1, "It failed.", "more\nlines"]);
  assert.equal(el.querySelectorAll("label")[1].getAttribute("for"), el.querySelector("output").id);
});

test("a fold shows what is below its title while it is open, and tells of both", () => {
  const { el, change, taken } = shown(({ tell, open }) => <Fold title="More" open={open} onToggle={tell}>below</Fold>, { open: false });
  const fold = el.querySelector("details");
  assert.equal(fold.textContent, "More");
  fold.open = true;
  change({ open: true });
  assert.deepEqual([taken(), fold.textContent], [[true], "Morebelow"]);
});

const OfTabs = ({ tell, titles, selected }) => <Tabs titles={titles} selected={selected} onSelect={tell} page={(index) => titles[index].toLowerCase()} />;

test("a tab draws its page when it is opened first, and keeps it then", () => {
  const { el, change, taken } = shown(OfTabs, { titles: ["B", "C", "D"], selected: 0 });
  const pages = () => [...el.querySelectorAll(".ptynb-tab-page")].map((page) => `${page.textContent}${page.hidden ? "" : "!"}`);
  assert.deepEqual(pages(), ["b!", "", ""]);
  el.querySelectorAll("[role=tab]")[1].click();
  assert.deepEqual(taken(), [1]);
  change({ selected: 1 });
  assert.deepEqual(pages(), ["b", "c!", ""]);
  const selected = [...el.querySelectorAll("[role=tab]")].map((tab) => [tab.getAttribute("aria-selected"), tab.tabIndex]);
  assert.deepEqual(selected, [["false", -1], ["true", 0], ["false", -1]]);
  assert.equal(el.querySelector("[role=tabpanel]").getAttribute("aria-labelledby"), el.querySelectorAll("[role=tab]")[1].id);
});

test("arrows, Home and End move along the tabs, and stop at the ends", () => {
  const { el } = shown(OfTabs, { titles: ["B", "C", "D"], selected: 0 });
  const tabs = [...el.querySelectorAll("[role=tab]")];
  tabs[0].focus();
  for (const [key, index, done] of [["ArrowRight", 1, true], ["End", 2, true], ["ArrowLeft", 1, true], ["Home", 0, true], ["ArrowLeft", 0, true], ["x", 0, false]]) {
    assert.deepEqual([press(key), tabs.indexOf(document.activeElement)], [done, index], key);
  }
});

test("arrows choose the next segment and the previous one, around the ends", () => {
  const { el, change, taken } = shown(
    ({ tell, chosen }) => <Segments label="Which" options={["a", "b", "c"]} icons={["", "file", ""]} chosen={chosen} onChoose={tell} />,
    { chosen: "b" },
  );
  const buttons = [...el.querySelectorAll("button")];
  buttons[1].focus();
  for (const [key, chosen] of [["ArrowRight", "c"], ["ArrowDown", "a"], ["ArrowLeft", "c"]]) {
    assert.ok(press(key));
    assert.deepEqual([taken(), document.activeElement.textContent.trim()], [[chosen], chosen]);
    change({ chosen });
  }
  assert.deepEqual(buttons.map((button) => button.getAttribute("aria-checked")), ["false", "false", "true"]);
  assert.deepEqual(buttons.map((button) => button.tabIndex), [-1, -1, 0]);
});

test("a drawer draws a page when it is opened, shows one at a time or none, and keeps it", () => {
  const pages = [["Settings", "list-checks"], ["Log", ""]].map(([title, icon]) => ({ title, icon, content: () => title.toLowerCase() }));
  const { el, change, taken } = shown(({ tell, page }) => <Drawer label="Pages" pages={pages} shown={page} onShow={tell}>beside</Drawer>, { page: "" });
  const [settings, log] = el.querySelectorAll("button");
  const drawnPages = () => [...el.querySelectorAll("[role=region]")].map((page) => `${page.textContent}${page.hidden ? "" : "!"}`);
  assert.deepEqual(drawnPages(), ["", ""]);
  for (const [button, title, texts] of [[settings, "Settings", ["settings!", ""]], [log, "Log", ["settings", "log!"]], [log, "", ["settings", "log"]]]) {
    button.click();
    assert.deepEqual(taken(), [title]);
    change({ page: title });
    assert.deepEqual([drawnPages(), button.getAttribute("aria-expanded")], [texts, String(title !== "")]);
  }
});

test("children that stay keep their nodes, wherever they are moved, and are not drawn again", async () => {
  const { channel, el } = drawn({ a: ["box", { children: marks("b", "c") }], b: ["words", { value: "b" }], c: ["words", { value: "c" }] });
  const [b, c] = el.querySelectorAll("p");
  const element = pageOf(channel).element("b");
  let draws = 0;
  element.use = () => {
    draws += 1;
    return element.version.value >= 0 && element.values;
  };
  channel.change("b", { value: "own" });
  await settled();
  channel.change("a", { children: marks("c", "b") });
  await settled();
  assert.ok([...el.querySelectorAll("p")].every((node, index) => node === [c, b][index]));
  assert.deepEqual([draws, b.textContent], [1, "own"]);
});

test("what a script of its own draws gets the element, and is told of its end", async () => {
  const seen = [];
  components.script = ({ model, el: node }) => {
    node.textContent = model.get("value");
    return () => seen.push("end");
  };
  const { channel, el } = drawn({ a: ["box", { children: marks("b") }], b: ["script", { value: "drawn" }] });
  await settled();
  assert.equal(el.querySelector(".ptynb-drawn").textContent, "drawn");
  channel.change("a", { children: [] });
  await settled();
  assert.deepEqual([el.querySelector(".ptynb-drawn"), seen], [null, ["end"]]);
});

test("JupyterLab has no shortcuts in a page, nor where the focus is", () => {
  const { el } = drawn({ a: ["text", { value: "1" }] });
  const input = el.querySelector("input");
  input.focus();
  assert.deepEqual([el, input].map(({ dataset }) => dataset.lmSuppressShortcuts), ["true", "true"]);
});

test("a page is shown in several places, which follow the kernel, until it is removed from one", async () => {
  const { channel, el } = drawn({ a: ["words", { value: "1" }] });
  const other = document.body.appendChild(document.createElement("section"));
  const remove = show({ channel, model: null, el: other });
  channel.change("a", { value: "2" });
  await settled();
  assert.deepEqual([el.textContent, other.textContent], ["2", "2"]);
  remove();
  assert.deepEqual([el.textContent, other.textContent], ["2", ""]);
});
