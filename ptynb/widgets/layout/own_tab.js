// A button that shows a view in a tab of JupyterLab of its own. A notebook's context can add a sibling to its tab,
// which is what JupyterLab's own "Create New View for Cell Output" does, but here the tab has the whole window.

const MARK =
  '<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path fill="none" stroke="currentColor" ' +
  'stroke-width="1.5" d="M9 2h5v5M14 2L7.5 8.5M12 9.5V14H2V4h4.5"/></svg>';

function render({ model, el }) {
  const manager = model.widget_manager;
  const context = manager?.context;
  if (!document.querySelector(".jp-LabShell") || typeof context?.addSibling !== "function") {
    el.style.display = "none";
    return undefined;
  }
  const button = document.createElement("button");
  button.type = "button";
  button.className = "ptynb-own-tab-button";
  button.innerHTML = MARK;
  button.title = "Open in a tab of its own";
  button.setAttribute("aria-label", button.title);
  button.dataset.lmSuppressShortcuts = "true";
  button.addEventListener("click", async () => {
    const target = await manager.get_model(model.get("target"));
    const { luminoWidget } = await manager.create_view(target);
    // In a panel (Lumino's, from which the view's box is derived): the view's own layout would undo the tab's place.
    const Panel = Object.getPrototypeOf(luminoWidget.constructor);
    const panel = new Panel();
    panel.addWidget(luminoWidget);
    panel.id = `ptynb-${Math.random().toString(36).slice(2)}`;
    panel.title.label = model.get("title");
    panel.title.closable = true;
    panel.addClass("ptynb-own-tab");
    context.addSibling(panel, { mode: "tab-after" });
  });
  el.append(button);
  return () => button.remove();
}

export default { render };
