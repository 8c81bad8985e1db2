// What is wrong with a reconstruction, and what helps.

import { Parts } from "../page/part.jsx";
import { Button, Progress } from "../page/parts.jsx";

/** @import { Drawing, Mark } from "../page/types" */
/** @typedef {{ name: string, strength: string, explanation: string, remedy: string, can_apply: boolean }} Finding */
/** @typedef {{ busy: boolean, progress: number[], status: string, findings: Finding[],
 *   applied: string, has_places: boolean, viewer: Mark }} DiagnosisValues */

/** @type {Drawing<DiagnosisValues>} */
export function Diagnosis({ element }) {
  const { busy, progress, status, findings, applied, has_places: hasPlaces, viewer } = element.use();
  const [done, all] = progress;
  return (
    <div class="ptynb-element">
      <div class="ptynb-row-wrap">
        <Button
          text="Diagnose" icon="stethoscope" title="Looks for known faults of the present state" disabled={busy}
          onClick={() => element.call("diagnose")}
        />
        <Button
          text="Try remedies" icon="flask" title="Diagnoses, and tries each remedy in a short run" disabled={busy}
          onClick={() => element.call("diagnose", { trial: true })}
        />
        {all > 0 && <Progress label="Trials" labelWidth="initial" style={{ width: "240px" }} value={done} max={all} />}
        {all > 0 && (
          <Button text="Cancel trials" icon="x" title="Ends the trials; findings and run stay as they are" onClick={() => element.call("cancel")} />
        )}
      </div>
      <div role="status">{status}</div>
      {findings.map(({ name, strength, explanation, remedy, can_apply: canApply }) => (
        <div key={name} class="ptynb-row-wrap">
          {canApply && (
            <Button text="Apply" icon="check" title={`Applies the remedy of ${name}`} onClick={() => element.call("apply", { name })} />
          )}
          <div class="ptynb-finding">
            <b>{name}</b> · {strength}
            <br />
            {explanation}
            <br />
            Remedy: {remedy}.
          </div>
        </div>
      ))}
      <div role="status">{applied}</div>
      {hasPlaces && <Parts page={element.page} of={viewer} />}
    </div>
  );
}
