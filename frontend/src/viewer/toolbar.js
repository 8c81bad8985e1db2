// The toolbar above the panes, and the row of options of the tool that is chosen.

import { choiceField, make, numberField, press, write } from "../elements.js";
import { FigureBox } from "./figure.js";
import { iconButton, labelledButton } from "./icons.js";
import { TOOLS } from "./measures.js";
import { alikeNames, PAIRINGS } from "./pair.js";
import { KEYS } from "./pane.js";

/** @import { Board, Ends } from "../types" */

const MOUSE =
  "The wheel zooms a picture that was clicked or has the focus, and any with Ctrl held; elsewhere it scrolls the page. " +
  "Dragging moves, or draws with the tool that is chosen (with Shift it moves), a double click shows all of it. " +
  "With a tool, Enter sets its two ends at the cross, Escape puts it away. ";
/** @type {Ends} */
const AUTOMATIC = [0.5, 99.5];

/** One button takes the Tab key, arrow keys move among all.
 * @type {(row: HTMLElement) => void} */
function rove(row) {
  /** @type {() => HTMLButtonElement[]} */
  const buttons = () => [...row.querySelectorAll("button")].filter((one) => !one.hidden && !one.closest("[hidden]"));
  /** @type {(chosen: HTMLButtonElement | null) => void} */
  const settle = (chosen) => buttons().forEach((one) => (one.tabIndex = one === chosen ? 0 : -1));
  row.addEventListener("focusin", ({ target }) => {
    const chosen = /** @type {Element} */ (target).closest("button");
    if (chosen) settle(chosen);
  });
  row.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
    const all = buttons();
    const at = all.findIndex((one) => one === event.target);
    if (!step || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    all[(at + step + all.length) % all.length].focus();
  });
  settle(buttons()[0]);
}

/** board: the viewer. Returns {row, options, follow(), keys: what each key does}.
 * @type {(board: Board) => { row: HTMLElement, options: HTMLElement, follow: () => void, keys: Record<string, () => void> }} */
export function makeToolbar(board) {
  const row = make("div", "ptynb-toolbar");
  row.setAttribute("role", "toolbar");
  row.setAttribute("aria-label", "Picture tools");
  /** @type {Record<string, () => void>} */
  const keys = {};
  /** @type {string[]} */
  const named = [];
  /** @type {typeof iconButton} */
  const tool = (name, label, key, act) => {
    const made = iconButton(name, label, key, act);
    if (!key) return made;
    keys[key.toLowerCase()] = act;
    named.push(`${key}: ${label[0].toLowerCase()}${label.slice(1)}`);
    return made;
  };
  const contrast = tool("contrast", "Colour maps and contrast", "C", () => board.toggle("contrast"));
  const spectrum = tool("spectrum", "Spectrum (Fourier transform) of the visible part", "T", () => {
    board.says("spectrum", !board.get("spectrum"));
  });
  const pair = tool("pair", "Two pictures in one: slider, flicker, difference", "P", () => board.toggle("pair"));
  const figure = tool("figure", "Figure for a paper (PDF, SVG, PNG) of what is shown", "G", () => {
    if (board.get("figures")) board.toggle("figure");
  });
  const help = tool("keys", "Keys and mouse", "H", () => board.toggle("help"));
  const full = tool("fullScreen", "Full screen", "F", () => board.fullScreen());
  /** @type {[string, HTMLButtonElement][]} */
  const measures = TOOLS.map(([name, label, key, path]) => {
    return [name, tool(path, label, key, () => board.says("tool", board.get("tool") === name ? "" : name))];
  });
  const remove = tool("remove", "Remove the measurement", "Delete", () => board.says("measure", {}));
  const groups = [
    [contrast],
    [
      tool("zoomOut", "Zoom out", "", () => board.zoom(0.8)),
      tool("zoomIn", "Zoom in", "", () => board.zoom(1.25)),
      tool("whole", "Show the whole picture", "", () => board.whole()),
      full,
    ],
    [...measures.map(([, made]) => made), remove],
    [spectrum, pair],
    [tool("save", "Save what is shown (PNG)", "S", () => board.save()), figure, help],
  ].map((buttons) => {
    const group = make("span", "ptynb-tool-group");
    group.append(...buttons);
    return group;
  });
  const { painting, paint } = brushFields(board);
  row.append(...groups, painting);
  const options = makeOptions(board, `${KEYS} ${MOUSE}${named.join("; ")}.`);
  rove(row);

  function follow() {
    const shown = board.get("tools");
    for (const group of groups) group.hidden = !shown;
    paint();
    row.hidden = !shown && painting.hidden;
    press(contrast, board.open.has("contrast"));
    press(help, board.open.has("help"));
    press(figure, board.open.has("figure"));
    figure.hidden = !board.get("figures");
    press(pair, board.open.has("pair"));
    press(spectrum, board.get("spectrum"));
    press(full, document.fullscreenElement === board.root);
    for (const [name, made] of measures) press(made, board.get("tool") === name);
    remove.hidden = !board.get("measure").kind;
    pair.hidden = board.panes.size < 2;
    full.hidden = !document.fullscreenEnabled;
    options.follow();
  }
  return { row, options: options.row, follow, keys };
}

/** Brush and eraser, while a picture is painted.
 * @type {(board: Board) => { painting: HTMLElement, paint: () => void }} */
function brushFields(board) {
  const painting = make("span", "ptynb-tool");
  const brush = numberField("Brush radius [px]", { min: 0.5, max: 10000, step: 0.5 }, (radius) => {
    if (radius >= 0.5 && radius <= 10000) board.says("brush", radius);
    else paint();
  });
  const eraser = make("label", "ptynb-tool");
  const erase = make("input", "", { type: "checkbox" });
  erase.addEventListener("change", () => board.says("erase", erase.checked));
  eraser.append(erase, make("span", "", { textContent: "Erase" }));
  painting.append(brush.field, eraser);
  const paint = () => {
    brush.input.value = board.get("brush");
    erase.checked = board.get("erase");
    painting.hidden = board.get("painted") === null;
  };
  return { painting, paint };
}

/** The row of options: of contrast, profile, spectrum, pair, figure, and a text about the keys.
 * @type {(board: Board, keys: string) => { row: HTMLElement, follow: () => void }} */
function makeOptions(board, keys) {
  const row = make("div", "ptynb-options");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "Options of the tools");
  const group = (/** @type {Element[]} */ ...parts) => {
    const made = make("span", "ptynb-tool-group");
    made.append(...parts);
    row.append(made);
    return made;
  };
  const automatic = labelledButton("automatic", "0.5–99.5%", "Automatic contrast: 0.5–99.5% of the pixels", () => {
    board.colouring.automatic(AUTOMATIC);
  });
  const range = labelledButton("range", "Whole range", "Whole range of the picture, no limits locked", () => {
    board.colouring.automatic([0, 100]);
  });
  const link = labelledButton("link", "Linked", "One colour map and contrast for all pictures of one kind", () => {
    board.colouring.link(!board.get("linked_colours"));
  });
  const contrast = group(automatic, range, link);
  const width = numberField("Width of the profile [px]", { min: 1, max: 1000, step: 1 }, (value) => {
    if (value >= 1 && value <= 1000) board.measuring.widen(Math.round(value));
    follow();
  });
  const profile = group(width.field);
  const ring = numberField("", { min: 0, step: "any" }, (value) => {
    if (value > 0) board.says("resolution", value * (board.measuring.metric ? 1e-9 : 1));
    follow();
  });
  const copy = iconButton("code", "Copy the lines of Python of the spectra", "", () => board.measuring.copySpectra(row));
  const spectrum = group(ring.field, copy);
  const first = choiceField("Picture", "First picture", [], (name) => board.pairUp(name, second.select.value));
  const second = choiceField("and", "Second picture", [], (name) => board.pairUp(first.select.value, name));
  const ways = [["", "side by side"], ...Object.entries(PAIRINGS)];
  const how = choiceField("as", "How two pictures are shown", ways, (value) => {
    board.pairUp(first.select.value, second.select.value, value);
  });
  const pair = group(first.field, second.field, how.field);
  const figure = new FigureBox(board, group);
  const help = make("span", "ptynb-keys", { textContent: keys });
  row.append(help);

  function follow() {
    const tools = board.get("tools");
    contrast.hidden = !tools || !board.open.has("contrast");
    press(link, board.get("linked_colours"));
    const [low, high] = board.get("percentiles");
    const own = Object.keys(board.get("limits")).length > 0;
    press(automatic, !own && low === AUTOMATIC[0] && high === AUTOMATIC[1]);
    press(range, !own && low <= 0 && high >= 100);
    profile.hidden = !tools || board.get("tool") !== "profile";
    width.input.value = String(board.measuring.width);
    spectrum.hidden = !tools || !board.get("spectrum");
    write(ring.text, `Ring: period [${board.measuring.metric ? "nm" : "px"}]`);
    ring.input.value = String(Number((board.measuring.resolution * (board.measuring.metric ? 1e9 : 1)).toPrecision(4)));
    pair.hidden = !tools || !board.open.has("pair");
    if (!pair.hidden) followPair();
    figure.follow();
    help.hidden = !tools || !board.open.has("help");
    row.hidden = [contrast, profile, spectrum, pair, figure.root, help].every((part) => part.hidden);
  }

  function followPair() {
    const names = [...board.panes.keys()];
    const chosen = board.get("swipe").length ? board.get("swipe") : [first.select.value, second.select.value];
    if (!chosen[0]) chosen.splice(0, 2, ...alikeNames([...board.panes.values()]));
    [first, second].forEach(({ select }, index) => {
      const titles = [...board.panes.values()].map(({ picture, name }) => picture?.title ?? name);
      select.replaceChildren(...names.map((name, number) => new Option(titles[number], name)));
      select.value = names.includes(chosen[index]) ? chosen[index] : names[index];
    });
    how.select.value = board.get("swipe").length ? board.get("pairing") : "";
  }
  return { row, follow };
}
