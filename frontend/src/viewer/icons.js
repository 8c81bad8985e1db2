// Icons, drawn on 16 x 16 units with the colour of the text, and the buttons that have them.

import { drawn, make } from "../elements.js";

const GLASS = "M11.2 7a4.2 4.2 0 1 1-8.4 0a4.2 4.2 0 1 1 8.4 0M10.2 10.2L14 14";
const ICONS = {
  contrast: "M2 13.5h12M3.5 13V9.5M6.5 13V5M9.5 13V2.5M12.5 13V8",
  zoomOut: `${GLASS}M5 7h4`,
  zoomIn: `${GLASS}M5 7h4M7 5v4`,
  whole: "M2 5V2h3M11 2h3v3M14 11v3h-3M5 14H2v-3M5.5 5.5h5v5h-5z",
  fullScreen: "M9.5 6.5L14 2M10 2h4v4M6.5 9.5L2 14M2 10v4h4",
  remove: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  spectrum: "M8 7.2v1.6M7.2 8h1.6M11.5 8a3.5 3.5 0 1 1-7 0a3.5 3.5 0 1 1 7 0M14.7 8a6.7 6.7 0 1 1-13.4 0a6.7 6.7 0 1 1 13.4 0",
  pair: "M1.5 3h13v10h-13zM8 1v14M10 6l2 2-2 2M6 6L4 8l2 2",
  save: "M8 2v8M4.8 7L8 10.2 11.2 7M2 13.5h12",
  figure: "M2.5 2v11.5H14M5 11l2.5-4.5 2.5 2.5 3.5-5.5",
  keys: "M1.5 4h13v8.5h-13zM4 6.7h.01M6.7 6.7h.01M9.3 6.7h.01M12 6.7h.01M4.5 9.7h7",
  automatic: "M3 13.5L8 2.5l5 11M5 9.5h6",
  range: "M2 3v10M14 3v10M4.5 8h7M6.5 6l-2 2 2 2M9.5 6l2 2-2 2",
  lock: "M3.5 7.5h9v6.5h-9zM5.2 7.5V5a2.8 2.8 0 0 1 5.6 0v2.5",
  link: "M6.3 9.7l3.4-3.4M7 4.8l1.6-1.6a2.8 2.8 0 0 1 4 4L11 8.8M9 11.2l-1.6 1.6a2.8 2.8 0 0 1-4-4L5 7.2",
  code: "M5 4L1.5 8 5 12M11 4l3.5 4-3.5 4M9.2 2.8L6.8 13.2",
};

/** @type {(name: keyof typeof ICONS | `M${string}`) => SVGElement} */
function icon(name) {
  const svg = drawn("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", class: "ptynb-icon" });
  svg.append(drawn("path", { d: ICONS[/** @type {keyof typeof ICONS} */ (name)] ?? name }));
  return svg;
}

/** A button with an icon, by its name or its path; key: what does the same, if a picture or a tool has the focus.
 * @type {(name: keyof typeof ICONS | `M${string}`, label: string, key: string, act: () => void) => HTMLButtonElement} */
export function iconButton(name, label, key, act) {
  const made = make("button", "ptynb-icon-button", { type: "button", title: key ? `${label} (${key})` : label });
  made.setAttribute("aria-label", label);
  if (key) made.setAttribute("aria-keyshortcuts", key);
  made.append(icon(name));
  made.addEventListener("click", act);
  return made;
}

/** A button with an icon and a short text.
 * @type {(name: keyof typeof ICONS, text: string, label: string, act: () => void) => HTMLButtonElement} */
export function labelledButton(name, text, label, act) {
  const made = iconButton(name, label, "", act);
  made.classList.add("ptynb-labelled");
  made.append(make("span", "", { textContent: text }));
  return made;
}
