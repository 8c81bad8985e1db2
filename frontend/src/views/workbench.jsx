// The workbench: its tabs, what is known of scan and cluster, and the runs that may be attached to.

import { useEffect } from "preact/hooks";

import { Parts } from "../page/part.jsx";
import { Act, Message, Tabs } from "../page/parts.jsx";
import { CodeView } from "./code_view.jsx";
import { OwnTab } from "./own_tab.jsx";

/** @import { Drawing, Mark } from "../page/types" */
/** @typedef {{ facts: { scan: string, about: string[] }, message: string, offers: Record<string, string>,
 *   tab: string, views: Record<string, Mark | null>, lines: string[] }} WorkbenchValues */

const TABS = ["Scan", "Settings", "Run", "Compare", "Tune", "Python"];
/** After which time what is in other tabs is asked for: the one in front has been drawn. */
const AFTER_MS = 100;

/** @type {(given: WorkbenchValues["facts"]) => import("preact").VNode} */
const Facts = ({ scan, about }) => (
  <div class="ptynb-workbench-facts" title={[scan || "no scan", ...about].join(" · ")}>
    {scan ? <b>{scan}</b> : "no scan"}
    {about.map((fact) => ` \u00a0·\u00a0 ${fact}`)}
  </div>
);

/** @type {Drawing<WorkbenchValues>} */
export function Workbench({ element }) {
  const { facts, message, offers, tab, views, lines } = element.use();
  const missing = Object.values(views).includes(null);
  useEffect(() => {
    const asking = missing ? setTimeout(() => element.call("show_all"), AFTER_MS) : undefined;
    return () => clearTimeout(asking);
  }, [element, missing]);
  const page = (/** @type {number} */ index) =>
    TABS[index] === "Python" ? <CodeView lines={lines} /> : <Parts page={element.page} of={views[TABS[index]]} />;
  return (
    <div class="ptynb-element ptynb-workbench">
      {Object.entries(offers).map(([name, text]) => (
        <div key={name} class="ptynb-wrapped">
          <Act of={element} call="attach" given={{ name }} text="Attach" icon="plug" title={`pt.attach('${name}')`} />
          <span role="status">A run continues without a notebook: {text}.</span>
        </div>
      ))}
      <Message text={message} />
      <div class="ptynb-workbench-pages">
        <div class="ptynb-workbench-head">
          <Facts {...facts} />
          <OwnTab page={element.page} title="Workbench" />
        </div>
        <Tabs titles={TABS} selected={TABS.indexOf(tab)} onSelect={(index) => element.put("tab", TABS[index])} page={page} />
      </div>
    </div>
  );
}
