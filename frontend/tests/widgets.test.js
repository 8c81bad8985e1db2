import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { render as choice } from "../src/widgets/choice.js";
import { openPage, TestModel } from "./page.js";

let el;
beforeEach(() => (el = openPage()));

const CHOICE = { options: [["k1", "one"], ["k2", "two"]], chosen: ["k2"], several: true, rows: 5, disabled: false, description: "Scans", head: "", tooltip: null };

test("nothing listens to a model after its view has gone", () => {
  for (const [render, values] of [
    [choice, CHOICE],
  ]) {
    const model = new TestModel({ ...values });
    const end = render({ model, el });
    assert.ok(model.acts.length > 0);
    end();
    assert.deepEqual(model.acts, [], render.toString().slice(0, 80));
  }
});

test("a list keeps the elements of options that stay, and marks the chosen ones", () => {
  const model = new TestModel({ ...CHOICE });
  choice({ model, el });
  const select = el.querySelector("select");
  const [, two] = select.options;
  assert.deepEqual([...select.options].map((option) => option.selected), [false, true]);
  model.set("options", [["k2", "2"], ["k3", "three"]]);
  assert.equal(select.options[0], two);
  assert.deepEqual([...select.options].map((option) => option.textContent), ["2", "three"]);
  assert.equal(select.selectedOptions[0], two);
});
