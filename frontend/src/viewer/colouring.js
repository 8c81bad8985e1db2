// Colours of all panes: their maps, contrast by percentiles or locked limits, and what pictures of one kind share.

import { describe } from "../elements.js";
import { contrastOf, levelsAt, narrowed, tablesOf } from "./levels.js";

/** @import { Board, Contrast, Ends, Pane, Tables } from "../types" */

export class Colouring {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    /** @type {Tables} */
    this.tables = {};
    this.sent = null;
  }

  /** The panes that are to look as this one.
   * @type {(pane: Pane, linked?: boolean) => Pane[]} */
  alike(pane, linked = this.board.get("linked_colours")) {
    if (!linked) return [pane];
    return [...this.board.panes.values()].filter((other) => other.picture && other.kind === pane.kind);
  }

  /** What the user chose ("colours" or "limits") for this pane, or for one like it: a pane that came later follows.
   * @type {(trait: string, pane: Pane) => any} */
  chosen(trait, pane) {
    const choices = this.board.get(trait);
    return choices[pane.name] ?? choices[this.alike(pane).find(({ name }) => choices[name] !== undefined)?.name ?? ""];
  }

  /** @type {(pane: Pane) => void} */
  colour(pane) {
    const { board } = this;
    const name = this.mapOf(pane);
    if (this.sent !== board.get("tables")) {
      this.sent = board.get("tables");
      this.tables = tablesOf(this.sent);
    }
    // The kernel may still be sending a map that was requested just before.
    const map = this.tables[name] ? name : "gray";
    pane.colour(map, this.tables[map], this.contrast(pane, name));
    const { select } = pane.contrast;
    if (select.options.length !== Object.keys(this.tables).length) {
      select.replaceChildren(...Object.keys(this.tables).map((one) => new Option(one, one)));
    }
    if (select.value !== name) select.value = name;
    describe(select, "label", `Colour map of ${pane.picture.title}`);
    describe(pane.stage, "label", pane.picture.title);
  }

  /** {contrast: levels of the ends of the colours, locked, cyclic}.
   * @type {(pane: Pane, map: string) => Contrast} */
  contrast(pane, map) {
    // Part of a circle of phases must not stand for all of it.
    if (this.board.get("cyclic").includes(map)) return { contrast: [0, 255], locked: false, cyclic: true };
    const limits = pane.picture.limits && this.chosen("limits", pane);
    if (limits) return { contrast: levelsAt(pane.limits, limits), locked: true, cyclic: false };
    return { contrast: this.automaticOf(pane), locked: false, cyclic: false };
  }

  /** The levels of the ends of an automatic contrast, which holds for all pictures of one kind, if they are linked.
   * @type {(pane: Pane) => Ends} */
  automaticOf(pane) {
    const percentiles = this.board.get("percentiles");
    if (percentiles[0] <= 0 && percentiles[1] >= 100) return [0, 255]; // the picture's own limits: no histogram
    const own = contrastOf(pane.counts, percentiles);
    if (!pane.picture.limits) return own;
    const alike = this.alike(pane);
    if (alike.length < 2) return own;
    const ends = alike.map((other) => narrowed(other.limits, contrastOf(other.counts, percentiles)));
    return levelsAt(pane.limits, [Math.min(...ends.map(([low]) => low)), Math.max(...ends.map(([, high]) => high))]);
  }

  recolour() {
    for (const pane of this.board.panes.values()) if (pane.picture) this.colour(pane);
    for (const pane of this.board.panes.values()) pane.dirty = true; // one may be part of another
  }

  /** @type {(pane: Pane) => string} */
  mapOf(pane) {
    return this.chosen("colours", pane) ?? pane.picture.colours;
  }

  // Choices of the user

  /** @type {(pane: Pane, name: string) => void} */
  map(pane, name) {
    const chosen = Object.fromEntries(this.alike(pane).map((other) => [other.name, name]));
    this.board.says("colours", { ...this.board.get("colours"), ...chosen });
  }

  /** Locks the limits of a pane and of those like it; null: automatic again.
   * @type {(pane: Pane, values: Ends | null) => void} */
  limit(pane, values) {
    const limits = { ...this.board.get("limits") };
    for (const { name } of this.alike(pane)) {
      if (values === null) delete limits[name];
      else limits[name] = values;
    }
    this.board.says("limits", limits);
  }

  /** Links or separates pictures of one kind. Linked ones take the choices of the first that has any; separated ones keep theirs.
   * @type {(on: boolean) => void} */
  link(on) {
    const panes = [...this.board.panes.values()].filter((pane) => pane.picture);
    for (const trait of ["colours", "limits"]) {
      const choices = { ...this.board.get(trait) };
      for (const pane of panes) {
        const alike = this.alike(pane, true);
        const found = on ? choices[alike.find(({ name }) => choices[name] !== undefined)?.name ?? ""] : this.chosen(trait, pane);
        if (found !== undefined) choices[pane.name] = found;
      }
      this.board.says(trait, choices);
    }
    this.board.says("linked_colours", on);
  }

  /** @type {(percentiles: Ends) => void} */
  automatic(percentiles) {
    this.board.says("limits", {});
    this.board.says("percentiles", percentiles);
  }
}
