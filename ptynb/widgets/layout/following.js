// Lets widgets be shown, and follow the kernel, on a page that loads slowly: JupyterLab and anywidget give it 2 s.

const WIDGET = "application/vnd.jupyter.widget-view+json";
const LOOKED_FOR_MS = 2500;

/**
 * JupyterLab looks 2 s for the model of an output that it shows. If these end while it makes the models of a page, which
 * blocks it, it shows "model not found" for good, although the model is there: such outputs are shown again.
 */
async function showAgain(manager) {
  const cells = manager?.context?.model?.cells;
  if (!cells || !manager._modelsSync || manager.ptynbShows) return; // once a page; another front end than JupyterLab's
  manager.ptynbShows = true;
  while (!manager.restoredStatus) await new Promise((resolve) => setTimeout(resolve, 200));
  await new Promise((resolve) => setTimeout(resolve, LOOKED_FOR_MS));
  const errors = Array.from(document.querySelectorAll(".jp-OutputArea-output.jupyter-widgets"));
  if (!errors.some((node) => node.textContent.endsWith("model not found"))) return;
  for (let cell = 0; cell < cells.length; cell += 1) {
    const { outputs } = cells.get(cell);
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const model = manager._modelsSync.get(outputs.get(index).data[WIDGET]?.model_id);
      if (model && !Object.keys(model.views ?? {}).length) outputs.set(index, outputs.get(index).toJSON());
    }
  }
}

/**
 * anywidget gives the module of a widget 2 s to load, and refuses all messages of the kernel to that widget after a longer
 * time: such models of ptynb receive them again, and what they missed.
 */
function followKernel(manager) {
  if (!manager?._modelsSync) return;
  const seen = (manager.ptynbFollows ??= new WeakSet());
  for (const model of manager._modelsSync.values()) {
    if (seen.has(model) || !`${model.get("_anywidget_id")}`.startsWith("ptynb.")) continue;
    seen.add(model);
    model._handle_comm_msg({ content: { data: {} } }).catch(() => {
      const ofBase = Object.getPrototypeOf(Object.getPrototypeOf(model))._handle_comm_msg;
      model.comm.on_msg(ofBase.bind(model));
      model.comm.send({ method: "request_state" }, {});
    });
  }
}

/** What the module of a widget exports, from its function `render`. */
function following(render) {
  return {
    initialize({ model }) {
      showAgain(model.widget_manager);
    },
    render(context) {
      const { model, el } = context;
      let classes = [];
      const dress = () => {
        el.classList.remove(...classes);
        classes = model.get("_dom_classes") ?? [];
        el.classList.add(...classes);
      };
      model.on("change:_dom_classes", dress); // those that come late: anywidget removes the view's own listener
      followKernel(model.widget_manager);
      const end = render(context);
      return () => {
        model.off("change:_dom_classes", dress);
        end?.();
      };
    },
  };
}

