// The files and folders of a folder as a list for mouse and keyboard, and ways to others.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { Act, Message, Select, TextField, useNode } from "../page/parts.jsx";

/** @import { TargetedKeyboardEvent, VNode } from "preact" */
/** @import { Element } from "../page/elements.js" */

/** Name, kind ("folder", "scan" or "other"), size and date.
 * @typedef {[string, string, string, string]} Item */
/** @typedef {{ folder: string, items: Item[], more: number, current: string, recent: string[],
 *   message: string, all_files: boolean }} ChooserValues */

/** @type {(folder: string, name: string) => string} */
const within = (folder, name) => (folder.endsWith("/") ? folder + name : `${folder}/${name}`);

/** Of the buttons one is in the order of Tab; arrows and letters move along the others.
 * @type {(given: { element: Element<ChooserValues> }) => VNode} */
function FileList({ element }) {
  const { folder, items, current } = element.use();
  const list = useNode("ul");
  const focused = useRef(false);
  const pressed = useRef("");
  const [reached, reach] = useState({ path: "", current });
  const paths = items.map(([name]) => within(folder, name));
  const wanted = reached.current === current && paths.includes(reached.path) ? reached.path : current;
  const inOrder = Math.max(paths.indexOf(wanted), 0);
  useLayoutEffect(() => {
    if (!focused.current || document.activeElement !== document.body) return;
    (list.current.querySelectorAll("button")[inOrder] ?? list.current).focus(); // the one before has gone with its folder
  });
  /** @type {(event: TargetedKeyboardEvent<HTMLElement>) => void} */
  const move = (event) => {
    const { key } = event;
    const all = [...list.current.querySelectorAll("button")];
    const at = all.findIndex((one) => one === document.activeElement);
    /** @type {Record<string, number>} */
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1, PageDown: at + 10, PageUp: at - 10 };
    let next = to[key];
    if (key === "Backspace") element.call("up");
    else if (key.length === 1 && key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const starts = (/** @type {Item} */ [name]) => name.toLowerCase().startsWith(key.toLowerCase());
      const after = items.findIndex((item, index) => index > at && starts(item));
      next = after < 0 ? items.findIndex(starts) : after;
      if (next < 0) next = at;
    } else if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    all[Math.max(0, Math.min(next, all.length - 1))]?.focus();
  };
  /** @type {(event: MouseEvent, name: string) => void} */
  const click = ({ currentTarget, detail }, name) => {
    /** @type {HTMLElement} */ (currentTarget).focus();
    if (detail > 1) return;
    pressed.current = within(folder, name);
    element.call("open", { name });
  };
  /** After the first click on a folder another item may lie there.
   * @type {(name: string) => void} */
  const doubleClick = (name) => {
    if (pressed.current === within(folder, name)) element.call("open", { name, twice: true });
  };
  return (
    <ul
      ref={list}
      class="ptynb-files"
      aria-label={`Files in ${folder}`}
      tabIndex={items.length === 0 ? -1 : undefined}
      onKeyDown={move}
      onFocusIn={() => (focused.current = true)}
      onFocusOut={({ relatedTarget }) => (focused.current = focused.current && relatedTarget === null)}
    >
      {items.map(([name, kind, size, date], index) => (
        <li key={paths[index]}>
          <button
            type="button"
            class={`ptynb-files-${kind}`}
            title={kind === "folder" ? `Opens the folder ${name}` : `${name}, ${size}, ${date}`}
            aria-current={paths[index] === current ? "true" : undefined}
            tabIndex={index === inOrder ? 0 : -1}
            onFocus={() => reach({ path: paths[index], current })}
            onClick={(event) => click(event, name)}
            onDblClick={() => doubleClick(name)}
          >
            <span>{kind === "folder" ? `${name}/` : name}</span>
            <span>{size}</span>
            <span>{date.split(" ")[0]}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

/** @type {(given: { element: Element<ChooserValues> }) => VNode} */
export function FileChooser({ element }) {
  const { folder, more, recent, message, all_files: all } = element.use();
  const files = recent.map((path) => {
    const end = path.lastIndexOf("/");
    return /** @type {[string, string]} */ ([path, `${path.slice(end + 1)}  (${path.slice(0, end) || "/"})`]);
  });
  return (
    <div class="ptynb-file-chooser">
      <div class="ptynb-file-chooser-row">
        <Act of={element} call="up" icon="arrow-up" title="Folder above" disabled={folder === "/"} />
        <Act of={element} call="show" icon="house" title="Folder of the notebook" />
        <Act of={element} call="refresh" icon="refresh-cw" title="Reads the folder again" />
        <TextField
          class="ptynb-grow"
          label="Folder"
          labelWidth="44px"
          title="Type another folder"
          value={folder}
          onCommit={(typed) => typed !== folder && element.call("show", { folder: typed })}
        />
      </div>
      <FileList element={element} />
      <div class="ptynb-file-chooser-row">
        <Select
          class="ptynb-file-filter"
          label="Show"
          labelWidth="36px"
          title="Which files are listed"
          options={["possible scans", "all files"]}
          value={all ? "all files" : "possible scans"}
          onCommit={(chosen) => element.put("all_files", chosen === "all files")}
        />
        <Select
          class="ptynb-grow"
          label="Recent"
          labelWidth="46px"
          title="Files that were loaded last"
          options={[["", "loaded last ..."], ...files]}
          value=""
          again
          disabled={recent.length === 0}
          onCommit={(path) => path && element.call("recall", { path })}
        />
      </div>
      <Message text={message} />
      {more > 0 && <p>and {more} more; type the name of one in the field File.</p>}
    </div>
  );
}
