import assert from "node:assert/strict";
import { test } from "node:test";

import { Page } from "../src/page/elements.js";
import { Channel, DEFAULTS, marks } from "./channel.js";

function pageOf(elements) {
  const channel = new Channel(elements);
  const page = new Page(channel);
  channel.sent = [];
  page.askedAt = -Infinity; // long ago
  return { channel, page };
}

test("a page asks at once for what came before its script was loaded", () => {
  const channel = new Channel({ a: ["words", { value: "1" }] });
  channel.number = 3;
  const page = new Page(channel);
  assert.deepEqual(channel.sent, [{ seen: 3 }]);
  assert.deepEqual(page.element("a").values, { ...DEFAULTS.words, value: "1" });
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
  channel.elements = { a: ["text", { value: "3" }], c: ["words", { value: "new" }] };
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
  const { channel, page } = pageOf({ a: ["list", { index: [1] }] });
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

test("of a dictionary the kernel sends what has changed, and the commands of a view go to it", () => {
  const { channel, page } = pageOf({ a: ["words", { value: { kept: 1, changed: 2, removed: 3 } }] });
  const a = page.element("a");
  channel.change("a", { value: { $changed: { changed: 4, added: null }, $removed: ["removed"] } });
  assert.deepEqual(a.get("value"), { kept: 1, changed: 4, added: null });
  a.call("start", { epochs: 5 });
  a.call("stop");
  assert.deepEqual(channel.taken(), [
    { to: "a", command: "start", arguments: { epochs: 5 } },
    { to: "a", command: "stop", arguments: {} },
  ]);
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
