// The page of a report: passes pictures to the viewer and values to the curves, and saves files. Content of a result
// is inserted only as text, number or picture; nothing is fetched.

import { button, elementsIn, make, write } from "../elements.js";
import { within } from "../numbers.js";
import { WHOLE } from "../viewer/geometry.js";
import { levelValue } from "../viewer/levels.js";
import { decoded, Reader } from "../viewer/pixels.js";
import { offerFile, pngOf } from "../viewer/saving.js";
import { Board } from "../viewer/viewer.js";
import { Curve } from "../widgets/curve.js";
import { bytesOf, numbersOf, tiffOf, valueIn, wordsOf } from "./values.js";

/** @import { Control, Ends, Model, Picture, Plane, ReportData, ShelfSpec } from "../types" */

/** @type {ReportData} */
const given = JSON.parse(document.getElementById("report-data")?.textContent ?? "");

/** Replaces the kernel of a notebook as the model of a viewer: stores traits, and notifies of changes. */
class ReportModel {
  /** @param {Record<string, any>} values */
  constructor(values) {
    this.values = values;
    /** @type {Map<string, ((message: any) => void)[]>} */
    this.acts = new Map();
  }

  /** @type {(name: string) => any} */
  get(name) {
    return this.values[name];
  }

  /** @type {(name: string, value: unknown) => void} */
  set(name, value) {
    this.values[name] = value;
    for (const act of this.acts.get(`change:${name}`) ?? []) act(value);
  }

  /** @type {Model["on"]} */
  on(event, act) {
    this.acts.set(event, [...(this.acts.get(event) ?? []), act]);
  }

  /** @type {Model["off"]} */
  off(event, act) {
    this.acts.set(event, (this.acts.get(event) ?? []).filter((other) => other !== act));
  }

  save_changes() {}

  send() {}
}

/** @type {(picture: Picture) => Promise<ImageData>} */
async function greyLevels(picture) {
  const bitmap = await decoded(picture);
  if (bitmap === null) throw new Error(`The picture ${picture.name} could not be decoded.`);
  const read = new Reader().read(bitmap.width, bitmap.height, (context) => context.drawImage(bitmap.image, 0, 0));
  bitmap.close();
  return read;
}

/** Hue for the phase, brightness for the amplitude, from two pictures of grey levels.
 * @type {(amplitude: Picture, phase: Picture) => Promise<ImageData>} */
async function composed(amplitude, phase) {
  const [amplitudes, phases] = [amplitude, phase].map(({ limits }) => /** @type {Ends} */ (limits));
  const [bright, turned] = await Promise.all([greyLevels(amplitude), greyLevels(phase)]);
  const wave = (/** @type {number} */ turns, /** @type {number} */ shift) => within(Math.abs(((((turns * 6 + shift) % 6) + 6) % 6) - 3) - 1, 0, 1);
  const hues = Array.from({ length: 256 }, (_, level) => {
    const turns = levelValue(level, phases) / (2 * Math.PI);
    return [0, 4, 2].map((shift) => wave(turns, shift));
  });
  const largest = Math.max(amplitudes[1], 1e-30);
  for (let index = 0; index < bright.data.length; index += 4) {
    const brightness = (255 * Math.max(levelValue(bright.data[index], amplitudes), 0)) / largest;
    const hue = hues[turned.data[index]];
    for (let channel = 0; channel < 3; channel += 1) bright.data[index + channel] = brightness * hue[channel];
  }
  return bright;
}

/** @type {Map<string, Picture>} */
const pictures = new Map();
/** @type {Map<string, Float32Array>} */
const arrays = new Map();

/** A plane of the page with the values of its file.
 * @type {(plane: Omit<Plane, "numbers"> & { file: string }) => Plane} */
function readable({ file, ...plane }) {
  const numbers = arrays.get(file) ?? numbersOf(bytesOf(given.files[file].content));
  arrays.set(file, numbers);
  return { ...plane, numbers };
}

/** Returns a picture, by its name on the page, in the format of the viewer.
 * @type {(name: string) => Promise<Picture>} */
async function pictureOf(name) {
  const { plane, ...picture } = given.pictures[name];
  if (plane) picture.valueAt = (/** @type {number} */ y, /** @type {number} */ x) => wordsOf(plane, valueIn(readable(plane), y, x));
  // Composed each time it is shown: a cache for all slices of a thick object could exceed the memory of a phone.
  if (picture.composed) {
    const [amplitude, phase] = await Promise.all(picture.composed.map(pictureOf));
    return { ...picture, image: await composed(amplitude, phase) };
  }
  const known = pictures.get(name) ?? { ...picture, image: bytesOf(picture.image) };
  pictures.set(name, known);
  return known;
}

const tables = Object.fromEntries(Object.entries(given.tables).map(([name, text]) => [name, bytesOf(text)]));
const coordinates = (/** @type {string | undefined} */ text) => (text ? bytesOf(text) : undefined);

/** A viewer with the controls that choose what it shows. */
class Shelf {
  /** @param {Element} element @param {ShelfSpec} spec */
  constructor(element, spec) {
    this.spec = spec;
    this.chosen = spec.controls.map(({ start }) => start);
    this.touched = 0;
    this.number = 0;
    /** What shows the choice of each control.
     * @type {(() => void)[]} */
    this.fields = [];
    this.note = make("p", "report-note");
    this.note.setAttribute("aria-live", "polite");
    const place = make("div");
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", spec.label);
    this.model = new ReportModel({
      frame: { number: 0, pictures: [], facts: {} }, shown: 0, tables, cyclic: given.cyclic, columns: 0,
      height: spec.height, linked: true, tools: spec.tools, view: WHOLE, colours: {}, percentiles: [0, 100], limits: {},
      linked_colours: true, swipe: [], swipe_at: 0.5, crosshair: {}, labels: {}, pairing: "swipe", tool: "", measure: {}, spectrum: false, resolution: 0,
      expressions: {}, link: "", points: {}, moves: {}, chosen: {}, painted: null, brush: 3, erase: false,
      clickable: false, exact: false, problem: "",
    });
    const row = make("div", "report-controls");
    row.append(...spec.controls.map((control, index) => this.makeControl(control, index)));
    row.append(button("Save pictures (PNG)", `Save the pictures as they are shown: ${spec.label}`, () => this.save()));
    element.append(row, this.note, place);
    this.board = new Board(this.model, place);
    this.show();
  }

  /** @type {(control: Control, index: number) => HTMLElement} */
  makeControl(control, index) {
    const label = make("label", "ptynb-tool");
    const options = control.options.map(({ text }) => text);
    const field = control.kind === "range" ? make("input", "report-range", { type: "range" }) : make("select");
    const said = make("output", "report-value");
    if (control.kind === "range") Object.assign(field, { min: 0, max: options.length - 1, step: 1 });
    else field.append(...options.map((text, number) => new Option(text, String(number))));
    field.setAttribute("aria-label", control.label);
    const follow = () => {
      field.value = String(this.chosen[index]);
      write(said, options[this.chosen[index]]);
      if (control.kind === "range") field.setAttribute("aria-valuetext", options[this.chosen[index]]);
    };
    field.addEventListener("input", () => this.choose(index, Number(field.value)));
    label.append(make("span", "", { textContent: control.label }), field);
    if (control.kind === "range") label.append(said);
    this.fields.push(follow);
    follow();
    return label;
  }

  /** @type {(index: number, value: number) => void} */
  choose(index, value) {
    this.chosen[index] = value;
    this.touched = index;
    if (this.spec.exclusive) this.chosen = this.spec.controls.map(({ start }, other) => (other === index ? value : start));
    for (const follow of this.fields) follow();
    this.show();
  }

  get options() {
    return this.spec.controls.map(({ options }, index) => options[this.chosen[index]]);
  }

  /** The frame selected by the control used last, or by all controls together. */
  get frame() {
    if (!this.spec.controls.length) return Object.values(this.spec.frames)[0];
    const keys = this.options.map(({ key }) => key).filter((key) => key !== undefined);
    return this.spec.frames[this.spec.exclusive ? keys[this.touched] : keys.join("|")];
  }

  async show() {
    this.number += 1;
    const { number, frame } = this;
    const shown = await Promise.all(frame.pictures.map(pictureOf));
    if (number !== this.number) return;
    write(this.note, frame.note ?? "");
    const marks = (/** @type {string | undefined} */ values) => Object.fromEntries(shown.map(({ name }) => [name, coordinates(values)]));
    this.model.set("points", marks(frame.points));
    this.model.set("moves", marks(frame.moves));
    this.model.set("expressions", frame.expressions ?? {});
    this.model.set("frame", { number, pictures: shown, facts: {} });
    this.model.set("swipe", this.options.find(({ swipe }) => swipe)?.swipe ?? []);
  }

  async save() {
    for (const [name, pane] of this.board.panes) {
      if (pane.empty || !pane.source.width) continue;
      offerFile(await pngOf(pane.wholePicture()), `${given.file}-${this.spec.file}-${name.replace(/[^\w-]+/g, "_")}.png`);
    }
  }
}

/** Elements with this attribute, and its value in each.
 * @type {(name: string) => { element: HTMLElement, name: string }[]} */
const marked = (name) => elementsIn(document, `[data-${name}]`).map((element) => ({ element, name: element.dataset[name] ?? "" }));

for (const { element, name } of marked("viewer")) new Shelf(element, given.viewers[name]);
const curves = marked("curve").map(({ element, name }) => new Curve(element, given.curves[name]));
for (const { element, name: file } of marked("file")) {
  const { name, type, content, planes, pixel_size } = given.files[file];
  const made = () => (planes ? tiffOf(planes.map(readable), pixel_size) : bytesOf(content));
  element.addEventListener("click", () => offerFile(new Blob([made()], { type }), name));
}
for (const { element, name } of marked("copies")) {
  const text = document.getElementById(name);
  element.addEventListener("click", () => {
    if (text) getSelection()?.selectAllChildren(text);
    document.execCommand("copy"); // the clipboard API is not available to pages opened from a file
    write(element, "Copied");
  });
}
// In print all folded parts are open, and text has a legible size.
const PAPER = { width: 720, height: 280 };
/** @type {Set<HTMLDetailsElement>} */
const folded = new Set();
addEventListener("beforeprint", () => {
  for (const curve of curves) curve.draw(PAPER);
  for (const element of document.querySelectorAll(/** @type {"details"} */ ("details:not([open])"))) {
    element.open = true;
    folded.add(element);
  }
});
addEventListener("afterprint", () => {
  for (const element of folded) element.open = false;
  folded.clear();
  for (const curve of curves) curve.draw();
});
document.documentElement.dataset.ready = "true";
