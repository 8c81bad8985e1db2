// A curve in a view: drawn by the script of reports, from arrays of numbers.

import { useEffect, useLayoutEffect, useState } from "preact/hooks";

import { Curve as Drawing } from "../widgets/curve.js";
import { useNode } from "./parts.jsx";

/** @import { VNode } from "preact" */
/** @import { CurveSpec } from "../types" */

/** @type {CurveSpec} */
const NOTHING = { title: "", axes: [""], log: true, lowest: null, highest: null, lines: [], marks: [], marked: "", file: "" };

/** axis: over which of the axes; small: for a small place, without tools.
 * @type {(given: { spec: CurveSpec, axis?: number, small?: boolean, class?: string }) => VNode} */
export function Curve({ spec, axis, small = false, class: name }) {
  const node = useNode("div");
  const [drawing, draw] = useState(/** @type {Drawing | null} */ (null));
  useEffect(() => {
    const made = new Drawing(node.current, NOTHING, small);
    draw(made);
    return () => made.end();
  }, [node, small]);
  useLayoutEffect(() => drawing?.update(spec, axis), [drawing, spec, axis]);
  return <div class={name} ref={node} />;
}
