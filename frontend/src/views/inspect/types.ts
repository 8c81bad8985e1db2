// The values of the inspector and its panels; see `ptynb/widgets/inspect`.

import type { Mark } from "../../page/types";
import type { Arrivals } from "../live/values";

export interface PanelValues {
  view: Mark;
}
export interface ScaledValues extends PanelValues {
  scale: "log" | "linear" | "gamma";
  exponent: number;
}
export interface InspectValues extends ScaledValues {
  map_view: Mark;
  panels: Record<string, Mark>;
  facts: string[];
  maps: string[];
  length: number;
  surveyed: number;
  paused: boolean;
  live: boolean;
  arrivals: Arrivals | Partial<Arrivals>;
  can_undo: boolean;
  pattern_message: string;
  message: string;
  survey_message: string;
  note: string;
  chosen: number;
  pattern_note: string;
  tab: string;
  map_kind: string;
  radius: number;
  dots: boolean;
}
/** octaves: how many pixels have no counts, and 2 to the power of -20 and more, -19 and more, ... */
export interface StatisticsValues extends ScaledValues {
  patterns: number;
  octaves: number[];
}
export interface MaskValues extends PanelValues {
  shape: [number, number];
  text: string;
  new: number;
  changed: boolean;
  painting: boolean;
  disc: { y: number; x: number; radius: number };
}
export interface PositionsValues {
  rotation: { angle?: string; text: string; lines: string };
  text: string;
  rows: [number, string][];
  exclude: string;
}
export interface PreparationValues extends PanelValues {
  facts: string[];
  kinds: [string, string, string][];
  lines: string[];
  recipe: string;
}
export interface DirectValues extends PanelValues {
  live: boolean;
  text: string;
  rows: string[][];
  note: string;
  guess: boolean;
  reading: { done?: number; total: number };
}
