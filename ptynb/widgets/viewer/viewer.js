// The viewer: takes frames, lays out panes, draws on animation frames, and confirms what is drawn.

const SYNC_MS = 100;
const ASK_MS = 60;

class Board {
  constructor(model, element) {
    this.model = model;
    this.root = make("div", "ptynb-viewer");
    this.tools = makeTools(this);
    this.problem = make("div", "ptynb-problem");
    this.problem.setAttribute("role", "alert");
    this.shelf = make("div", "ptynb-panes");
    this.root.append(this.tools.row, this.problem, this.shelf);
    this.slider = this.makeSlider();
    element.append(this.root);
    this.panes = new Map();
    this.tables = {};
    this.waiting = this.animation = this.timer = this.question = null;
    this.taken = -1;
    this.gone = this.decoding = false;
    this.coarse = 1;
    this.sizes = new ResizeObserver((entries) => entries.forEach((entry) => this.resized(entry)));
    this.listening = [];
    this.follow();
  }

  get(trait) {
    return this.model.get(trait);
  }

  on(events, act) {
    for (const event of events.split(" ")) {
      this.model.on(event, act);
      this.listening.push([event, act]);
    }
  }

  /** Registers listeners for the kernel, and applies its current state. */
  follow() {
    this.on("change:frame", () => this.take());
    this.on("change:tables change:colours change:percentiles", () => this.recolour());
    this.on("change:view", () => this.viewed());
    this.on("change:points change:moves change:chosen", () => this.marked());
    this.on("change:swipe change:swipe_at", () => this.swiped());
    this.on("change:columns change:height change:tools", () => this.layout());
    this.on("change:painted change:brush change:erase change:percentiles change:tools", () => this.equip());
    this.on("change:problem", () => this.complain(this.get("problem")));
    this.on("msg:custom", (message) => this.answered(message));
    this.layout();
    this.complain(this.get("problem"));
    this.take();
  }

  /** Sets a trait, and sends it to the kernel at most a few times per second. */
  says(trait, value) {
    this.model.set(trait, value);
    this.timer ??= setTimeout(() => {
      this.timer = null;
      this.model.save_changes();
    }, SYNC_MS);
  }

  complain(text) {
    write(this.problem, text);
  }

  // Frames

  async take() {
    if (this.decoding) return;
    this.decoding = true;
    while (!this.gone && this.get("frame").number !== this.taken) {
      const frame = this.get("frame");
      this.taken = frame.number;
      const bitmaps = await Promise.all(frame.pictures.map(decoded));
      this.drop();
      this.waiting = { frame, bitmaps };
      if (this.gone) this.drop();
      else this.schedule();
    }
    this.decoding = false;
  }

  /** Discards a frame that was not drawn. */
  drop() {
    this.waiting?.bitmaps.forEach((bitmap) => bitmap?.close());
    this.waiting = null;
  }

  schedule() {
    this.animation ??= requestAnimationFrame(() => {
      this.animation = null;
      if (this.waiting) this.change(this.waiting);
      const number = this.waiting?.frame.number;
      this.drop();
      for (const pane of this.panes.values()) pane.draw();
      this.measure();
      if (number !== undefined) this.confirm(number);
    });
  }

  change({ frame, bitmaps }) {
    const names = frame.pictures.map((picture) => picture.name);
    if (String(names) !== String([...this.panes.keys()])) this.build(names);
    frame.pictures.forEach((picture, index) => {
      const pane = this.panes.get(picture.name);
      pane.take(picture, bitmaps[index]);
      this.colour(pane);
    });
    this.root.dataset.frame = frame.number;
    this.swiped();
    for (const pane of this.panes.values()) if (pane.pointer || pane.cross) this.tell(pane);
  }

  /** Sends the required resolution of pictures, only if it changed on this page: other pages may differ. */
  measure() {
    const scales = [...this.panes.values()].filter((pane) => !pane.empty).map((pane) => pane.place.scale);
    if (scales.length === 0) return;
    const coarse = Math.max(1, Math.floor(1 / (Math.max(...scales) * (window.devicePixelRatio || 1))));
    if (coarse === this.coarse) return;
    this.coarse = coarse;
    this.says("coarse", coarse);
  }

  confirm(number) {
    if (!this.get("confirms") || this.get("shown") >= number) return;
    this.model.set("shown", number);
    this.model.save_changes();
  }

  // Panes

  build(names) {
    const before = this.panes;
    this.unswipe();
    this.panes = new Map(names.map((name) => [name, before.get(name) ?? this.makePane(name)]));
    for (const [name, pane] of before) {
      if (this.panes.has(name)) continue;
      this.sizes.unobserve(pane.stage);
      pane.end();
    }
    this.shelf.replaceChildren(...[...this.panes.values()].map((pane) => pane.figure));
    this.marked();
    this.equip();
  }

  makePane(name) {
    const pane = new Pane(name);
    pane.view = this.get("view");
    listen(pane, this);
    pane.select.addEventListener("change", () => {
      this.says("colours", { ...this.get("colours"), [name]: pane.select.value });
    });
    this.sizes.observe(pane.stage);
    return pane;
  }

  resized({ target, contentRect }) {
    for (const pane of this.panes.values()) {
      if (pane.stage !== target || !contentRect.width) continue;
      pane.resize(contentRect.width, contentRect.height);
      // Immediately: a canvas of a new size is empty until it is drawn.
      pane.draw();
    }
  }

  layout() {
    const columns = this.get("columns");
    this.shelf.classList.toggle("ptynb-in-columns", columns > 0);
    this.shelf.style.setProperty("--ptynb-columns", String(columns || 1));
    this.shelf.style.setProperty("--ptynb-height", `${this.get("height")}px`);
    this.equip();
  }

  equip() {
    this.tools.follow();
    for (const pane of this.panes.values()) {
      pane.brush = this.get("painted") === pane.name ? this.get("brush") : null;
      pane.stage.classList.toggle("ptynb-painted", pane.brush !== null);
      pane.select.hidden = !this.get("tools") || !pane.picture?.limits;
      this.refresh(pane);
    }
  }

  // Colours

  colour(pane) {
    const name = this.get("colours")[pane.name] ?? pane.picture.colours;
    if (this.sent !== this.get("tables")) {
      this.sent = this.get("tables");
      this.tables = tablesOf(this.sent);
    }
    // The kernel may still be sending a map that was requested just before.
    const table = this.tables[name] ?? this.tables.gray;
    pane.colour(table, this.get("cyclic").includes(name) ? [0, 100] : this.get("percentiles"));
    if (pane.select.options.length !== Object.keys(this.tables).length) {
      pane.select.replaceChildren(...Object.keys(this.tables).map((map) => new Option(map, map)));
    }
    pane.select.value = name;
    pane.select.hidden = !this.get("tools") || !pane.picture.limits;
    pane.select.setAttribute("aria-label", `Colours of ${pane.picture.title}`);
    pane.stage.setAttribute("aria-label", pane.picture.title);
  }

  recolour() {
    for (const pane of this.panes.values()) if (pane.picture) this.colour(pane);
    this.redraw();
  }

  /** Draws all panes again: one may be part of another. */
  redraw() {
    for (const pane of this.panes.values()) pane.dirty = pane.overlayDirty = true;
    this.schedule();
  }

  refresh(pane) {
    pane.overlayDirty = true;
    this.schedule();
  }

  // Zoom and pan

  look(pane, view) {
    if (this.get("linked")) {
      this.says("view", view);
    } else {
      pane.view = view;
      this.redraw();
    }
  }

  viewed() {
    for (const pane of this.panes.values()) pane.view = this.get("view");
    this.redraw();
  }

  zoom(factor) {
    const middle = ({ width, height }) => ({ y: height / 2, x: width / 2 });
    const panes = [...this.panes.values()].filter((pane) => !pane.empty);
    for (const pane of this.get("linked") ? panes.slice(0, 1) : panes) {
      this.look(pane, zoomed(pane.view, pane.room, pane.extent, middle(pane.room), factor));
    }
  }

  whole() {
    for (const pane of this.panes.values()) this.look(pane, WHOLE);
  }

  // Marks and swiping

  marked() {
    const floats = (bytes) => bytes && new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
    for (const [name, pane] of this.panes) {
      const points = floats(this.get("points")[name]);
      pane.marks = { points, moves: floats(this.get("moves")[name]), chosen: this.get("chosen")[name] };
      this.refresh(pane);
    }
  }

  makeSlider() {
    const label = make("label", "ptynb-swipe");
    const text = make("span", "ptynb-pane-note");
    const input = make("input", "", { type: "range", min: 0, max: 1, step: 0.005 });
    input.addEventListener("input", () => this.says("swipe_at", input.valueAsNumber));
    label.append(input, text);
    return { label, input, text };
  }

  swiped() {
    const [left, right] = this.get("swipe").map((name) => this.panes.get(name));
    if (!left || !right || !left.picture || !right.picture) return this.unswipe();
    const at = this.get("swipe_at");
    if (left.beside?.pane !== right) {
      this.unswipe();
      left.heads.append(right.head);
      left.feet.append(right.foot);
      left.stage.after(this.slider.label);
      right.figure.hidden = true;
    }
    left.beside = { pane: right, at };
    this.slider.input.value = at;
    write(this.slider.text, `${left.picture.title} | ${right.picture.title}`);
    left.dirty = left.overlayDirty = true;
    return this.schedule();
  }

  unswipe() {
    for (const pane of this.panes.values()) {
      if (!pane.beside) continue;
      const { pane: right } = pane.beside;
      right.heads.append(right.head);
      right.feet.append(right.foot);
      right.figure.hidden = false;
      this.slider.label.remove();
      pane.beside = null;
      pane.dirty = pane.overlayDirty = true;
      this.schedule();
    }
  }

  // Cursor

  get erase() {
    return this.get("erase");
  }

  /** Sets the mouse position in a pane: a point of the screen, or null. live: politeness of the screen reader. */
  point(pane, point, live) {
    pane.pointer = point;
    pane.readout.setAttribute("aria-live", live);
    if (pane.brush) this.refresh(pane);
    this.tell(pane);
  }

  /** Writes the value under the mouse, or else under the cross. */
  tell(pane) {
    const point = pane.pointer ?? (pane.cross && toScreen(pane.place, pane.cross));
    const under = point && pane.under(point);
    clearTimeout(this.question);
    if (!under) return write(pane.readout, "");
    const [name, y, x] = [under.pane.name, Math.floor(under.at.y), Math.floor(under.at.x)];
    const same = this.told?.pane === pane && this.told.name === name && this.told.y === y && this.told.x === x;
    if (!same || !this.get("exact")) write(pane.readout, `y ${y}, x ${x}: ${under.pane.valueText(under.at)}`);
    this.told = { pane, name, y, x };
    if (!this.get("exact")) return undefined;
    this.question = setTimeout(() => this.model.send({ kind: "value", name, y, x }), ASK_MS);
    return undefined;
  }

  answered({ kind, name, y, x, text }) {
    const { told } = this;
    if (kind !== "value" || told?.name !== name || told.y !== y || told.x !== x) return;
    if (told.pane.readout.textContent) write(told.pane.readout, `y ${y}, x ${x}: ${text}`);
  }

  click(pane, { y, x }) {
    if (this.get("clickable")) this.model.send({ kind: "click", name: pane.name, y, x });
  }

  stroke(pane, { path, radius, erase }) {
    const values = new Float32Array(path.flatMap(({ y, x }) => [y, x]));
    this.model.send({ kind: "stroke", name: pane.name, radius, erase }, undefined, [values.buffer]);
  }

  end() {
    this.gone = true;
    for (const [event, act] of this.listening) this.model.off(event, act);
    if (this.timer !== null) this.model.save_changes();
    clearTimeout(this.timer);
    clearTimeout(this.question);
    if (this.animation !== null) cancelAnimationFrame(this.animation);
    this.sizes.disconnect();
    this.drop();
    for (const pane of this.panes.values()) pane.end();
    this.panes.clear();
    this.root.remove();
  }
}

function render({ model, el }) {
  const board = new Board(model, el);
  return () => board.end();
}

export default { render };
