// Files from the page: a picture of all panes as they are shown, with what it shows written into the file.

const MARGIN = 10;
const FOOT = 24;

function offerFile(blob, name) {
  const address = URL.createObjectURL(blob);
  make("a", "", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const CRC = Uint32Array.from({ length: 256 }, (_, value) => {
  let rest = value;
  for (let bit = 0; bit < 8; bit += 1) rest = rest & 1 ? 0xedb88320 ^ (rest >>> 1) : rest >>> 1;
  return rest;
});

/** A chunk of a PNG file with a text (iTXt, UTF-8). */
function textChunk(keyword, text) {
  const body = new TextEncoder().encode(`iTXt${keyword}\0\0\0\0\0${text}`);
  const bytes = new Uint8Array(body.length + 8);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, body.length - 4);
  bytes.set(body, 4);
  const sum = body.reduce((rest, byte) => CRC[(rest ^ byte) & 255] ^ (rest >>> 8), 0xffffffff);
  view.setUint32(body.length + 4, ~sum >>> 0);
  return bytes;
}

/** The PNG with texts after its first chunk, the header of 33 bytes. */
async function withTexts(blob, texts) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const chunks = Object.entries(texts).map(([keyword, text]) => textChunk(keyword, text));
  return new Blob([bytes.subarray(0, 33), ...chunks, bytes.subarray(33)], { type: "image/png" });
}

/** What a pane shows, in words: values at the ends of the colours, map, pixel, part. */
function descriptionOf(pane, map) {
  const { picture, room, place } = pane;
  const [begin, end] = [toArray(place, { y: 0, x: 0 }), toArray(place, { y: room.height, x: room.width })];
  const part = ["y", "x"].map((axis) => {
    return `${axis} ${Math.max(0, Math.floor(begin[axis]))} to ${Math.min(pane.extent[axis], Math.ceil(end[axis]))}`;
  });
  const size = picture.pixel_size ? `pixel ${picture.pixel_size.join(" x ")} m (y, x)` : "";
  const range = picture.limits ? `${pane.ends.join(" to ")} ${picture.unit}`.trim() : "hue: phase, brightness: amplitude";
  return [picture.title, range, picture.limits ? `colour map ${map}` : "", `${part.join(", ")} px`, size].filter(Boolean).join("; ");
}

/** All visible panes as one PNG, where they are on the page; at least two pixels for one of the screen. */
async function figureOf(shelf, panes, maps) {
  const seen = panes.filter((pane) => !pane.empty && !pane.figure.hidden);
  const factor = Math.max(2, window.devicePixelRatio || 1);
  const origin = shelf.getBoundingClientRect();
  const boxes = seen.map((pane) => pane.stage.getBoundingClientRect());
  const right = Math.max(...boxes.map((box) => box.right)) - origin.left;
  const bottom = Math.max(...boxes.map((box) => box.bottom)) - origin.top;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round((right + 2 * MARGIN) * factor);
  canvas.height = Math.round((bottom + FOOT + 2 * MARGIN) * factor);
  const context = canvas.getContext("2d");
  context.scale(factor, factor);
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  seen.forEach((pane, index) => {
    const box = boxes[index];
    context.save();
    context.translate(box.left - origin.left + MARGIN, box.top - origin.top + MARGIN);
    drawFrame(context, pane);
    context.beginPath();
    context.rect(0, 0, pane.room.width, pane.room.height);
    context.clip();
    pane.drawStage(context);
    pane.drawOver(context);
    context.restore();
  });
  const blob = await new Promise((take) => canvas.toBlob(take, "image/png"));
  return withTexts(blob, { Description: seen.map((pane, index) => descriptionOf(pane, maps[index])).join("\n") });
}

/** Title above the picture; colours and their ends below. */
function drawFrame(context, pane) {
  const { room, picture } = pane;
  context.fillStyle = "#1c2024";
  context.textAlign = "left";
  context.font = "600 13px system-ui, sans-serif";
  const title = pane.beside ? `${picture.title} | ${pane.beside.pane.picture.title}` : picture.title;
  context.fillText(pane.spectrum ? `${title}, spectrum` : title, 0, -8, room.width);
  if (!picture.limits || pane.spectrum || pane.difference) return;
  context.font = "12px system-ui, sans-serif";
  const [low, high] = [pane.low.textContent, pane.high.textContent];
  const [left, right] = [low, high].map((text) => context.measureText(text).width + 6);
  context.fillText(low, 0, room.height + 17);
  context.drawImage(pane.bar, left, room.height + 8, Math.max(room.width - left - right, 1), 10);
  context.fillText(high, room.width - right + 6, room.height + 17);
}
