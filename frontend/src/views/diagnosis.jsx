// What is wrong with a reconstruction, and what helps.

import { Parts } from "../page/part.jsx";
import { Act, Progress } from "../page/parts.jsx";

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
      <div class="ptynb-wrapped">
        <Act
          of={element} call="diagnose" text="Diagnose" icon="stethoscope"
          title="Looks for known faults of the present state" disabled={busy}
        />
        <Act
          of={element} call="diagnose" given={{ trial: true }} text="Try remedies" icon="flask"
          title="Diagnoses, and tries each remedy in a short run" disabled={busy}
        />
        {all > 0 && <Progress label="Trials" labelWidth="initial" style={{ width: "240px" }} value={done} max={all} />}
        {all > 0 && (
          <Act of={element} call="cancel" text="Cancel trials" icon="x" title="Ends the trials; findings and run stay as they are" />
        )}
      </div>
      <div role="status">{status}</div>
      {findings.map(({ name, strength, explanation, remedy, can_apply: canApply }) => (
        <div key={name} class="ptynb-wrapped">
          {canApply && (
            <Act of={element} call="apply" given={{ name }} text="Apply" icon="check" title={`Applies the remedy of ${name}`} />
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
