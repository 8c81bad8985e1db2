// What a page and its kernel tell each other (see `ptynb/widgets/element_tree.py`), and the values of what the page draws.

import type { VNode } from "preact";

import type { Element, Page } from "./elements.js";

/** Values of traits that nobody looks into on the way. */
export type Values = Record<string, unknown>;
/** The place of an element in a value. */
export interface Mark {
  $element: string;
}
/** values: those that are not the defaults of the component. */
export interface State {
  component: string;
  values: Values;
}
/** All elements of a page by their keys, as of the message with this number; defaults: by component. */
export interface Tree {
  number: number;
  root: string;
  defaults: Record<string, Values>;
  elements: Record<string, State>;
}

/** session: in the first message of a connection. given: how many buffers are values in the message; those after them belong to what it is about. */
interface Numbered {
  number: number;
  given: number;
  session?: string;
}
export interface TreeMessage extends Numbered {
  tree: Tree;
}
/** To what draws an element. */
export interface ContentMessage extends Numbered {
  to: string;
  content: object;
}
/** from: the browser that has set these values; defaults: of the components of new elements. */
export interface ChangeMessage extends Numbered {
  changes: [string, Values][];
  new: Record<string, State>;
  gone?: string[];
  defaults?: Record<string, Values>;
  from?: string;
}
export type KernelMessage = TreeMessage | ContentMessage | ChangeMessage;
export type BrowserMessage =
  | { seen: number }
  | { to: string; set: Values; from: string }
  | { to: string; command: string; arguments: Values }
  | { to: string; content: object };
export type Receive = (message: KernelMessage, buffers?: DataView[]) => void;

/** What carries the messages of a page: a model of a notebook, or the connection to a dashboard. */
export interface Channel {
  get(name: "tree"): Tree;
  on(event: "msg:custom", act: Receive): void;
  send(message: BrowserMessage, callbacks?: unknown, buffers?: ArrayBuffer[]): void;
  model_id?: string;
}

/** What makes models and views in a notebook, as far as a page uses it; of JupyterLab, without types here. */
export interface Manager {
  get_model(name: string): Promise<any>;
  create_view(model: unknown): Promise<{ luminoWidget: any }>;
  has_model(name: string): boolean;
  context?: any;
  restoredStatus?: boolean;
  ptynbShows?: boolean;
}
/** The widget of a notebook that shows a page. */
export interface Shower {
  get(name: string): string;
  widget_manager: Manager;
}
/** model: null on a dashboard. name: key of the element to show, instead of all. */
export interface Shown {
  channel: Channel;
  model: Shower | null;
  el: HTMLElement;
}

export interface Limits {
  min: number | null;
  max: number | null;
}

/** Draws an element with these values. */
export type Drawing<V = any> = (given: { element: Element<V> }) => VNode;
/** Shows an element in a node by a script of its own, and returns what ends that. */
export type Rendering = (given: { model: Element; el: HTMLElement }) => (() => void) | undefined;
/** Class and style of the outermost node of a part. */
export interface Line {
  class?: string;
  style?: Record<string, string>;
}
/** The line of a field. labelWidth: a CSS length; name: by which the kernel moves the focus to the field. */
export interface LineGiven extends Line {
  label?: string;
  labelWidth?: string;
  title?: string;
  disabled?: boolean;
  name?: string;
}
/** What a field gets from the line around it. */
export interface Given {
  id: string;
  name: string | undefined;
  title: string | undefined;
  "aria-label": string | undefined;
  disabled: boolean;
}
/** each: whether `onCommit` is called at each key, or else once the user has finished. version: a change of it shows the value again. */
export interface TextGiven {
  value: string;
  each?: boolean;
  version?: number;
  onCommit: (text: string) => void;
}
export interface TextLike extends LineGiven, TextGiven {
  placeholder?: string;
}
/** Key and text. */
export type Option = [string, string];
export type OptionsOf = (string | Option)[];
export interface PartGiven {
  page: Page;
  name: string;
}
