import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { gzipSync } from "node:zlib";

// Twice, as each widget of a notebook loads its own text of it.
import one from "../src/loader.js?one";
import two from "../src/loader.js?two";

let made, revoked;

beforeEach(() => {
  globalThis[Symbol.for("ptynb")].clear();
  Object.assign(globalThis, { loaded: [], shown: [] });
  [made, revoked] = [[], []];
  globalThis.Blob = class {
    constructor(parts) {
      this.text = parts.join("");
    }
  };
  // Node imports no blobs; the number makes each address that of another module, as with blobs.
  URL.createObjectURL = ({ text }) => {
    made.push(`data:text/javascript,${encodeURIComponent(`${text}//${made.length}`)}`);
    return made.at(-1);
  };
  URL.revokeObjectURL = (address) => revoked.push(address);
});

const modelOf = (values) => ({ get: (name) => values[name] });

/** The widget of a page whose manager knows these models. */
const pageWidget = (models) => ({
  ...modelOf({ script: "script id", channel: "channel id" }),
  widget_manager: {
    get_model: async (name) => {
      if (!models.has(name)) throw new Error(`no model ${name}`);
      return models.get(name);
    },
  },
});

/** A bundle that tells its name when it is loaded, and what it shows. */
const scriptOf = (name) =>
  modelOf({
    digest: `digest of ${name}`,
    packed: gzipSync(`loaded.push("${name}"); export const show = (given) => { shown.push(given); return "end of ${name}"; };`),
  });

test("two pages load the bundle once, and each shows its own channel", async () => {
  const script = scriptOf("bundle");
  const channels = [modelOf({}), modelOf({})];
  const models = channels.map((channel) => pageWidget(new Map([["script id", script], ["channel id", channel]])));
  const els = [{}, {}];
  const loaders = [one, two];
  const ends = await Promise.all(loaders.map((loader, index) => loader.render({ model: models[index], el: els[index] })));
  assert.deepEqual(ends, ["end of bundle", "end of bundle"]);
  assert.deepEqual(globalThis.loaded, ["bundle"]);
  for (const index of [0, 1]) {
    const given = globalThis.shown.find(({ el }) => el === els[index]);
    assert.equal(given.channel, channels[index]);
    assert.equal(given.model, models[index]);
  }
  assert.deepEqual([made.length, revoked], [1, made]);
});

test("another bundle, of a kernel with another version, is loaded beside the first one", async () => {
  for (const name of ["old", "new", "old"]) {
    const models = new Map([["script id", scriptOf(name)], ["channel id", modelOf({})]]);
    assert.equal(await one.render({ model: pageWidget(models), el: {} }), `end of ${name}`);
  }
  assert.deepEqual(globalThis.loaded, ["old", "new"]);
});

test("a page waits for models that are made after it", async () => {
  const models = new Map();
  const ended = one.render({ model: pageWidget(models), el: {} });
  await new Promise((done) => setTimeout(done, 60));
  models.set("channel id", modelOf({}));
  await new Promise((done) => setTimeout(done, 60));
  assert.deepEqual(globalThis.loaded, []);
  models.set("script id", scriptOf("late"));
  assert.equal(await ended, "end of late");
  assert.equal(globalThis.shown[0].channel, models.get("channel id"));
});
