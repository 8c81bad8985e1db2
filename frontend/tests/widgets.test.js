import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { render as codeView } from "../src/widgets/code_view.js";
import { render as fileList } from "../src/widgets/file_list.js";
import { openPage, press, TestModel } from "./page.js";

let el;
beforeEach(() => (el = openPage()));

const FILES = {
  items: [["f", "folder", "data", "", ""], ["s", "scan", "scan.h5", "2 MB", "2026-01-02 10:00"], ["t", "other", "text.txt", "1 kB", "2026-01-03 11:00"]],
  current: "s",
  label: "Files",
};

test("nothing listens to a model after its view has gone", () => {
  for (const [render, values] of [
    [codeView, { lines: [] }],
    [fileList, FILES],
  ]) {
    const model = new TestModel({ ...values });
    const end = render({ model, el });
    assert.ok(model.acts.length > 0);
    end();
    assert.deepEqual(model.acts, [], render.toString().slice(0, 80));
  }
});

test("keys move along files, letters find them, and Backspace goes up", () => {
  const model = new TestModel({ ...FILES });
  fileList({ model, el });
  const buttons = [...el.querySelectorAll("button")];
  assert.deepEqual(buttons.map((button) => button.tabIndex), [-1, 0, -1]);
  assert.equal(buttons[1].getAttribute("aria-current"), "true");
  buttons[1].focus();
  for (const [key, name] of [["ArrowDown", "text.txt"], ["ArrowDown", "text.txt"], ["Home", "data/"], ["s", "scan.h5"], ["End", "text.txt"]]) {
    press(key);
    assert.ok(document.activeElement.textContent.startsWith(name), `${key}: ${document.activeElement.textContent}`);
  }
  press("Backspace");
  assert.deepEqual(model.sent, [{ up: true }]);
  assert.equal(press("s", { ctrlKey: true }), false);
  buttons[0].click();
  assert.deepEqual(model.sent[1], { open: "f" });
});

test("names of files are text, never HTML", () => {
  const model = new TestModel({ ...FILES, items: [["x", "scan", "<img src=x>", "1 kB", "2026-01-02 10:00"]] });
  fileList({ model, el });
  assert.equal(el.querySelector("img"), null);
  assert.ok(el.textContent.includes("<img src=x>"));
});
