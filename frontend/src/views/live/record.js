// The record of a run, and the curves of it.

/** @import { CurveSpec } from "../../types" */
/** @import { Record } from "./values" */

/** @type {WeakMap<DataView, Float64Array>} */
const read = new WeakMap();

/** The numbers of a piece, which stays the same object while it does not change.
 * @type {(piece: DataView) => Float64Array} */
function numbersOf(piece) {
  const known = read.get(piece) ?? new Float64Array(piece.buffer.slice(piece.byteOffset, piece.byteOffset + piece.byteLength));
  read.set(piece, known);
  return known;
}

/** Columns of a table of a record, which has so many; null: not known.
 * @type {(record: Record, table: string, count: number) => (number | null)[][]} */
function columnsOf(record, table, count) {
  /** @type {(number | null)[][]} */
  const columns = Array.from({ length: count }, () => []);
  for (let index = 0; `${table} ${index}` in record; index += 1) {
    numbersOf(record[`${table} ${index}`]).forEach((value, at) => columns[at % count].push(Number.isFinite(value) ? value : null));
  }
  return columns;
}

const AXES = ["epoch", "time [s]"];
const LOOK = { axes: AXES, log: true, lowest: null, highest: null };

/** Curves of losses and R-factors, and of changes in an epoch, over epochs and over seconds.
 * @type {(record: Record, marks: number[]) => { loss: CurveSpec, changes: CurveSpec }} */
export function curvesOf(record, marks) {
  const [numbers, losses, seconds, ...moved] = columnsOf(record, "epochs", 6);
  const [measured, rFactors] = columnsOf(record, "r_factors", 2);
  let time = 0;
  const times = seconds.map((each) => (time += each ?? 0));
  /** @type {Map<number | null, number>} */
  const ends = new Map([[0, 0]]);
  numbers.forEach((number, index) => ends.set(number, times[index]));
  const over = [numbers, times];
  const lines = [{ name: "loss", x: over, y: losses }];
  if (measured.length) lines.push({ name: "R-factor", x: [measured, measured.map((epoch) => ends.get(epoch) ?? null)], y: rFactors });
  const changed = ["object", "probe", "positions"].map((name, index) => ({ name, x: over, y: moved[index] }));
  const drawn = marks.map((epoch) => ({ x: [epoch, ends.get(epoch - 1) ?? 0], text: "" }));
  return {
    loss: { ...LOOK, title: "loss", lines, marks: drawn, marked: "", empty: "no epoch yet", file: "loss" },
    changes: {
      ...LOOK,
      title: "Change in an epoch (positions: pixels)",
      lines: changed.filter(({ y }) => y.some((value) => value !== null)),
      marks: drawn,
      marked: "a setting was changed",
      file: "changes",
    },
  };
}
