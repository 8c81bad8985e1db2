// What the live view gets from the kernel; see `ptynb/widgets/live`.

import type { Mark } from "../../page/types";

/** Pieces of a record: rows of numbers, by "epochs 0", ... */
export type Record = { [piece: string]: DataView };
/** Texts are "" and numbers 0 where nothing is known. */
export interface Summary {
  state: string;
  epoch: number;
  target: number;
  after_scan: number;
  update: number;
  updates: number;
  stopped: string;
  stage: number;
  stages: number;
  loss: string;
  r_factor: string;
  r_factor_epoch: number;
  speed: string;
  left: string;
}
/** What has come of a scan that is being measured; remarks: texts and what they mean. */
export interface Arrivals {
  planned: number;
  arrived: number;
  placed: number;
  admitted: number | null;
  remarks: [string, string][];
  rate: string;
  lag: string;
  ended: string;
  silence: string;
}
/** How positions have moved, as (rms, largest); moves, residual and affine: if they have. */
export interface Refinement {
  moved: boolean;
  moves: string[];
  residual: string[];
  affine: string;
}
export interface LiveValues {
  panes: string[];
  slice: number;
  object_mode: number;
  flat: boolean;
  modes: number;
  modes_as: string;
  cuts: boolean;
  positions: boolean;
  without_affine: boolean;
  arrows: number;
  page: string | null;
  slices: number;
  object_modes: number;
  refinement: Refinement | Partial<Refinement>;
  object_pictures: Mark;
  probe_pictures: Mark;
  cut_pictures: Mark;
  pattern_pictures: Mark;
  errors: Mark;
  summary: Summary;
  usable: string[];
  parts: { [part: string]: { label: string; rate: number } };
  r_factor_every: number;
  record: Record;
  marks: number[];
  changes: string[][];
  health: string[][];
  facts: string[];
  arrivals: Arrivals | Partial<Arrivals>;
  messages: string[];
  notices: string[];
  pattern: number | null;
  patterns: number;
  pattern_facts: string;
  logarithmic: boolean;
  extra: Mark[];
  pages: { [title: string]: Mark };
}
export interface ErrorsValues {
  facts: string;
  computing: boolean;
  done: number;
  total: number;
  said: string;
  message: string;
  map: Mark;
  errors: Mark;
}
export interface WatchValues {
  state: string;
  facts: string[];
  record: Record;
  marks: number[];
  changes: string[][];
  problem: string;
  message: string;
  pictures: Mark;
}
