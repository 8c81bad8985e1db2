// Lines of Python that can be read, selected and copied.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import { Button, useNode } from "../page/parts.jsx";

/** It scrolls to the newest line unless the user has scrolled away.
 * @type {(given: { lines: string[] }) => import("preact").VNode} */
export function CodeView({ lines }) {
  const [said, say] = useState("");
  const text = useNode("pre");
  const code = useNode("code");
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (atEnd.current) text.current.scrollTop = text.current.scrollHeight;
  }, [text, lines]);
  const scrolled = () => {
    const { scrollTop, clientHeight, scrollHeight } = text.current;
    atEnd.current = scrollTop + clientHeight >= scrollHeight - 4;
  };
  const copy = async () => {
    // Pages that are not served from this machine or by https have no clipboard; a selection can be copied anywhere.
    document.getSelection()?.selectAllChildren(code.current);
    try {
      await navigator.clipboard.writeText(lines.join("\n"));
      say("copied");
    } catch {
      say(document.execCommand("copy") ? "copied" : "selected; press Ctrl+C");
    }
  };
  return (
    <div class="ptynb-code">
      <Button text="Copy" class="ptynb-auto" onClick={copy} />
      <span class="ptynb-code-said" role="status">{said}</span>
      <pre ref={text} tabIndex={0} role="region" aria-label="Lines of Python" onScroll={scrolled}>
        <code ref={code}>{lines.join("\n")}</code>
      </pre>
    </div>
  );
}
