// Figures for papers of what a pane shows, which the kernel makes: picture, part, contrast and colour map.

import { choiceField, make, write } from "../elements.js";
import { placed, toArray } from "./geometry.js";
import { labelledButton } from "./icons.js";
import { DIVERGING } from "./pair.js";
import { AXES, seenIn } from "./saving.js";

/** @import { Board, Pane } from "../types" */

const FIGURE_SUFFIXES = [["pdf", "PDF"], ["svg", "SVG"], ["png", "PNG"]];

export class FigureBox {
  /** board: get, panes, colouring, model, complain; group: makes a part of the row of options.
   * @param {Board} board @param {(...parts: Element[]) => HTMLElement} group */
  constructor(board, group) {
    this.board = board;
    this.picture = choiceField("Figure of", "Picture of the figure", [], () => {});
    this.suffix = choiceField("as", "Format of the figure", FIGURE_SUFFIXES, () => {});
    const make_ = labelledButton("figure", "Make figure", "Make a figure of this picture as it is shown, in the working folder", () => {
      this.make();
    });
    this.said = make("span", "ptynb-figure-said");
    this.said.setAttribute("role", "status");
    this.root = group(this.picture.field, this.suffix.field, make_, this.said);
  }

  follow() {
    this.root.hidden = !this.board.get("tools") || !this.board.get("figures") || !this.board.open.has("figure");
    write(this.said, this.board.get("said") ?? "");
    if (this.root.hidden) return;
    const { select } = this.picture;
    const panes = [...this.board.panes.values()].filter((pane) => pane.picture && !pane.figure.hidden);
    const titles = panes.map((pane) => pane.picture.title);
    if (String(Array.from(select.options, ({ text, value }) => [value, text])) !== String(panes.map(({ name }, index) => [name, titles[index]]))) {
      const before = select.value;
      select.replaceChildren(...panes.map(({ name }, index) => new Option(titles[index], name)));
      select.value = panes.some(({ name }) => name === before) ? before : panes[0]?.name ?? "";
    }
  }

  make() {
    const pane = this.board.panes.get(this.picture.select.value);
    if (!pane || pane.empty) return;
    if (pane.spectrum) {
      this.board.complain("There is no figure of a spectrum; press the button of the spectrum to show the picture again.");
      return;
    }
    write(this.said, "making the figure …");
    this.board.model.send({ kind: "figure", name: pane.name, suffix: this.suffix.select.value, ...this.shownIn(pane) });
  }

  /** What the pane shows: {region [[top, bottom], [left, right]] in array pixels, limits, colours, minus}.
   * @type {(pane: Pane) => object} */
  shownIn(pane) {
    const { view, room, difference } = pane;
    // Of two pictures in turn, the one that is seen is meant; with a slider, the chosen one, which is at the left.
    const [seen] = seenIn(pane);
    const { extent } = seen;
    const place = placed(view, room, extent);
    const [begin, end] = [toArray(place, { y: 0, x: 0 }), toArray(place, { y: room.height, x: room.width })];
    const region = AXES.map((axis) => [Math.max(0, begin[axis]), Math.min(extent[axis], end[axis])]);
    if (difference) {
      return { region, limits: [-difference.most, difference.most], colours: DIVERGING, minus: difference.minus };
    }
    const grey = seen.picture.limits !== null;
    return { region, limits: grey ? seen.ends : null, colours: grey ? this.board.colouring.mapOf(seen) : null, minus: null, name: seen.name };
  }
}
