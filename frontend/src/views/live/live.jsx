// The view of a run: pictures and loss curve beside the controls, and pages below them.

import { useLayoutEffect, useMemo, useState } from "preact/hooks";

import { Curve } from "../../page/curve.jsx";
import { Drawer, Message, useNode } from "../../page/parts.jsx";
import { divide } from "../../widgets/divider.js";
import { OwnTab } from "../own_tab.jsx";
import { Choice, More, Rates, Run } from "./controls.jsx";
import { Changes, Children, Engines, Pattern, Positions } from "./pages.jsx";
import { curvesOf } from "./record.js";
import { ArrivalBar, Summary } from "./summary.jsx";

/** @import { Drawing } from "../../page/types" */
/** @import { LiveValues } from "./values" */

/** Icons of pages that a program adds. @type {Record<string, import("../../page/icons.js").IconName>} */
const ICONS = { "Live settings": "sliders-horizontal", Checkpoints: "history", Diagnosis: "stethoscope" };

function Divider() {
  const node = useNode("div");
  useLayoutEffect(() => divide(node.current), [node]);
  return <div ref={node} />;
}

/** @type {Drawing<LiveValues>} */
export function Live({ element }) {
  const values = element.use();
  const { record, marks, arrivals, messages, notices, extra, pages, page } = values;
  const [axis, setAxis] = useState(0);
  const curves = useMemo(() => curvesOf(record, marks), [record, marks]);
  const over = axis ? "seconds" : "epochs";
  const loss = useMemo(() => ({ ...curves.loss, title: `loss over ${over}` }), [curves, over]);
  /** @type {import("../../page/parts.jsx").DrawerPage[]} */
  const drawn = [
    { title: "Pattern", icon: "grid-3x3", content: () => <Pattern element={element} /> },
    { title: "Positions", icon: "crosshair", content: () => <Positions element={element} /> },
    { title: "Errors", icon: "map", content: () => <Children element={element} of={values.errors} /> },
    { title: "Convergence", icon: "chart-line", content: () => <Curve class="ptynb-live-changes" spec={curves.changes} /> },
    { title: "Engines", icon: "server", content: () => <Engines element={element} /> },
    { title: "Changes", icon: "list", content: () => <Changes element={element} /> },
    ...Object.entries(pages).map(([title, mark]) => ({
      title,
      icon: ICONS[title] ?? "",
      content: () => <Children element={element} of={mark} />,
    })),
  ];
  return (
    <div class="ptynb-element ptynb-box ptynb-vbox ptynb-live">
      <div class="ptynb-box ptynb-live-head">
        <Summary summary={values.summary} />
        <OwnTab page={element.page} title="Live view" />
      </div>
      <ArrivalBar arrivals={arrivals} />
      {messages.map((text) => (
        <Message key={text} text={text} />
      ))}
      {notices.map((text) => (
        <Message key={text} text={text} role="status" />
      ))}
      <div class="ptynb-split">
        <div class="ptynb-split-pictures">
          <div class="ptynb-main">
            <Children element={element} of={values.object_pictures} />
          </div>
          <div class="ptynb-aside">
            <Children element={element} of={values.probe_pictures} />
          </div>
          <Curve class="ptynb-curve" small spec={loss} axis={axis} />
          <div class="ptynb-cuts">
            <Children element={element} of={values.cut_pictures} />
          </div>
        </div>
        <Divider />
        <div class="ptynb-box ptynb-vbox ptynb-split-controls">
          <Run element={element} />
          <Rates element={element} />
          <Choice element={element} />
          <Children element={element} of={extra} />
          <More element={element} axis={axis} onAxis={setAxis} />
        </div>
      </div>
      <Drawer label="Below the pictures" pages={drawn} shown={page ?? ""} onShow={(title) => element.put("page", title || null)} />
    </div>
  );
}
