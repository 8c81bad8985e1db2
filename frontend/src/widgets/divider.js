// The divider between pictures and controls.

import { elementIn, elementsIn, make } from "../elements.js";
import { within } from "../numbers.js";
import { arranged, cellsFor, cutsWidth, GAP } from "./arrangement.js";

const KEPT = "ptynb.controls";
const NARROWEST = 170;
const LEAST_PICTURES = 260;
const LEAST_HEIGHT = 250;
const MOST_HEIGHT = 1500;
const SCROLLED = ".jp-WindowedPanel-outer, .jp-LinkedOutputView, .ptynb-own-tab";
const BELOW = 10;
const TOOLS_ROW = 36;

/** What the browser keeps for all views: {width, folded}. */
function remembered() {
  try {
    return { width: 236, folded: false, ...JSON.parse(localStorage.getItem(KEPT) ?? "{}") };
  } catch {
    return { width: 236, folded: false };
  }
}

/** @type {(choice: { width: number, folded: boolean }) => void} */
function remember(choice) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(choice));
  } catch {
    // A page without storage forgets.
  }
}

class Dividing {
  /** @param {HTMLElement} el */
  constructor(el) {
    this.el = el;
    this.choice = remembered();
    this.line = make("div", "ptynb-divider-line", { tabIndex: 0, title: "Drag to divide pictures and controls" });
    const named = { role: "separator", "aria-orientation": "vertical", "aria-label": "Width of the controls" };
    Object.entries(named).forEach(([name, value]) => this.line.setAttribute(name, value));
    this.button = make("button", "ptynb-divider-fold", { type: "button" });
    el.append(this.button, this.line);
    this.line.addEventListener("pointerdown", (event) => this.drag(event));
    this.line.addEventListener("dblclick", () => this.choose({ width: 236 }));
    this.line.addEventListener("keydown", (event) => this.press(event));
    this.button.addEventListener("click", () => this.choose({ folded: !this.choice.folded }));
    /** @type {number | null} */
    this.later = null;
    this.added = 0;
    this.brought = false;
    this.split = this.root = this.outer = this.pictures = el; // until they are found
    /** @type {Element | null} */
    this.page = null;
    this.watched = new WeakSet();
    this.sizes = new ResizeObserver(() => this.soon());
    this.built = new MutationObserver((records) => {
      if (records.some(changesPictures)) this.soon();
    });
    this.resized = () => this.soon();
    window.addEventListener("resize", this.resized);
    // Elsewhere in the page it is known once this element has a size.
    this.sizes.observe(el);
  }

  /** Whether the boxes around are known: once this element is among them. */
  found() {
    const split = /** @type {HTMLElement | null} */ (this.el.closest(".ptynb-split"));
    const pictures = elementIn(split, ":scope > .ptynb-split-pictures");
    const root = split?.parentElement;
    if (!split || !pictures || !root) return false;
    if (split !== this.split) {
      Object.assign(this, { split, root, pictures, outer: split.closest(".ptynb-workbench") ?? root });
      this.page = split.closest(SCROLLED);
      for (const box of [this.page, root, pictures]) if (box) this.sizes.observe(box);
      for (const other of root.children) if (other !== split) this.sizes.observe(other);
      this.built.observe(pictures, { childList: true, subtree: true, attributeFilter: ["style"] });
    }
    return true;
  }

  soon() {
    this.later ??= requestAnimationFrame(() => {
      this.later = null;
      if (this.found() && this.root.clientWidth) this.follow();
    });
  }

  follow() {
    const { split, choice } = this;
    const whole = split.clientWidth;
    const most = Math.max(NARROWEST, whole - LEAST_PICTURES);
    const width = within(choice.width, NARROWEST, most);
    split.style.setProperty("--ptynb-controls", `${width}px`);
    split.classList.toggle("ptynb-folded", choice.folded);
    this.added = this.shownByTools();
    split.style.height = `${this.height() + this.added}px`;
    this.bring();
    this.line.hidden = choice.folded;
    const value = { "aria-valuemin": NARROWEST, "aria-valuemax": most, "aria-valuenow": width };
    Object.entries(value).forEach(([name, number]) => this.line.setAttribute(name, String(Math.round(number))));
    this.button.textContent = choice.folded ? "‹" : "›";
    this.button.title = choice.folded ? "Show the controls" : "Hide the controls";
    this.button.setAttribute("aria-label", this.button.title);
    this.button.setAttribute("aria-expanded", String(!choice.folded));
    this.arrange();
  }

  /** The height at which all of the view is in the window, with what stands above it in the workbench. */
  height() {
    const { root, outer, page, split } = this;
    const top = root.getBoundingClientRect().top;
    let room;
    let above;
    if (page?.classList.contains("jp-WindowedPanel-outer")) {
      room = page.clientHeight;
      above = top - outer.getBoundingClientRect().top;
    } else if (page) {
      room = page.clientHeight;
      above = top - page.getBoundingClientRect().top + page.scrollTop;
    } else {
      room = window.innerHeight;
      above = top + window.scrollY;
    }
    const others = root.getBoundingClientRect().height - split.getBoundingClientRect().height;
    return Math.round(within(room - above - others - BELOW, LEAST_HEIGHT, MOST_HEIGHT));
  }

  /** The height of what tools show above and below the main pictures: pictures that are measured keep their size. */
  shownByTools() {
    const main = elementIn(this.pictures, ".ptynb-main");
    if (!main) return 0;
    const boxes = ["options", "measure"].map((name) => elementsIn(main, `.ptynb-${name}`));
    for (const box of boxes.flat()) {
      if (!this.watched.has(box)) this.sizes.observe(box);
      this.watched.add(box);
    }
    const [options, measures] = boxes.map((each) => Math.max(0, ...each.map((box) => box.offsetHeight)));
    const columns = Number(main.style.getPropertyValue("--ptynb-fit")) || 1;
    return options + measures * Math.ceil(panesOf(main).count / columns);
  }

  /** Scrolls the notebook to a workbench whose run has just begun, unless all of it is in sight. */
  bring() {
    const { outer, page, root } = this;
    if (this.brought || outer === root || !page?.classList.contains("jp-WindowedPanel-outer")) return;
    this.brought = true;
    if (root.getBoundingClientRect().bottom <= page.getBoundingClientRect().bottom) return;
    page.scrollTop += outer.getBoundingClientRect().top - page.getBoundingClientRect().top;
  }

  arrange() {
    const { pictures } = this;
    const [main, aside] = ["main", "aside"].map((name) => elementIn(pictures, `.ptynb-${name}`));
    const room = { width: pictures.clientWidth, height: pictures.clientHeight };
    const cuts = elementIn(pictures, ".ptynb-cuts");
    const given = panesOf(cuts);
    const column = given.count ? cutsWidth(room.width) : 0;
    pictures.toggleAttribute("data-cuts", column > 0);
    pictures.style.setProperty("--ptynb-cuts", `${column}px`);
    if (column) {
      room.width -= column + GAP;
      const place = { width: column, height: room.height };
      cuts?.style.setProperty("--ptynb-fit", String(cellsFor(given.count, place, given.aspect, given.text).columns));
    }
    const mains = panesOf(main);
    room.height -= this.added;
    const chosen = arranged(room, Math.max(mains.count, 1), mains.aspect, mains.text, mains.tools);
    pictures.dataset.strip = chosen.place;
    pictures.style.setProperty("--ptynb-strip", `${chosen.strip}px`);
    main?.style.setProperty("--ptynb-fit", String(chosen.columns));
    const asides = panesOf(aside);
    if (aside && asides.count) {
      const place = { width: aside.clientWidth, height: aside.clientHeight - asides.tools };
      aside.style.setProperty("--ptynb-fit", String(cellsFor(asides.count, place, asides.aspect, asides.text).columns));
    }
  }

  /** @type {(change: { width?: number, folded?: boolean }) => void} */
  choose(change) {
    this.choice = { ...this.choice, ...change };
    remember(this.choice);
    this.soon();
  }

  /** @type {(event: PointerEvent) => void} */
  drag(event) {
    event.preventDefault();
    this.line.focus();
    this.line.setPointerCapture(event.pointerId);
    const right = this.split.getBoundingClientRect().right;
    /** @type {(event: PointerEvent) => void} */
    const move = ({ clientX }) => this.choose({ width: Math.max(NARROWEST, Math.round(right - clientX)) });
    this.line.addEventListener("pointermove", move);
    const end = () => this.line.removeEventListener("pointermove", move);
    this.line.addEventListener("pointerup", end, { once: true });
    this.line.addEventListener("pointercancel", end, { once: true });
  }

  /** @type {(event: KeyboardEvent) => void} */
  press(event) {
    const step = { ArrowLeft: 20, ArrowRight: -20 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.choose({ width: Math.max(NARROWEST, this.choice.width + step) });
  }

  end() {
    this.sizes.disconnect();
    this.built.disconnect();
    window.removeEventListener("resize", this.resized);
    if (this.later !== null) cancelAnimationFrame(this.later);
  }
}

/** Whether a change of the page adds or removes a picture, or gives one another aspect; texts change with every frame.
 * @type {(record: MutationRecord) => boolean} */
function changesPictures({ type, target, addedNodes, removedNodes }) {
  if (type === "attributes") return /** @type {Element} */ (target).classList.contains("ptynb-pane");
  return [...addedNodes, ...removedNodes].some((node) => node.nodeType === Node.ELEMENT_NODE);
}

/** Number and aspect of a viewer's pictures, the height of the text of each, and that of the viewer's tools.
 * @type {(viewer: Element | null) => { count: number, aspect: number, text: number, tools: number }} */
function panesOf(viewer) {
  const figures = elementsIn(viewer, ".ptynb-pane:not([hidden])");
  const shelf = elementIn(viewer, ".ptynb-panes");
  const aspect = Number(figures[0]?.style.getPropertyValue("--ptynb-aspect")) || 1;
  const [stage, measure] = ["pane-stage", "measure"].map((name) => elementIn(figures[0], `.ptynb-${name}`));
  return {
    count: figures.length,
    aspect,
    text: stage ? figures[0].offsetHeight - stage.offsetHeight - (measure?.offsetHeight ?? 0) : 40,
    // No more than one row: whether they need another depends on the arrangement, which must not go to and fro.
    tools: viewer && shelf ? Math.min(shelf.getBoundingClientRect().top - viewer.getBoundingClientRect().top, TOOLS_ROW) : 0,
  };
}

/** Divides the box of class `ptynb-split` around an element, between those of class `ptynb-split-pictures` and
 * `ptynb-split-controls`: the height of that box follows what the window shows, and the pictures (viewers in boxes of
 * class `ptynb-main`, `ptynb-aside` and `ptynb-cuts`) are as large as they can be. Width and fold are kept for all views.
 * @type {(el: HTMLElement) => () => void} */
export function divide(el) {
  const dividing = new Dividing(el);
  return () => dividing.end();
}
