// The page of a report: passes pictures to the viewer and values to the curves, and saves files. Content of a result
// is inserted only as text, number or picture; nothing is fetched.

import { button, make, write } from "../elements.js";
import { within } from "../numbers.js";
import { WHOLE } from "../viewer/geometry.js";
import { levelValue } from "../viewer/levels.js";
import { decoded } from "../viewer/pixels.js";
import { offerFile } from "../viewer/saving.js";
import { Board } from "../viewer/viewer.js";
import { Curve } from "./curve.js";
import { bytesOf, numbersOf, tiffOf, valueIn, wordsOf } from "./values.js";

const given = JSON.parse(document.getElementById("report-data").textContent);

/** Replaces the kernel of a notebook as the model of a viewer: stores traits, and notifies of changes. */
class Model {
  constructor(values) {
    this.values = values;
    this.acts = new Map();
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    this.values[name] = value;
    for (const act of this.acts.get(`change:${name}`) ?? []) act();
  }

  on(event, act) {
    this.acts.set(event, [...(this.acts.get(event) ?? []), act]);
  }

  off(event, act) {
    this.acts.set(event, (this.acts.get(event) ?? []).filter((other) => other !== act));
  }

  save_changes() {}

  send() {}
}

async function greyLevels(picture) {
  const bitmap = await decoded(picture);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap.image, 0, 0);
  bitmap.close();
  return context.getImageData(0, 0, canvas.width, canvas.height);
}

/** Hue for the phase, brightness for the amplitude, from two pictures of grey levels. */
async function composed(amplitude, phase) {
  const [bright, turned] = await Promise.all([greyLevels(amplitude), greyLevels(phase)]);
  const wave = (turns, shift) => within(Math.abs(((((turns * 6 + shift) % 6) + 6) % 6) - 3) - 1, 0, 1);
  const hues = Array.from({ length: 256 }, (_, level) => {
    const turns = levelValue(level, phase.limits) / (2 * Math.PI);
    return [0, 4, 2].map((shift) => wave(turns, shift));
  });
  const largest = Math.max(amplitude.limits[1], 1e-30);
  for (let index = 0; index < bright.data.length; index += 4) {
    const brightness = (255 * Math.max(levelValue(bright.data[index], amplitude.limits), 0)) / largest;
    const hue = hues[turned.data[index]];
    for (let channel = 0; channel < 3; channel += 1) bright.data[index + channel] = brightness * hue[channel];
  }
  return bright;
}

const pictures = new Map();
const arrays = new Map();

/** A plane of the page with the values of its file. */
function readable({ file, ...plane }) {
  if (!arrays.has(file)) arrays.set(file, numbersOf(bytesOf(given.files[file].content)));
  return { ...plane, numbers: arrays.get(file) };
}

/** Returns a picture, by its name on the page, in the format of the viewer. */
async function pictureOf(name) {
  const { plane, ...picture } = given.pictures[name];
  if (plane) picture.valueAt = (y, x) => wordsOf(plane, valueIn(readable(plane), y, x));
  // Composed each time it is shown: a cache for all slices of a thick object could exceed the memory of a phone.
  if (picture.composed) return { ...picture, image: await composed(...(await Promise.all(picture.composed.map(pictureOf)))) };
  if (!pictures.has(name)) pictures.set(name, { ...picture, image: bytesOf(picture.image) });
  return pictures.get(name);
}

const tables = Object.fromEntries(Object.entries(given.tables).map(([name, text]) => [name, bytesOf(text)]));
const coordinates = (text) => (text ? bytesOf(text) : undefined);

/** A viewer with the controls that choose what it shows. */
class Shelf {
  /** spec: {label, exclusive, controls: [{label, kind, start, options: [{text, key, swipe}]}], frames: {key: …}}. */
  constructor(element, spec) {
    this.spec = spec;
    this.chosen = spec.controls.map(({ start }) => start);
    this.touched = 0;
    this.number = 0;
    this.fields = [];
    this.note = make("p", "report-note");
    this.note.setAttribute("aria-live", "polite");
    const place = make("div");
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", spec.label);
    this.model = new Model({
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

  makeControl(control, index) {
    const label = make("label", "ptynb-tool");
    const options = control.options.map(({ text }) => text);
    const field = control.kind === "range" ? make("input", "report-range", { type: "range" }) : make("select");
    const said = make("output", "report-value");
    if (control.kind === "range") Object.assign(field, { min: 0, max: options.length - 1, step: 1 });
    else field.append(...options.map((text, number) => new Option(text, number)));
    field.setAttribute("aria-label", control.label);
    field.value = control.start;
    const follow = () => {
      field.value = this.chosen[index];
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
    const marks = (values) => Object.fromEntries(shown.map(({ name }) => [name, coordinates(values)]));
    this.model.set("points", marks(frame.points));
    this.model.set("moves", marks(frame.moves));
    this.model.set("expressions", frame.expressions ?? {});
    this.model.set("frame", { number, pictures: shown, facts: {} });
    this.model.set("swipe", this.options.find(({ swipe }) => swipe)?.swipe ?? []);
  }

  async save() {
    for (const [name, pane] of this.board.panes) {
      if (pane.empty || !pane.source.width) continue;
      const blob = await new Promise((take) => pane.wholePicture().toBlob(take, "image/png"));
      offerFile(blob, `${given.file}-${this.spec.file}-${name.replace(/[^\w-]+/g, "_")}.png`);
    }
  }
}

for (const element of document.querySelectorAll("[data-viewer]")) new Shelf(element, given.viewers[element.dataset.viewer]);
const curves = Array.from(document.querySelectorAll("[data-curve]"), (element) => new Curve(element, given.curves[element.dataset.curve]));
for (const element of document.querySelectorAll("[data-file]")) {
  const { name, type, content, planes, pixel_size } = given.files[element.dataset.file];
  const made = () => (planes ? tiffOf(planes.map(readable), pixel_size) : bytesOf(content));
  element.addEventListener("click", () => offerFile(new Blob([made()], { type }), name));
}
for (const element of document.querySelectorAll("[data-copies]")) {
  const text = document.getElementById(element.dataset.copies);
  element.addEventListener("click", () => {
    getSelection().selectAllChildren(text);
    document.execCommand("copy"); // the clipboard API is not available to pages opened from a file
    write(element, "Copied");
  });
}
// In print all folded parts are open, and text has a legible size.
const PAPER = { width: 720, height: 280 };
const folded = new Set();
addEventListener("beforeprint", () => {
  for (const curve of curves) curve.draw(PAPER);
  for (const element of document.querySelectorAll("details:not([open])")) {
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
