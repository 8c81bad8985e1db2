// Measurements from the levels of a picture: profile, statistics, length; their text, plot and line of Python. A
// measurement is {kind, picture, start, stop, width}; start and stop are [y, x] in pixels of the array.

const AREAS = { rectangle: "Rectangle", ellipse: "Ellipse" };
const PLOT = { least: 200, most: 520, height: 110, left: 50, bottom: 32, top: 8, right: 12 };

const pointOf = ([y, x]) => ({ y, x });

/** {distances [px], values}: bilinear samples along a line, a pixel of the picture apart, averaged over its width. */
function profileOf({ levels, values, width, height, reduction }, from, to, wide) {
  const [dy, dx] = [to.y - from.y, to.x - from.x];
  const pixels = Math.hypot(dy, dx);
  const count = Math.max(2, Math.ceil(pixels / reduction) + 1);
  const lines = Math.max(1, Math.round(wide));
  const at = (row, column) => values[levels[within(row, 0, height - 1) * width + within(column, 0, width - 1)]];
  const sample = (y, x) => {
    const [row, column] = [y / reduction - 0.5, x / reduction - 0.5];
    const [top, left] = [Math.floor(row), Math.floor(column)];
    const [below, right] = [row - top, column - left];
    const across = (line) => (1 - right) * at(line, left) + right * at(line, left + 1);
    return (1 - below) * across(top) + below * across(top + 1);
  };
  const found = { distances: new Float64Array(count), values: new Float64Array(count) };
  for (let index = 0; index < count; index += 1) {
    const part = index / (count - 1);
    let sum = 0;
    for (let one = 0; one < lines; one += 1) {
      const aside = pixels ? (one - (lines - 1) / 2) / pixels : 0;
      sum += sample(from.y + part * dy + aside * dx, from.x + part * dx - aside * dy);
    }
    found.distances[index] = part * pixels;
    found.values[index] = sum / lines;
  }
  return found;
}

/** {mean, deviation, least, most, pixels, clipped}: of the picture's pixels with their centres in the region. */
function statisticsOf({ levels, values, width, height, reduction }, from, to, kind) {
  const [top, bottom] = [from.y, to.y].sort((one, other) => one - other);
  const [left, right] = [from.x, to.x].sort((one, other) => one - other);
  const [middleY, middleX, halfY, halfX] = [(top + bottom) / 2, (left + right) / 2, (bottom - top) / 2 || 1, (right - left) / 2 || 1];
  const counts = new Float64Array(256);
  const [first, last] = [Math.max(0, Math.ceil(top / reduction - 0.5)), Math.min(height - 1, Math.floor(bottom / reduction - 0.5))];
  const [begin, end] = [Math.max(0, Math.ceil(left / reduction - 0.5)), Math.min(width - 1, Math.floor(right / reduction - 0.5))];
  for (let row = first; row <= last; row += 1) {
    const down = (((row + 0.5) * reduction - middleY) / halfY) ** 2;
    for (let column = begin; column <= end; column += 1) {
      if (kind === "ellipse" && down + (((column + 0.5) * reduction - middleX) / halfX) ** 2 > 1) continue;
      counts[levels[row * width + column]] += 1;
    }
  }
  const pixels = counts.reduce((sum, count) => sum + count, 0);
  if (!pixels) return null;
  const mean = counts.reduce((sum, count, level) => sum + count * values[level], 0) / pixels;
  const square = counts.reduce((sum, count, level) => sum + count * (values[level] - mean) ** 2, 0) / pixels;
  const least = values[counts.findIndex((count) => count > 0)];
  const most = values[255 - [...counts].reverse().findIndex((count) => count > 0)];
  const clipped = [counts[0] > 0, counts[255] > 0];
  return { mean, deviation: Math.sqrt(square), least, most, pixels: pixels * reduction ** 2, clipped };
}

/** The words for a measurement in a picture. */
function measureText({ kind, start, stop }, grid, pixelSize) {
  const [from, to] = [pointOf(start), pointOf(stop)];
  const { pixels, length, angle } = distanceOf(from, to, pixelSize);
  const long = `${length === null ? "" : `${lengthText(length)}, `}${Number(pixels.toPrecision(4))} px`;
  if (kind === "ruler") return `Length ${long}; angle ${angle.toFixed(1).replace("-", "−")}°`;
  if (kind === "profile") return `Profile, length ${long}`;
  const found = statisticsOf(grid, from, to, kind);
  if (!found) return "No pixel has its centre in this region.";
  const number = (value) => numberText(value, grid.limits);
  const [below, above] = found.clipped.map((clipped, end) => (clipped ? ["≤ ", "≥ "][end] : ""));
  const unit = grid.unit ? ` ${grid.unit}` : "";
  return (
    `${AREAS[kind]}: mean ${number(found.mean)}${unit}, standard deviation ${number(found.deviation)}${unit}, ` +
    `minimum ${below}${number(found.least)}${unit}, maximum ${above}${number(found.most)}${unit}, ` +
    `area ${areaText(found.pixels, pixelSize)}`
  );
}

const metres = (value) => String(Number(value.toPrecision(12)));

function pixelArgument(size) {
  return size && `pixel_size=${size[0] === size[1] ? metres(size[0]) : `(${size.map(metres).join(", ")})`}`;
}

/** The line of Python of a spectrum of a part, in array pixels. */
function spectrumLine({ top, left, height, width }, { pixel_size: size }, source) {
  const part = `[${top}:${top + height}, ${left}:${left + width}]`;
  return `pt.analysis.amplitude_spectrum(${[`${source}${part}`, pixelArgument(size)].filter(Boolean).join(", ")})`;
}

/** The line of Python that measures the same from values. source: the expression of the array. */
function measureLine({ kind, start, stop, width }, picture, source) {
  // Pixels of pictures are counted from the corner of the first one, those of arrays from its centre.
  const place = (point) => `(${point.map((value) => Number((value - 0.5).toFixed(2))).join(", ")})`;
  const ends = `${place(start)}, ${place(stop)}`;
  const size = picture.pixel_size;
  const pixel = pixelArgument(size);
  if (kind === "ruler") {
    const sides = [0, 1].map((axis) => `${Number((stop[axis] - start[axis]).toFixed(2))}${size ? ` * ${metres(size[axis])}` : ""}`);
    return `np.hypot(${sides.join(", ")})`;
  }
  const call = kind === "profile" ? "line_profile" : "region_statistics";
  const more = kind === "profile" ? width > 1 && `width=${width}` : kind === "ellipse" && 'shape="ellipse"';
  return `pt.analysis.${call}(${[source, ends, more, pixel].filter(Boolean).join(", ")})`;
}

/** A plot of a profile, whose colours follow the text around it. */
function profilePlot({ distances, values }, { limits, unit }, pixelSize, ends, space) {
  const width = within(space, PLOT.least, PLOT.most);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${PLOT.height}`, width, class: "ptynb-plot", role: "img" });
  const [left, right] = [PLOT.left, width - PLOT.right];
  const [top, bottom] = [PLOT.top, PLOT.height - PLOT.bottom];
  const pixels = distances[distances.length - 1] || 1;
  const { length } = distanceOf(...ends, pixelSize);
  const [name, metres] = length ? UNITS.find(([, size]) => length >= size * 0.9999) ?? UNITS[UNITS.length - 1] : ["px", 1];
  const long = length ? length / metres : pixels;
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const level = (limits[1] - limits[0]) / 255;
  if (high - low < level) [low, high] = [low - level, high + level];
  const x = (distance) => left + ((right - left) * distance) / pixels;
  const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
  const text = (at, words, anchor) => drawn("text", { ...at, "text-anchor": anchor }, words);
  const step = [1, 2, 5, 10].map((part) => part * 10 ** Math.floor(Math.log10(long / 2))).find((one) => long / one <= 5.01);
  for (let at = 0; at <= long * 1.0001; at += step) {
    const across = left + ((right - left) * at) / long;
    svg.append(drawn("path", { d: `M${across} ${top}V${bottom + 3}`, class: "ptynb-plot-grid" }));
    svg.append(text({ x: across, y: bottom + 14 }, String(Number(at.toPrecision(3))), "middle"));
  }
  svg.append(drawn("path", { d: `M${left} ${top}V${bottom}H${right}`, class: "ptynb-plot-axis" }));
  const [least, most] = [low, high].map((value) => numberText(value, [low, high]));
  svg.append(text({ x: left - 5, y: bottom }, least, "end"), text({ x: left - 5, y: top + 9 }, most, "end"));
  svg.append(text({ x: (left + right) / 2, y: PLOT.height - 4 }, `distance [${name}]${unit ? `, value [${unit}]` : ""}`, "middle"));
  const points = Array.from(values, (value, index) => `${x(distances[index]).toFixed(1)},${y(value).toFixed(1)}`);
  svg.append(drawn("polyline", { points: points.join(" ") }));
  svg.setAttribute("aria-label", `Profile over ${Number(long.toPrecision(3))} ${name}, from ${least} to ${most} ${unit}`);
  return svg;
}

/** The measurement under a picture: text, plot, and a button for its line of Python. */
class MeasureBox {
  constructor(pane, measuring) {
    this.pane = pane;
    this.root = make("div", "ptynb-measure", { hidden: true });
    this.text = make("div", "ptynb-measure-text");
    this.plot = make("div");
    this.copy = iconButton("code", "Copy the line of Python that measures the exact values", "", () => {
      copyText(measuring.lineOf(pane), this.root);
      write(this.said, "Copied");
      setTimeout(() => write(this.said, ""), 2000);
    });
    this.said = make("span", "ptynb-measure-said");
    this.said.setAttribute("role", "status");
    const row = make("div", "ptynb-measure-row");
    row.append(this.text, this.said, this.copy);
    this.root.append(row, this.plot);
  }

  /** Measures in the current picture. */
  follow() {
    const { measure, picture } = this.pane;
    this.root.hidden = measure === null;
    if (measure === null) return;
    // One picture of several tells what was measured.
    this.text.setAttribute("aria-live", measure.picture === this.pane.name ? "polite" : "off");
    const { grid } = this.pane; // which of a complex picture takes some time
    write(this.text, measureText(measure, grid, picture.pixel_size));
    this.text.title = measure.kind === "ruler" ? "Angle from the x axis, anticlockwise" : "";
    this.plot.replaceChildren();
    if (measure.kind !== "profile") return;
    const ends = [pointOf(measure.start), pointOf(measure.stop)];
    this.plot.append(profilePlot(profileOf(grid, ...ends, measure.width ?? 1), grid, picture.pixel_size, ends, this.pane.room.width));
  }
}

/** Copies a text; without the clipboard API, which pages opened from a file do not have. */
function copyText(text, place) {
  const field = make("textarea", "ptynb-copied", { value: text });
  place.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
