// Asks once a second what is new, and shows it. What comes from the folder is only ever text or a picture.

const EVERY = 1000;
const PICTURES = ["amplitude", "phase", "probe"];
const at = (id) => document.getElementById(id);
const drawn = {};

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
  show(at("curve"), "curve.svg", status.version);
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
