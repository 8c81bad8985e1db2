// Lines of Python that can be read, selected and copied.

export function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "ptynb-code";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "ptynb-code-copy jupyter-button";
  copy.textContent = "Copy";
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  said.className = "ptynb-code-said";
  const text = document.createElement("pre");
  text.tabIndex = 0;
  text.setAttribute("role", "region");
  text.setAttribute("aria-label", "Lines of Python");
  text.dataset.lmSuppressShortcuts = "true";
  const code = document.createElement("code");
  text.append(code);
  root.append(copy, said, text);
  el.append(root);

  const update = () => {
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    code.textContent = model.get("lines").join("\n");
    if (atEnd) text.scrollTop = text.scrollHeight;
  };

  // Pages that are not served from this machine or by https have no clipboard; a selection can be copied anywhere.
  const select = () => {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = document.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  copy.addEventListener("click", async () => {
    select();
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = "copied";
    } catch {
      said.textContent = document.execCommand("copy") ? "copied" : "selected; press Ctrl+C";
    }
  });
  model.on("change:lines", update);
  update();
  return () => model.off("change:lines", update);
}
