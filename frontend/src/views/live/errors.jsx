// The page "Errors" of a run: R-factors of the patterns, and the standard error of the object.

import { useState } from "preact/hooks";

import { Act, Button, Message, NumberField } from "../../page/parts.jsx";
import { Children } from "./pages.jsx";

/** @import { Drawing } from "../../page/types" */
/** @import { ErrorsValues } from "./values" */

const EPOCHS = "Epochs of each half; 0: as many as the run has completed.";
const ENGINES = "Engines that are started for it; 0: the notebook's process reconstructs.";

/** @type {Drawing<ErrorsValues>} */
export function LiveErrors({ element }) {
  const { facts, computing, done, total, said, message, map, errors } = element.use();
  const [epochs, setEpochs] = useState(0);
  const [engines, setEngines] = useState(0);
  const [asked, ask] = useState(false);
  const compute = () => {
    ask(true);
    element.call("compute", { epochs, engines });
  };
  const progress = total ? `${done} of ${total} epochs` : "reading the scan …";
  const label = "Map the standard error";
  return (
    <div class="ptynb-live-errors">
      <div>{facts}</div>
      <div class="ptynb-live-columns">
        <div>
          <Children element={element} of={map} />
        </div>
        <div>
          <div class="ptynb-live-fields">
            <NumberField label="Epochs" title={EPOCHS} value={epochs} min={0} max={1_000_000} onCommit={setEpochs} />
            <NumberField label="New engines" title={ENGINES} value={engines} min={0} max={64} onCommit={setEngines} />
            <Button text={label} icon="contrast" title={label} disabled={computing} onClick={compute} />
            <Act of={element} call="cancel" text="Cancel" icon="stop" title="Cancel" disabled={!computing} />
          </div>
          {computing && !said && (
            <div class="ptynb-live-fields">
              <progress value={done} max={Math.max(total, 1)} aria-label="Epochs of both halves" />
              <span role="status">{progress}</span>
            </div>
          )}
          {said && <div role="status">{said}</div>}
          <Message text={message} />
          {!computing && !said && !message && <div>From reconstructions of two halves of the scan, beside the run.</div>}
          <div hidden={!asked && !said}>
            <Children element={element} of={errors} />
          </div>
        </div>
      </div>
    </div>
  );
}
