// A curve in a view: drawn by the script of reports, from arrays of numbers.

import { useLayoutEffect, useState } from "preact/hooks";

import { Curve as Drawing } from "../widgets/curve.js";
import { useNode } from "./parts.jsx";

/** @import { VNode } from "preact" */
/** @import { CurveSpec } from "../types" */

/** axis: over which of the axes; small: for a small place, without tools.
 * @type {(given: { spec: CurveSpec, axis?: number, small?: boolean, class?: string }) => VNode} */
export function Curve({ spec, axis, small = false, class: name }) {
  const node = useNode("div");
  const [first] = useState(spec); // whose axes and scale choose the tools
  const [drawing, draw] = useState(/** @type {Drawing | null} */ (null));
  useLayoutEffect(() => {
    const made = new Drawing(node.current, first, small);
    draw(made);
    return () => made.end();
  }, [node, first, small]);
  useLayoutEffect(() => drawing?.update(spec, axis), [drawing, spec, axis]);
  return <div class={name} ref={node} />;
}
