// Loads the bundle of all pages, once in a browser, and shows a page by it. Models may be made after this one.

const modules = (globalThis[Symbol.for("ptynb")] ??= new Map());
const WAIT_MS = 50;

async function found(manager, name) {
  for (;;) {
    try {
      return await manager.get_model(name);
    } catch {
      await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    }
  }
}

export default {
  async render({ model, el }) {
    const manager = model.widget_manager;
    const [script, channel] = await Promise.all(["script", "channel"].map((name) => found(manager, model.get(name))));
    const digest = script.get("digest");
    if (!modules.has(digest)) {
      const address = URL.createObjectURL(new Blob([script.get("text")], { type: "text/javascript" }));
      modules.set(digest, import(address).finally(() => URL.revokeObjectURL(address)));
    }
    const { show } = await modules.get(digest);
    return show({ channel, model, el });
  },
};
