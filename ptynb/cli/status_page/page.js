// Asks once a second what is new, and shows it. What comes from the folder is only ever text, a number or a picture.

import { Curve } from "./curve.js";

const EVERY = 1000;
const PICTURES = ["amplitude", "phase", "probe"];
const at = (id) => document.getElementById(id);
const drawn = {};
const curve = new Curve(at("curve"), specOf([], [], []));

async function show(image, name, version) {
  if (drawn[image.id] === version) return;
  drawn[image.id] = version;
  const next = new Image();
  next.src = `${name}?${version}`;
  try {
    await next.decode();
  } catch {
    return; // no picture: the one before stays
  }
  image.src = next.src;
  image.hidden = false;
}

/** What the curve draws: losses over epochs or seconds, and in which epochs settings have changed. */
function specOf(losses, seconds, marks) {
  let whole = 0;
  const times = seconds.map((each) => (whole += each ?? 0));
  const lines = [{ name: "loss", x: [losses.map((_, index) => index + 1), times], y: losses }];
  const drawn = marks.map((epoch) => ({ x: [epoch, times[epoch - 2] ?? 0], text: "" }));
  const marked = "a setting was changed";
  const axes = ["epoch", "seconds"];
  return { title: "Loss", axes, log: true, lowest: null, highest: null, lines, marks: drawn, marked, empty: "no epoch yet", file: "loss" };
}

async function draw(version) {
  if (drawn.curve === version) return;
  drawn.curve = version;
  const { losses, seconds, marks } = await (await fetch("record")).json();
  curve.update(specOf(losses, seconds, marks));
}

function row(cells) {
  const line = document.createElement("tr");
  for (const text of cells) line.appendChild(document.createElement("td")).textContent = text;
  return line;
}

function tell(status) {
  const message = status.waiting || status.problem || "";
  at("message").textContent = message;
  at("message").hidden = !message;
  if (status.waiting) return;
  document.title = `${status.name} - ptynb`;
  at("name").textContent = status.name;
  at("state").textContent = status.state;
  at("state").dataset.state = status.state;
  at("state").hidden = false;
  at("facts").replaceChildren(
    ...status.facts.map((fact) => Object.assign(document.createElement("span"), { textContent: fact })),
  );
  at("written").textContent = status.written;
  at("written").classList.toggle("still", status.still);
  for (const name of PICTURES) {
    at(name).parentElement.querySelector(".note").textContent = status.notes[name] || "";
    if (status.pictures.includes(name)) show(at(name), `${name}.jpg`, status.version);
  }
  draw(status.version);
  at("changes").hidden = !status.changes.length;
  at("changes").tBodies[0].replaceChildren(...status.changes.map(row));
  document.body.dataset.version = status.version;
}

async function look() {
  try {
    const answer = await fetch("status");
    tell(await answer.json());
  } catch {
    at("message").textContent = "'ptynb watch' has ended; this is the last that was seen.";
    at("message").hidden = false;
  }
  setTimeout(look, EVERY);
}

look();
