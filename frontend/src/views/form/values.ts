// What a form of settings is drawn from; see `ptynb/widgets/form/form_view.py`.

import type { Element } from "../../page/elements.js";
import type { Mark as Place, Option } from "../../page/types";

/** A field. units: of those one is chosen, unit: the only one; limits: as text in each of them; live: it can be changed at any update of a run. */
export interface FieldSchema {
  name: string;
  label: string;
  kind: "text" | "number" | "integer" | "choice" | "switch";
  about: string;
  unit?: string;
  units?: string[];
  limits?: string[];
  choices?: Option[];
  placeholder?: string;
  live?: boolean;
}
/** A kind of entry; fields: their indices in `entryFields`. */
export interface KindSchema {
  kind: string;
  title: string;
  about: string;
  fields: number[];
}
/** A group of fields, of which the first are shown while it is folded, or a list of entries of some kinds. */
export interface GroupSchema {
  name: string;
  title: string;
  about: string;
  fields?: FieldSchema[];
  first?: number;
  switch?: boolean;
  kinds?: KindSchema[];
}
/** A switch, the key of a choice, a text, or a number as text, or as texts in all units and the index of the one that fits. */
export type Shown = boolean | string | null | { texts: string[]; fit: number };
/** was: the value of the source, if the present one is another. */
export interface Mark {
  was?: Shown;
  problem?: string;
}
/** name: with which the names of its fields begin. */
export interface EntryValues {
  name: string;
  kind: string;
  on: boolean;
  problem: string;
}
/** low, high: as text in each unit of the field; chosen: the values to try of a choice. */
export interface RangeValues {
  problem: string;
  low?: string[];
  high?: string[];
  logarithmic?: boolean;
  chosen?: (string | boolean)[];
}
export interface GroupState {
  on: boolean | null;
  summary: string;
  changed: number;
}
export interface FormValues {
  schema: { groups: GroupSchema[]; entryFields: FieldSchema[] };
  mode: "plain" | "live" | "ranges";
  values: Record<string, Shown>;
  marks: Record<string, Mark>;
  revisions: Record<string, number>;
  entries: Record<string, EntryValues[]>;
  groups: Record<string, GroupState>;
  sources: string[];
  source: { name: string; title: string; about: string; reasons: Record<string, string>; changed: boolean };
  tuned: Record<string, RangeValues>;
  waiting: { changes: string[][]; problem: string };
  frozen: Record<string, { on: boolean; rate: number }>;
  invalid: string;
  message: string;
  file: string;
}
export type Form = Element<FormValues>;

export interface TableValues {
  heads: string[];
  rows: string[][];
  caption: string;
  left: number[];
}
export interface SetUpValues {
  form: Place;
  viewer: Place;
  with_scan: boolean;
  memory: { sentence?: string; table?: TableValues; problem?: string };
  measuring: boolean;
  advice: Partial<TableValues>;
  trials: number | null;
  finding: string;
  recommended: Partial<TableValues>;
  previewed: boolean;
  message: string;
}
