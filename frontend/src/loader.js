// Loads the bundle of all pages, once in a browser, and shows a page by it. Models may be made after this one.

/** @import { Manager, Shower } from "./page/types" */

const global = /** @type {Record<symbol, Map<string, Promise<typeof import("./index.js")>>>} */ (
  /** @type {unknown} */ (globalThis)
);
const modules = (global[Symbol.for("ptynb")] ??= new Map());
const WAIT_MS = 50;
const VIEW = "application/vnd.jupyter.widget-view+json";
/** JupyterLab looks 2 s for the model of an output. */
const LOOKED_FOR_MS = 2500;

/** @type {(manager: Manager, name: string) => Promise<any>} */
async function found(manager, name) {
  for (;;) {
    try {
      return await manager.get_model(name);
    } catch {
      await after(WAIT_MS);
    }
  }
}

/** @type {(packed: BufferSource) => Promise<typeof import("./index.js")>} */
async function imported(packed) {
  const unpacked = /** @type {ReadableStream} */ (new Response(packed).body).pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(unpacked).text();
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return import(address).finally(() => URL.revokeObjectURL(address));
}

/** @type {(ms: number) => Promise<void>} */
const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Shows outputs of JupyterLab again for which it says "model not found" for good, as their models came too late.
 * @type {(manager: Manager) => Promise<void>} */
async function showAgain(manager) {
  const cells = manager.context?.model?.cells;
  if (!cells || manager.ptynbShows) return; // another front end; once a page
  manager.ptynbShows = true;
  while (!manager.restoredStatus) await after(WAIT_MS);
  await after(LOOKED_FOR_MS);
  const errors = Array.from(document.querySelectorAll(".jp-OutputArea-output.jupyter-widgets"));
  if (!errors.some((node) => node.textContent?.endsWith("model not found"))) return;
  for (const { outputs } of Array.from(cells)) {
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const name = outputs.get(index).data[VIEW]?.model_id;
      if (!name || !manager.has_model(name)) continue;
      const model = await manager.get_model(name);
      if (Object.keys(model.views ?? {}).length === 0) outputs.set(index, outputs.get(index).toJSON());
    }
  }
}

export default {
  /** @type {(given: { model: Shower }) => void} */
  initialize({ model }) {
    void showAgain(model.widget_manager);
  },

  /** @type {(given: { model: Shower, el: HTMLElement }) => Promise<() => void>} */
  async render({ model, el }) {
    const manager = model.widget_manager;
    const [script, channel] = await Promise.all(["script", "channel"].map((name) => found(manager, model.get(name))));
    const digest = script.get("digest");
    const known = modules.get(digest) ?? imported(script.get("packed"));
    modules.set(digest, known);
    const { show } = await known;
    return show({ channel, model, el });
  },
};
