// Shows the newest frame of pictures and confirms it once the browser has decoded it: that is the kernel's pace.

const PANES = [
  ["amplitude", "Object amplitude"],
  ["phase", "Object phase"],
  ["probe", "Probe modes"],
];

function pane(name, title) {
  const figure = document.createElement("figure");
  figure.className = `ptynb-pane ptynb-${name}`;
  const caption = document.createElement("figcaption");
  caption.textContent = title;
  const image = document.createElement("img");
  image.alt = title;
  image.dataset.name = name;
  const note = document.createElement("div");
  note.className = "ptynb-note";
  figure.append(caption, image, note);
  return { figure, image, note };
}

async function show(image, bytes) {
  const url = URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
  const before = image.src;
  image.src = url;
  try {
    await image.decode();
  } finally {
    if (before.startsWith("blob:")) URL.revokeObjectURL(before);
  }
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "ptynb-pictures";
  const panes = Object.fromEntries(PANES.map(([name, title]) => [name, pane(name, title)]));
  root.append(...Object.values(panes).map((entry) => entry.figure));
  el.append(root);

  const update = async () => {
    const frame = model.get("frame");
    if (!frame.number) return;
    const names = Object.keys(panes);
    await Promise.allSettled(names.map((name) => show(panes[name].image, frame[name])));
    for (const name of names) panes[name].note.textContent = frame.notes[name];
    root.dataset.frame = frame.number;
    if (model.get("shown") < frame.number) {
      model.set("shown", frame.number);
      model.save_changes();
    }
  };
  model.on("change:frame", update);
  update();
  return () => model.off("change:frame", update);
}

export default { render };
