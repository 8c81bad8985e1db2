// Colours of all panes: their maps, contrast by percentiles or locked limits, and what pictures of one kind share.

class Colouring {
  constructor(board) {
    this.board = board;
    this.tables = {};
  }

  /** The panes that are to look as this one. */
  alike(pane) {
    if (!this.board.get("linked_colours")) return [pane];
    return [...this.board.panes.values()].filter((other) => other.picture && other.kind === pane.kind);
  }

  colour(pane) {
    const { board } = this;
    const name = board.get("colours")[pane.name] ?? pane.picture.colours;
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
    select.value = name;
    select.setAttribute("aria-label", `Colour map of ${pane.picture.title}`);
    pane.stage.setAttribute("aria-label", pane.picture.title);
  }

  /** {contrast: levels of the ends of the colours, locked, cyclic}. */
  contrast(pane, map) {
    // Part of a circle of phases must not stand for all of it.
    if (this.board.get("cyclic").includes(map)) return { contrast: [0, 255], locked: false, cyclic: true };
    const limits = this.board.get("limits")[pane.name];
    if (limits && pane.picture.limits) return { contrast: levelsAt(pane.picture.limits, limits), locked: true, cyclic: false };
    return { contrast: contrastOf(pane.counts, this.board.get("percentiles")), locked: false, cyclic: false };
  }

  recolour() {
    for (const pane of this.board.panes.values()) if (pane.picture) this.colour(pane);
    for (const pane of this.board.panes.values()) pane.dirty = true; // one may be part of another
  }

  mapOf(pane) {
    return this.board.get("colours")[pane.name] ?? pane.picture.colours;
  }

  // Choices of the user

  map(pane, name) {
    const chosen = Object.fromEntries(this.alike(pane).map((other) => [other.name, name]));
    this.board.says("colours", { ...this.board.get("colours"), ...chosen });
  }

  /** Locks the limits of a pane and of those like it; null: automatic again. */
  limit(pane, values) {
    const limits = { ...this.board.get("limits") };
    for (const { name } of this.alike(pane)) {
      if (values === null) delete limits[name];
      else limits[name] = values;
    }
    this.board.says("limits", limits);
  }

  automatic(percentiles) {
    this.board.says("limits", {});
    this.board.says("percentiles", percentiles);
  }
}
