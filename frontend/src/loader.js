// Loads the bundle of all pages, once in a browser, and shows a page by it. Models may be made after this one.

/** @import { Manager, Shower } from "./page/types" */

const global = /** @type {Record<symbol, Map<string, Promise<typeof import("./index.js")>>>} */ (
  /** @type {unknown} */ (globalThis)
);
const modules = (global[Symbol.for("ptynb")] ??= new Map());
const WAIT_MS = 50;

/** @type {(manager: Manager, name: string) => Promise<any>} */
async function found(manager, name) {
  for (;;) {
    try {
      return await manager.get_model(name);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
  }
}

/** @type {(text: string) => Promise<typeof import("./index.js")>} */
function imported(text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  return import(address).finally(() => URL.revokeObjectURL(address));
}

export default {
  /** @type {(given: { model: Shower, el: HTMLElement }) => Promise<() => void>} */
  async render({ model, el }) {
    const manager = model.widget_manager;
    const [script, channel] = await Promise.all(["script", "channel"].map((name) => found(manager, model.get(name))));
    const digest = script.get("digest");
    const known = modules.get(digest) ?? imported(script.get("text"));
    modules.set(digest, known);
    const { show } = await known;
    return show({ channel, model, el });
  },
};
