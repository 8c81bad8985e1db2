// The row of tools above the panes: contrast, zoom, brush; labelled native controls.

const MOUSE =
  "The wheel zooms a picture that was clicked or has the focus, and any with Ctrl held; elsewhere it scrolls the page. " +
  "Dragging moves, a double click shows all of it.";

function numberField(label, range, take) {
  const field = make("label", "ptynb-tool");
  const input = make("input", "", { type: "number", ...range });
  const text = make("span", "", { textContent: label });
  field.append(text, input);
  input.addEventListener("change", () => take(input.valueAsNumber));
  return { field, input };
}

function button(text, label, act) {
  const made = make("button", "ptynb-tool-button", { type: "button", textContent: text, title: label });
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

/** board: says(trait, value), get(trait), zoom(factor), whole(). Returns {row, follow()}. */
function makeTools(board) {
  const row = make("div", "ptynb-tools");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "Picture tools");
  const contrast = { min: 0, max: 100, step: 0.1 };
  const take = () => {
    const ends = [low.input.valueAsNumber, high.input.valueAsNumber];
    if (ends[0] >= 0 && ends[0] < ends[1] && ends[1] <= 100) {
      board.complain("");
      board.says("percentiles", ends);
    } else {
      board.complain("Contrast needs two percentages: the lower one at least 0, the higher one at most 100.");
      follow();
    }
  };
  const low = numberField("Contrast from [%]", contrast, take);
  const high = numberField("to [%]", contrast, take);
  const zoom = make("span", "ptynb-tool");
  zoom.append(
    button("−", "Zoom out", () => board.zoom(0.8)),
    button("+", "Zoom in", () => board.zoom(1.25)),
    button("Whole picture", "Show the whole picture", () => board.whole()),
  );
  const painting = make("span", "ptynb-tool");
  const brush = numberField("Brush radius [px]", { min: 0.5, max: 10000, step: 0.5 }, (radius) => {
    if (radius >= 0.5 && radius <= 10000) board.says("brush", radius);
    else follow();
  });
  const eraser = make("label", "ptynb-tool");
  const erase = make("input", "", { type: "checkbox" });
  erase.addEventListener("change", () => board.says("erase", erase.checked));
  eraser.append(erase, make("span", "", { textContent: "Erase" }));
  painting.append(brush.field, eraser);
  const keys = make("details", "ptynb-tool-keys");
  keys.append(make("summary", "", { textContent: "Keys" }), make("span", "", { textContent: `${KEYS} ${MOUSE}` }));
  row.append(low.field, high.field, zoom, painting, keys);

  function follow() {
    [low.input.value, high.input.value] = board.get("percentiles");
    brush.input.value = board.get("brush");
    erase.checked = board.get("erase");
    painting.hidden = board.get("painted") === null;
    low.field.hidden = high.field.hidden = zoom.hidden = keys.hidden = !board.get("tools");
    row.hidden = !board.get("tools") && painting.hidden;
  }
  follow();
  return { row, follow };
}
