// A button with a text, and an icon before it (Font Awesome), which is not read to anybody.

/** icon: its name; "": none. The element has no style, class or listener yet. */
export function textButton(text, icon) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.lmSuppressShortcuts = "true"; // of JupyterLab
  if (icon) {
    const mark = document.createElement("i");
    mark.className = `fa fa-${icon}`;
    mark.setAttribute("aria-hidden", "true");
    button.append(mark, " ");
  }
  button.append(text);
  return button;
}
