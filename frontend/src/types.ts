// Types of what several modules pass to each other; the scripts name them in their comments.

/** Traits of a widget, as anywidget shares them; in a report a substitute without a kernel. */
export interface Model {
  get(name: string): any;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(message: object, callbacks?: unknown, buffers?: ArrayBuffer[]): void;
  on(event: string, act: (message: any) => void): void;
  off(event: string, act: (message: any) => void): void;
  widget_manager?: any;
}

/** Shows a model in an element, and returns what ends that. */
export type Render = (context: { model: Model; el: HTMLElement }) => (() => void) | undefined;

/** Two numbers: the ends of an interval, or what belongs to y and x. */
export type Ends = [number, number];
export interface Point {
  y: number;
  x: number;
}
export interface Size {
  width: number;
  height: number;
}
/** A part of a picture, in its pixels. */
export interface Part extends Size {
  top: number;
  left: number;
}
/** A part of an array: [top, bottom, left, right] in its pixels. */
export type Region = [number, number, number, number];
/** The centre of a pane, as parts of the picture, and the magnification relative to the whole picture. */
export interface View extends Point {
  scale: number;
}
/** Screen pixels per pixel of the array, and where the array's corner is on the screen. */
export interface Place {
  scale: number;
  left: number;
  top: number;
}
/** The lines of a crosshair; a coordinate that is null has no line. */
export interface Aim {
  y: number | null;
  x: number | null;
}

/** A picture of a frame. pixel_size: of the array (y, x) [m]; reduction: array pixels for one of the picture. */
export interface Picture {
  name: string;
  title: string;
  image: BufferSource | ImageData;
  shape: number[];
  limits: Ends | null;
  unit: string;
  note: string;
  colours: string;
  quantity?: string;
  reduction: number;
  pixel_size: Ends | null;
  axes?: string[];
  bands?: Ends;
  valueAt?: (y: number, x: number) => string;
}
/** A decoded picture. */
export interface Source extends Size {
  image: CanvasImageSource;
  close(): void;
}
/** Levels of a picture, and the value of each. corner: the array's pixel at which it begins. */
export interface Grid extends Size {
  levels: Uint8Array;
  values: Float64Array;
  limits: Ends;
  unit: string;
  reduction: number;
  corner?: Point;
}
/** What was measured; start and stop are (y, x) in pixels of the array. */
export interface Measure {
  kind: string;
  picture: string;
  start: Ends;
  stop: Ends;
  width?: number;
}
/** length [m], if the size of pixels is known; angle from the x axis, anticlockwise [°]. */
export interface Distance {
  pixels: number;
  length: number | null;
  angle: number;
}
/** Of the values in a region; clipped: whether the lowest and the highest level are among them. */
export interface Statistics {
  mean: number;
  deviation: number;
  least: number;
  most: number;
  pixels: number;
  clipped: boolean[];
}
/** What a profile shows. */
export interface Profile {
  distances: Float64Array;
  values: Float64Array;
}
/** Coordinates (y, x) of points, and where they have moved to. */
export interface Marks {
  points?: Float32Array;
  moves?: Float32Array;
  chosen?: number;
}
export interface Stroke {
  path: Point[];
  radius: number;
  erase: boolean;
}
/** part: of the array. pixel: its side times the reduction of the picture [array pixels]. */
export interface Spectrum {
  source: HTMLCanvasElement;
  side: number;
  part: Part;
  pixel: number;
}
/** size: period [m, or array pixels]. */
export interface Ring {
  size: number;
  pixelSize?: Ends | null;
}
/** One picture minus another; most: the value at the ends of the colours. */
export interface Difference {
  source: HTMLCanvasElement;
  extent: Point;
  most: number;
  minus: string;
  title: string;
  colours: string;
}
/** contrast: levels of the ends of the colours. */
export interface Contrast {
  contrast: Ends;
  locked: boolean;
  cyclic: boolean;
}
/** Another picture right of a part of a pane. */
export interface Beside {
  pane: Pane;
  at: number;
}
export interface Frame {
  number: number;
  pictures: Picture[];
  facts: Record<string, number>;
}
/** Pictures of a part of the array with more pixels, from its corner on: those of panes, by name. */
export interface RegionFrame {
  number: number;
  pictures: Picture[];
  corner: Ends;
}
/** Where the strip with probe and curve goes, and its size; columns of the main pictures, and the area of one. */
export interface Arrangement {
  place: string;
  strip: number;
  columns: number;
  area: number;
}
export type Tables = Record<string, Uint32Array>;
export type Context = CanvasRenderingContext2D;

export type Board = import("./viewer/viewer.js").Board;
export type Pane = import("./viewer/pane.js").Pane;
export type Colouring = import("./viewer/colouring.js").Colouring;
export type Measuring = import("./viewer/measuring.js").Measuring;

/** Layers of an array of complex numbers, which are multiplied, and the phase (mean and ramp) that is subtracted. */
export interface Plane {
  numbers: Float32Array;
  extent: Ends;
  layers: number[];
  corner: Ends;
  shape: Ends;
  phase: [number, number, number];
  quantity: string;
}

/** A control of a report's viewer: its options choose a frame by their keys, or two pictures for one pane. */
export interface Control {
  label: string;
  kind: string;
  start: number;
  options: { text: string; key?: string; swipe?: string[] }[];
}
/** A frame of a report's viewer: names of pictures, and coordinates in base64. */
export interface ShelfFrame {
  pictures: string[];
  note?: string;
  points?: string;
  moves?: string;
  expressions?: Record<string, string>;
}
/** A viewer of a report. exclusive: the control that was used last chooses the frame, else all together. */
export interface ShelfSpec {
  label: string;
  exclusive: boolean;
  controls: Control[];
  frames: Record<string, ShelfFrame>;
  height: number;
  tools: boolean;
  file: string;
}
/** A line of a curve; x: an array for each axis. */
export interface CurveLine {
  name: string;
  x: (number | null)[][];
  y: (number | null)[];
  faint?: boolean;
}
/** A curve; lowest, highest: limits of a linear y axis; marked: what the marks mean; empty: a text in place of no points. */
export interface CurveSpec {
  title: string;
  axes: string[];
  log: boolean;
  lowest: number | null;
  highest: number | null;
  lines: CurveLine[];
  marks: { x: number[]; text: string }[];
  marked: string;
  empty?: string;
  file: string;
}
/** What a report contains: `PageData` in Python. */
export interface ReportData {
  file: string;
  tables: Record<string, string>;
  cyclic: string[];
  pictures: Record<string, any>;
  viewers: Record<string, ShelfSpec>;
  curves: Record<string, CurveSpec>;
  files: Record<string, any>;
}

/** An input with its label, and with the text of it. */
export interface NumberField {
  field: HTMLElement;
  input: HTMLInputElement;
  text: HTMLElement;
}
export interface ChoiceField {
  field: HTMLElement;
  select: HTMLSelectElement;
}
