// The values of the inspector and its panels; see `ptynb/widgets/inspect`.

import type { ElementValues, Mark } from "../../page/types";

export type Scale = "log" | "linear" | "gamma";
export interface ScaledValues extends ElementValues {
  scale: Scale;
  exponent: number;
}
export interface InspectValues extends ScaledValues {
  facts: string[];
  length: number;
  map_view: Mark;
  view: Mark;
  panels: Record<string, Mark>;
  maps: string[];
  live: boolean;
  can_undo: boolean;
  survey: { patterns: number; state: string };
  arrivals: string;
  pattern_message: string;
  message: string;
  survey_message: string;
  note: string;
  chosen: number;
  pattern_note: string;
  paused: boolean;
  tab: string;
  map_kind: string;
  radius: number;
  dots: boolean;
}
/** bars: the lowest counts of each, and how many pixels. */
export interface Histogram {
  patterns: number;
  bars: [string, number][];
  most: string;
}
export interface StatisticsValues extends ScaledValues {
  view: Mark;
  histogram: Histogram | Record<string, never>;
}
export interface MaskValues extends ElementValues {
  view: Mark;
  shape: [number, number];
  text: string;
  new: number;
  changed: boolean;
  painting: boolean;
  disc: { y: number; x: number; radius: number };
}
export interface PositionsValues extends ElementValues {
  rotation: { angle?: string; text: string; lines: string };
  text: string;
  rows: [number, string][];
  exclude: string;
}
export interface PreparationValues extends ElementValues {
  view: Mark;
  facts: string[];
  kinds: [string, string, string][];
  lines: string[];
  recipe: string;
}
export interface DirectValues extends ElementValues {
  view: Mark;
  live: boolean;
  text: string;
  rows: string[][];
  note: string;
  guess: boolean;
  reading: { done?: number; total: number };
}
