// The view of a folder in which a run writes its status and pictures.

import { useMemo } from "preact/hooks";

import { Curve } from "../../page/curve.jsx";
import { Message, Table } from "../../page/parts.jsx";
import { Children } from "./pages.jsx";
import { curvesOf } from "./record.js";
import { State } from "./summary.jsx";

/** @import { Drawing } from "../../page/types" */
/** @import { WatchValues } from "./values" */

/** @type {Drawing<WatchValues>} */
export function Watch({ element }) {
  const values = element.use();
  const { state, facts, record, marks, changes, problem, message, pictures } = values;
  const curve = useMemo(() => curvesOf(record, marks).loss, [record, marks]);
  return (
    <div class="ptynb-element ptynb-watch">
      {state && (
        <div class="ptynb-facts">
          <State state={state} />
          {facts.map((fact) => (
            <span key={fact} class="ptynb-fact">
              {fact}
            </span>
          ))}
        </div>
      )}
      <Message text={message} />
      <Message text={problem} role="status" />
      <Children element={element} of={pictures} />
      <div class="ptynb-live-columns">
        <Curve spec={curve} />
        <div>
          <Table caption="Changes" heads={["in epoch", "setting"]} rows={changes} />
        </div>
      </div>
    </div>
  );
}
