import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { Channel, fire, settled } from "./channel.js";
import { openPage } from "./page.js";

const { connect } = await import("../src/page/connect.js"); // after a document is there
const { components } = await import("../src/components.js");

/** A WebSocket whose other end is the test. */
class FakeSocket extends EventTarget {
  static OPEN = 1;
  static made = [];

  constructor(address) {
    super();
    Object.assign(this, { address, readyState: 0, sent: [] });
    FakeSocket.made.push(this);
  }

  send(frame) {
    this.sent.push(frame);
  }

  open() {
    this.readyState = FakeSocket.OPEN;
    this.dispatchEvent(new Event("open"));
  }

  close() {
    this.readyState = 3;
    this.dispatchEvent(new Event("close"));
  }

  /** The frames of a message of the kernel. */
  say(message, buffers = []) {
    for (const data of [JSON.stringify({ message, buffers: buffers.length }), ...buffers]) {
      this.dispatchEvent(Object.assign(new Event("message"), { data }));
    }
  }

  /** The messages of the page since the last time, and their buffers. */
  taken() {
    return this.sent.splice(0).map((frame) => (typeof frame === "string" ? JSON.parse(frame) : frame));
  }
}

const AGAIN_MS = 500;
let kernel, lost, main, reloads;

beforeEach(() => {
  main = openPage().appendChild(document.createElement("main"));
  lost = document.body.appendChild(document.createElement("p"));
  reloads = 0;
  FakeSocket.made = [];
  const location = { href: "http://127.0.0.1:8888/?token=abc", reload: () => (reloads += 1) };
  Object.assign(globalThis, { WebSocket: FakeSocket, location });
  kernel = new Channel({ a: ["text", { value: "1" }] });
});

/** What the server sends to a new connection. */
const first = (session = "s", tree = kernel.tree()) => ({ number: tree.number, given: 0, session, tree });
const change = (number, values) => ({ number, given: 0, changes: [["a", values]], new: {} });

/** A page that is connected, and its socket. */
function connected() {
  connect(main, lost);
  const [socket] = FakeSocket.made;
  socket.open();
  socket.say(first());
  socket.sent = [];
  return socket;
}

/** The next socket of the page, whose connection was lost. */
function again(t, socket) {
  const known = FakeSocket.made.length;
  const waiting = t.mock.method(globalThis, "setTimeout", () => 0);
  socket.close();
  const [open, after] = waiting.mock.calls[0].arguments;
  waiting.mock.restore();
  assert.deepEqual([lost.hidden, FakeSocket.made.length, after], [false, known, AGAIN_MS]);
  open();
  assert.equal(FakeSocket.made.length, known + 1);
  return FakeSocket.made[known];
}

test("a page is shown with the first message, and sends what a user does", async () => {
  const socket = connected();
  assert.deepEqual([socket.address, socket.binaryType, lost.hidden], ["ws://127.0.0.1:8888/messages", "arraybuffer", true]);
  const input = main.querySelector("input");
  assert.equal(input.value, "1");
  socket.say(change(1, { value: "2" }));
  await settled();
  assert.equal(input.value, "2");
  fire(input, "input", { value: "3" });
  const [{ message, buffers }] = socket.taken();
  assert.deepEqual([message.to, message.set, buffers], ["a", { value: "3" }, 0]);
});

test("an encrypted page has an encrypted connection, below the same prefix", () => {
  location.href = "https://hub.example/user/me/ptynb/";
  connect(main, lost);
  assert.equal(FakeSocket.made[0].address, "wss://hub.example/user/me/ptynb/messages");
});

test("a message is handled after the last of its buffers, which are in the places of their marks, and sent like that", () => {
  let element;
  components.probe = ({ model }) => void (element = model);
  kernel.elements.a = ["probe", { layout: {}, classes: [], picture: { $buffer: 1 } }];
  connect(main, lost);
  const [socket] = FakeSocket.made;
  socket.open();
  const [one, two] = [1, 2].map((number) => Uint8Array.of(number).buffer);
  socket.dispatchEvent(Object.assign(new Event("message"), { data: JSON.stringify({ message: first(), buffers: 2 }) }));
  socket.dispatchEvent(Object.assign(new Event("message"), { data: one }));
  assert.equal(element, undefined);
  socket.dispatchEvent(Object.assign(new Event("message"), { data: two }));
  assert.equal(element.get("picture").getUint8(0), 2);
  socket.say({ ...change(1, { picture: { $buffer: 0 } }), given: 1 }, [one]);
  assert.equal(element.get("picture").getUint8(0), 1);
  socket.say(change(2, { picture: null }));
  assert.equal(element.get("picture"), null);
  socket.taken();
  element.send({ kind: "painted" }, undefined, [one, two]);
  assert.deepEqual(socket.taken(), [{ message: { to: "a", content: { kind: "painted" } }, buffers: 2 }, one, two]);
});

test("after a lost connection the page is as the kernel has it, without what could not be sent", async (t) => {
  const socket = connected();
  const input = main.querySelector("input");
  const next = again(t, socket);
  fire(input, "input", { value: "not sent" });
  await settled();
  assert.deepEqual([socket.taken(), next.taken()], [[], []]);
  next.open();
  assert.equal(lost.hidden, true);
  next.say(first());
  await settled();
  assert.deepEqual([input.value, reloads], ["1", 0]);
  fire(input, "input", { value: "sent" });
  assert.deepEqual([socket.taken().length, next.taken().length], [0, 1]);
});

test("messages that were missed while the connection was lost are made up for", async (t) => {
  const socket = connected();
  const input = main.querySelector("input");
  const next = again(t, socket);
  next.open();
  kernel.elements.a[1] = { value: "missed" };
  kernel.number = 7;
  next.say(first());
  await settled();
  assert.equal(main.querySelector("input"), input);
  assert.equal(input.value, "missed");
  next.say(change(8, { value: "next" }));
  await settled();
  assert.equal(input.value, "next");
  next.taken();
  const now = Date.now();
  t.mock.method(Date, "now", () => now + 60_000); // the first question is answered by now
  next.say(change(10, { value: "after a gap" }));
  assert.deepEqual(next.taken().map(({ message }) => message), [{ seen: 8 }]);
  assert.equal(input.value, "next");
});

test("a page of another server is loaded again", (t) => {
  const next = again(t, connected());
  next.open();
  next.say(first("another"));
  assert.equal(reloads, 1);
});

test("a message that was cut off by the end of its connection is not continued by the next one", async (t) => {
  const socket = connected();
  const message = { ...change(1, { value: "cut off" }), given: 1 };
  socket.dispatchEvent(Object.assign(new Event("message"), { data: JSON.stringify({ message, buffers: 1 }) }));
  const next = again(t, socket);
  next.open();
  next.say(first());
  await settled();
  assert.equal(main.querySelector("input").value, "1");
});

test("a server that says nothing for five seconds is told, until it says something", (t) => {
  const socket = connected();
  const waiting = t.mock.method(globalThis, "setTimeout", () => 0);
  const beat = () => socket.dispatchEvent(Object.assign(new Event("message"), { data: "" }));
  beat();
  const [tell, after] = waiting.mock.calls[0].arguments;
  assert.deepEqual([lost.hidden, after], [true, 5000]);
  tell();
  assert.equal(lost.hidden, false);
  beat();
  assert.equal(lost.hidden, true);
});
