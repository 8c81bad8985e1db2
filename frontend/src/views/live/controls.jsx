// The controls of a run, and the choice of what its pictures show.

import { useEffect, useRef, useState } from "preact/hooks";

import { Act, Check, Drawer, NumberField, Select } from "../../page/parts.jsx";

/** @import { ComponentChildren, VNode } from "preact" */
/** @import { Element } from "../../page/elements.js" */
/** @import { LiveValues } from "./values" */
/** @typedef {{ element: Element<LiveValues> }} Given */

const MOST_EPOCHS = 1_000_000;
/** @type {Record<string, [string, import("../../page/icons.js").IconName, string]>} */
const BUTTONS = {
  pause: ["Pause", "pause", "Suspends the run on all engines after the same update."],
  resume: ["Resume", "play", "Continues a paused run."],
  stop: ["Stop", "stop", "Ends the run; Start continues it."],
  recover: ["Recover", "briefcase-medical", "Continues from the latest checkpoint, on the remaining engines and new ones."],
};
const PANES = ["amplitude", "phase", "complex"];
const CUTS = "Shows cuts along the beam through all slices, at a crosshair that clicks and drags move";

/** What a user has asked for, by name, until the kernel has answered all of it with values of a trait; and what asks, once
 * for each value.
 * @param {Element} element @param {string} trait
 * @returns {[Map<string, number>, (name: string, before: number, value: number) => boolean]} */
function useAsked(element, trait) {
  const [asked] = useState(() => new Map());
  const unanswered = useRef(0);
  const [, redraw] = useState(0);
  useEffect(() => {
    const answered = () => {
      unanswered.current = Math.max(unanswered.current - 1, 0);
      if (unanswered.current === 0) asked.clear();
      redraw((count) => count + 1);
    };
    element.on(`change:${trait}`, answered);
    return () => element.off(`change:${trait}`, answered);
  }, [element, trait, asked]);
  /** @type {(name: string, before: number, value: number) => boolean} */
  const ask = (name, before, value) => {
    if (value === (asked.get(name) ?? before)) return false; // as at the key Enter, and at the end of the editing
    asked.set(name, value);
    unanswered.current += 1;
    redraw((count) => count + 1);
    return true;
  };
  return [asked, ask];
}

/** @type {(given: { children: ComponentChildren }) => VNode} */
const Section = ({ children }) => <div class="ptynb-element ptynb-box ptynb-vbox">{children}</div>;
/** @type {(given: { children: ComponentChildren }) => VNode} */
const Ticks = ({ children }) => <div class="ptynb-box ptynb-ticks">{children}</div>;

/** @type {(given: Given) => VNode} */
export function Run({ element }) {
  const { usable } = element.use();
  const [more, setMore] = useState(100);
  const shown = [...(usable.includes("recover") ? ["recover"] : []), usable.includes("resume") ? "resume" : "pause", "stop"];
  return (
    <Section>
      <div class="ptynb-box ptynb-live-buttons">
        {shown.map((name) => {
          const [text, icon, title] = BUTTONS[name];
          return <Act key={name} of={element} call={name} {...{ text, icon, title }} disabled={!usable.includes(name)} />;
        })}
      </div>
      <div class="ptynb-box ptynb-more-epochs">
        <NumberField label="More epochs" title="Number of epochs that Start runs." value={more} min={1} max={MOST_EPOCHS} onCommit={setMore} />
        <Act
          of={element} call="start" given={{ epochs: more }} text="Start" icon="fast-forward"
          title="Runs this number of epochs." disabled={!usable.includes("start")}
        />
      </div>
    </Section>
  );
}

/** Learning rates, and what is frozen.
 * @type {(given: Given) => VNode} */
export function Rates({ element }) {
  const { parts, usable } = element.use();
  const [asked, ask] = useAsked(element, "parts");
  const disabled = !usable.includes("change");
  const rateOf = (/** @type {string} */ part) => asked.get(part) ?? parts[part].rate;
  return (
    <Section>
      {["object", "probe"].map((part) => {
        const label = `${part === "object" ? "Object" : "Probe"} learning rate`;
        return (
          <NumberField
            key={part}
            label={label}
            title={`${label}; 0 freezes the ${part}. Takes effect on all engines at the same update.`}
            value={rateOf(part)}
            step={0.001}
            disabled={disabled}
            onCommit={(rate) => void (ask(part, parts[part].rate, rate) && element.call("set_rate", { part, rate }))}
          />
        );
      })}
      <Ticks>
        {Object.entries(parts).map(([part, { label }]) => (
          <Check
            key={part}
            label={`Freeze ${label}`}
            title={`Sets the learning rate of ${label} to 0 until this is cleared.`}
            checked={rateOf(part) === 0}
            disabled={disabled}
            onCommit={(on) => {
              if (on) ask(part, parts[part].rate, 0);
              element.call("freeze", { part, on });
            }}
          />
        ))}
      </Ticks>
    </Section>
  );
}

/** What the pictures show.
 * @type {(given: Given) => VNode} */
export function Choice({ element }) {
  const { panes, positions, cuts, flat, slices, slice, object_modes, object_mode, modes, modes_as } = element.use();
  const put = (/** @type {keyof LiveValues & string} */ name) => (/** @type {any} */ value) => element.put(name, value);
  const chosen = (/** @type {string} */ pane, /** @type {boolean} */ on) =>
    element.put("panes", PANES.filter((one) => (one === pane ? on : panes.includes(one))));
  return (
    <Section>
      <Ticks>
        {PANES.map((pane) => (
          <Check
            key={pane}
            label={pane[0].toUpperCase() + pane.slice(1)}
            title={`Shows the object: ${pane}`}
            checked={panes.includes(pane)}
            onCommit={(on) => chosen(pane, on)}
          />
        ))}
        <Check
          label="Positions"
          title="Shows positions over the object, with arrows to the refined ones"
          checked={positions}
          onCommit={put("positions")}
        />
        {slices > 1 && <Check label="Cuts" title={CUTS} checked={cuts} onCommit={put("cuts")} />}
        <Check label="Remove phase ramp" title="Shows phases without mean and linear ramp" checked={flat} onCommit={put("flat")} />
      </Ticks>
      {slices > 1 && (
        <NumberField
          label="Slice"
          title="Slice of a thick object; 0: the product of all slices."
          value={slice}
          min={0}
          max={slices}
          onCommit={put("slice")}
        />
      )}
      {object_modes > 1 && (
        <NumberField label="Object mode" title="Object mode that is shown." value={object_mode} min={1} max={object_modes} onCommit={put("object_mode")} />
      )}
      <NumberField label="Probe modes" title="Number of probe modes that are shown." value={modes} min={0} max={12} onCommit={put("modes")} />
      <Select
        label="Probe as"
        title="Complex: phase as hue, amplitude as brightness."
        options={["complex", "amplitude"]}
        value={modes_as}
        onCommit={put("modes_as")}
      />
    </Section>
  );
}

/** What is used rarely. axis: of the loss curve, the index of what it is over.
 * @type {(given: Given & { axis: number, onAxis: (axis: number) => void }) => VNode} */
export function More({ element, axis, onAxis }) {
  const { r_factor_every: every, usable } = element.use();
  const [shown, show] = useState("");
  const [asked, ask] = useAsked(element, "r_factor_every");
  const content = () => (
    <>
      <NumberField
        label="R-factor every [epochs]"
        title="Interval of the R-factor, which takes a pass over all patterns; 0: never."
        value={asked.get("every") ?? every}
        min={0}
        max={MOST_EPOCHS}
        disabled={!usable.includes("change")}
        onCommit={(value) => void (ask("every", every, value) && element.call("measure_r_factor", { every: value }))}
      />
      <Select label="Loss over" options={["epochs", "seconds"]} value={["epochs", "seconds"][axis]} onCommit={(over) => onAxis(over === "seconds" ? 1 : 0)} />
    </>
  );
  return <Drawer label="Rarely used controls" pages={[{ title: "More", icon: "ellipsis", content }]} shown={shown} onShow={show} />;
}
