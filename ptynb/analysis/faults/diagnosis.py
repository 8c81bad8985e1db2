"""Diagnosis of a reconstruction: which known faults it shows, where, how sure that is, and what helps.

`Finding` is a fault with its measure and its remedy, `Diagnosis` all of them with the measures that are as they should
be. The measures are in `ptynb.analysis.faults.fault_measures`; this file has thresholds and remedies. `ptynb.diagnose`
adds the modelled patterns, and trials of the remedies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.bad_pixels import find_bad_pixels
from ptynb.analysis.faults import fault_measures as measures
from ptynb.analysis.faults.fault_measures import FaultMeasure, Mask, Residuals
from ptynb.analysis.position_refinement import position_refinement
from ptynb.data.geometry import Geometry
from ptynb.data.record import CONVERGED, LateProgress, last_tenth
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.preparation.rotation_fit import FALSE_ALARM, ScanRotation, rotation_if_known
from ptynb.settings import Settings
from ptynb.settings.constraints import RemoveGridArtifacts, RemovePhaseRamp
from ptynb.settings.presets import RATE_OF_SLICES, SLICE_DISTANCES
from ptynb.settings.recipe import Recipe
from ptynb.settings.settings import PROJECTIONS
from ptynb.table import Table, Tabular
from ptynb.text import counted

Plane = Literal["object", "probe", "detector", "positions", "loss"]


@dataclass(frozen=True)
class Criterion:
    """When a measure is a fault.

    remedy: its explanation and remedy, from the measured value. measure: what is measured, with its unit. threshold:
    the value above which it is a fault. plane: what it is seen in. good: number of good reconstructions with this
    measure, none of which exceeds the threshold. chance: probability of a false alarm, if one does (k of n:
    (k + 1) / (n + 2)), or if it is known by itself.
    """

    remedy: Callable[[_Case, FaultMeasure], _Remedy]
    measure: str
    threshold: float
    plane: Plane
    good: int
    chance: float | None = None

    @property
    def false_alarm(self) -> float:
        """Probability of a false alarm; after none of n the mean of its posterior, 1 / (n + 2) (Laplace)."""
        return 1 / (self.good + 2) if self.chance is None else self.chance


GRID = "raster grid pathology"
MOTION = "motion in the probe modes"
EMPTY_MODES = "superfluous probe modes"
OBJECT_IN_MODES = "object in the probe modes"
ORIENTATION = "rotated or transposed patterns"
POSITIONS = "wrong positions"
OUTLIERS = "outlying patterns"
DRIFT = "drift of the positions"
MANY_SLICES = "too many slices"
FEW_SLICES = "too few slices"
VORTICES = "phase vortices"
RAMP = "phase ramp"
CLIPPED_PROBE = "clipped probe"
CLIPPED_PATTERNS = "clipped patterns"
BAD_PIXELS = "bad pixels"
SATURATED = "saturated pixels"
NOT_CONVERGED = "not converged"
DIVERGING = "diverging"
OSCILLATING = "oscillating"
FEW_COUNTS = "bias by few counts"

UNSETTLED = (NOT_CONVERGED, DIVERGING, OSCILLATING)
"""Faults with which the loss has not settled."""
WHEN_SETTLED = (POSITIONS, OUTLIERS, MOTION, FEW_SLICES, VORTICES, CLIPPED_PROBE, CLIPPED_PATTERNS)
"""Faults that are judged once the loss has settled: what an unfinished run has not fitted yet exceeds their thresholds.

So do bad pixels that the patterns alone do not show. In runs of 3 to 60 epochs of simulated scans without a fault, too
few slices were up to 0.15, wrong positions 0.51, motion in the modes 0.51, bad pixels 50, the clipped probe 0.24, the
clipped patterns 0.33, and phase vortices 4.8.
"""
RATES_LEFT = 0.3
"""Part of the fall of the learning rates that may be left: with more of it, steps keep the residuals up.

With a learning rate of 0.3, too few slices were 0.046 after 20 of 100 epochs, although the loss fell no more, and
below 0.003 at the end.
"""
FEW = 3.0
"""Mean counts of a pixel below which missing ones are those of the loss."""
NUMERICAL = {"optimiser": "adam", "momentum": 0.0}
"""Optimiser that updates all parts, for remedies that another one does not support."""


@dataclass(frozen=True)
class Confirmation:
    """What a trial of a remedy showed.

    epochs: of the trial, and of the one without the remedy. value_without, value_with: the finding's measure after
    these epochs, without and with the remedy; None: it does not apply any more. r_factor_without, r_factor_with:
    amplitude R-factors after them. improved: whether the remedy helps.
    """

    epochs: int
    value_without: float | None
    value_with: float | None
    r_factor_without: float
    r_factor_with: float
    improved: bool

    def __str__(self) -> str:
        now, then = ("not applicable" if one is None else f"{one:.3g}" for one in (self.value_with, self.value_without))
        return (
            f"{'helps' if self.improved else 'does not help'}: after {self.epochs} epochs the measure is {now} instead "
            f"of {then}, the R-factor {self.r_factor_with:.4f} instead of {self.r_factor_without:.4f}"
        )


@dataclass(frozen=True, eq=False)
class Finding:
    """A fault of a reconstruction.

    Parameters
    ----------
    name : str
        Name of the fault, such as "raster grid pathology".
    measure : str
        What was measured, with its unit.
    value : float
        Its value.
    threshold : float
        Value above which it is a fault.
    false_alarm : float
        Probability that a good reconstruction exceeds the threshold.
    plane : {"object", "probe", "detector", "positions", "loss"}
        What it is seen in.
    explanation : str
        What the numbers say, and what usually causes them.
    where : ndarray of bool, optional
        Mask (y, x) of the place, in pixels of the result's object, of its probe, or of the detector.
    patterns : ndarray of int64, optional
        Indices of the patterns in which it is seen.
    changes : dict
        Remedy: new settings by dotted name, for `Settings.with_values`.
    prepare : tuple
        Remedy: steps of preparation as plain values, for `Recipe` and `ptynb.prepare`.
    epochs : int
        Remedy: further epochs; 0: none.
    restart : bool
        Whether the remedy requires a reconstruction from the beginning.
    confirmation : Confirmation, optional
        What a trial of the remedy showed; None: not tried.
    """

    name: str
    measure: str
    value: float
    threshold: float
    false_alarm: float
    plane: Plane
    explanation: str
    where: Mask | None = None
    patterns: NDArray[np.int64] | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    prepare: tuple[Any, ...] = ()
    epochs: int = 0
    restart: bool = False
    confirmation: Confirmation | None = None

    @property
    def has_remedy(self) -> bool:
        """Whether settings, preparation, or more epochs may help."""
        return bool(self.changes or self.prepare or self.epochs)

    @property
    def remedy(self) -> str:
        """The remedy as text."""
        parts = [f"{name} = {value!r}" for name, value in self.changes.items()]
        parts += [_step_text(step) for step in self.prepare]
        parts += [f"{self.epochs} more epochs"] if self.epochs else []
        if not parts:
            return "none by settings: see the explanation"
        return f"{'; '.join(parts)}{' (from the beginning)' if self.restart else ''}"

    def recipe(self, settings: Settings) -> Recipe:
        """Return a recipe with the remedy.

        Parameters
        ----------
        settings : Settings
            Settings of the reconstruction that has the fault.

        Returns
        -------
        Recipe
            Preparation and settings, for `Reconstruction`.
        """
        return Recipe(prepare=self.prepare, settings=settings.with_values(self.changes))

    def __repr__(self) -> str:
        return f"<Finding: {self.name}, {self.measure} {self.value:.3g} (above {self.threshold:.3g})>"


def _step_text(step: Any) -> str:
    """Return a step of preparation as text, without long arrays."""
    if isinstance(step, str):
        return step
    [(name, arguments)] = step.items()
    long = {key for key, value in arguments.items() if isinstance(value, list) and len(value) > 2}
    shown = (f"{key}={'[...]' if key in long else repr(value)}" for key, value in arguments.items())
    return f"{name}({', '.join(shown)})"


@dataclass(frozen=True, eq=False)
class Diagnosis(Tabular):
    """Faults that were found in a reconstruction.

    Parameters
    ----------
    findings : tuple of Finding
        The faults, the clearest first.
    values : dict of float
        All measures by the name of the fault, also those below their threshold.
    notes : tuple of str
        What was not examined, and why.
    pattern : ndarray, optional
        Mean measured pattern (y, x), centred [counts], in whose pixels faults on the detector are marked.
    deferred : tuple of str
        Names of faults that are judged once the loss has settled, whatever their values are.
    """

    findings: tuple[Finding, ...]
    values: dict[str, float]
    notes: tuple[str, ...] = ()
    pattern: NDArray[np.float64] | None = None
    deferred: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How many faults were found, as a sentence."""
        count, judged = len(self.findings), len(self.values) - len(self.deferred)
        return f"{count or 'None'} of {judged} known faults {'were' if count > 1 else 'was'} found."

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __contains__(self, name: object) -> bool:
        return any(one.name == name for one in self.findings)

    def __getitem__(self, name: str) -> Finding:
        for one in self.findings:
            if one.name == name:
                return one
        raise KeyError(name)

    def table(self) -> Table:
        """Return the findings as a table.

        Returns
        -------
        Table
            One row per finding.
        """
        rows = tuple(
            (one.name, one.measure, f"{one.value:.3g}", f"{one.threshold:.3g}", f"{one.false_alarm:.1%}", one.remedy)
            for one in self.findings
        )
        lines = [self.summary, *(f"{one.name}: {one.explanation}" for one in self.findings), *self.notes]
        lines += [f"{one.name}: the remedy {one.confirmation}." for one in self.findings if one.confirmation]
        return Table(
            ("fault", "measure", "value", "threshold", "false alarms", "remedy"), rows, "\n".join(lines), left=(0, 1, 5)
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON, without masks.

        Returns
        -------
        dict
            The attributes.
        """
        left_out = ("where", "patterns", "confirmation")
        found = [{name: value for name, value in vars(one).items() if name not in left_out} for one in self.findings]
        for plain, one in zip(found, self.findings, strict=True):
            plain["patterns"] = None if one.patterns is None else one.patterns.tolist()
            plain["confirmation"] = None if one.confirmation is None else vars(one.confirmation)
        return {
            "findings": found,
            "values": self.values,
            "notes": list(self.notes),
            "deferred": list(self.deferred),
        }


def helps(finding: Finding, before: float, after: float | None, r_before: float, r_after: float) -> bool:
    """Return whether a remedy has helped, from the measure and the R-factor without and with it.

    after: None if the measure does not apply any more. Missing counts are judged by themselves: the loss that causes
    them fits amplitudes, and so the R-factor, best.
    """
    fell = after is not None and before > finding.threshold and after < max(finding.threshold, 0.8 * before)
    if finding.name == FEW_COUNTS:
        return fell
    if finding.name in (MANY_SLICES, EMPTY_MODES):  # the simpler model is the better one if it fits as well
        return r_after <= 1.02 * r_before
    return r_after < 0.97 * r_before or (fell and r_after <= 1.02 * r_before)


@dataclass(frozen=True)
class _Remedy:
    """Explanation and remedy of a finding, as its fields."""

    explanation: str
    changes: dict[str, Any] = field(default_factory=dict)
    prepare: tuple[Any, ...] = ()
    epochs: int = 0
    restart: bool = False


class _Case:
    """A result with its scan and residuals: measures, and the remedies of those that are faults."""

    def __init__(self, result: Result, scan: Scan | None, seen: Residuals | None) -> None:
        self.result, self.scan, self.seen = result, scan, seen
        self.settings = Settings(**result.settings) if result.settings else Settings()
        self.part, self.corner = measures.middle_of(result)
        self.lit = measures.lit_area(self.part)
        self.found: dict[str, FaultMeasure] = {}
        self.notes: list[str] = []
        self.deferred: tuple[str, ...] = ()
        self.rotation: ScanRotation

    def measure(self) -> None:
        """Take all measures that apply."""
        result, found = self.result, self.found
        if self.lit.any():
            self._measure_object()
        if self.part is not result:
            self.notes.append("Of the object, the middle was examined.")
        if len(result.probe) > 1:
            found[EMPTY_MODES] = measures.empty_modes(result)
        if result.scan.is_far_field:
            found[CLIPPED_PROBE] = measures.clipped_probe(result)
        moved = position_refinement(result)
        if "positions/start" in result.parameters and len(moved.measured) > 2:
            found[DRIFT] = measures.drift(moved)
        losses = result.losses
        if len(losses) >= FEWEST_EPOCHS and (losses > 0).all() and self.settings.optimiser not in PROJECTIONS:
            found[NOT_CONVERGED] = measures.progressing(result, self._rates)
            found[DIVERGING] = measures.rising(losses)
            found[OSCILLATING] = measures.oscillating(losses)
        unsettled = self._unsettled()
        if self.seen is not None:
            self._measure_patterns(self.seen, unsettled is None)
        if unsettled is not None:
            self.deferred = tuple(name for name in WHEN_SETTLED if name in found)
            what = [*self.deferred, *(["bad pixels that only the model shows"] if BAD_PIXELS in found else [])]
            self.notes.append(f"{unsettled}. Judged once it has converged: {', '.join(what) or 'nothing'}.")

    def _unsettled(self) -> str | None:
        """Return why the residuals may be those of an unfinished run; None: they are not, or nothing is known of it."""
        losses, found = self.result.losses, self.found
        if 0 < len(losses) < FEWEST_EPOCHS:
            return f"The run has {counted(len(losses), 'epoch')}"
        wrong = [name for name in UNSETTLED if name in found and found[name].value > CRITERIA[name].threshold]
        if wrong:
            return f"The run is {' and '.join(wrong)}"
        end = self.settings.schedule.end_factor
        if len(losses) and self._rates[-1] < 1 and self._rates[-1] - end > RATES_LEFT * (1 - end):
            return f"The learning rates are still {self._rates[-1]:.0%} of the first ones, and fall until the run ends"
        return None

    @cached_property
    def _rates(self) -> NDArray[np.float64]:
        """Factors of the learning rates in the completed epochs; 1 without a record of the run."""
        result, schedule = self.result, self.settings.schedule
        run = (result.runs[-1].first, result.runs[-1].last) if result.runs else (0, 0)
        live = 0 if result.admissions is None else result.admissions.epochs
        if not result.runs and schedule.epochs is None:
            return np.ones(len(result.epochs))
        return np.array([schedule.factor(number - live, run) for number in range(1, len(result.epochs) + 1)])

    def _measure_object(self) -> None:
        part, lit = self.part, self.lit
        taken = {
            GRID: measures.scan_lattice(part, lit),
            VORTICES: measures.lone_vortices(part, lit),
            RAMP: measures.phase_ramp(part, lit),
        }
        if 1 < len(part.probe) <= MOST_MODES and max(part.probe.shape) <= MOST_PROBE:
            taken[OBJECT_IN_MODES] = measures.object_in_modes(part, lit)
        if len(part.slices) > 1:
            taken[MANY_SLICES] = measures.similar_slices(part, lit)
        for name, one in taken.items():
            where = one.where
            if where is not None and part is not self.result:
                where = np.zeros(self.result.object.shape[-2:], bool)
                y, x = (slice(at, at + side) for at, side in zip(self.corner, lit.shape, strict=True))
                where[y, x] = one.where
            self.found[name] = replace(one, where=where)

    def _measure_patterns(self, seen: Residuals, settled: bool) -> None:
        assert self.scan is not None
        found = self.found
        steps = measures.position_steps(seen)
        clipped = CLIPPED_PROBE in found and found[CLIPPED_PROBE].value > CRITERIA[CLIPPED_PROBE].threshold
        if len(self.result.slices) == 1 and isinstance(self.scan.geometry, Geometry) and not clipped:
            found[FEW_SLICES] = depth = measures.depth_steps(seen, steps.detail["gain"])
            if depth.value > CRITERIA[FEW_SLICES].threshold:
                steps = replace(steps, value=0.0)  # features at other depths move, too
        found[POSITIONS] = steps
        found[OUTLIERS] = measures.outlying_patterns(seen)
        if len(self.result.probe) > 1:
            found[MOTION] = measures.motion_in_modes(self.result, steps.value)
        if self.scan.is_far_field:
            found[CLIPPED_PATTERNS] = measures.clipped_patterns(seen)
        known = ~find_bad_pixels(self.scan).mask & (True if self.scan.mask is None else self.scan.mask)
        if self.scan.is_far_field and not self.scan.centred:
            known = np.fft.fftshift(known)
        found[BAD_PIXELS] = bad = measures.bad_pixels(seen, known)
        if not settled and bad.where is not None:
            shown = bad.where & known
            found[BAD_PIXELS] = FaultMeasure(float(shown.sum()), shown, detail={"unknown": 0.0})
        saturated = measures.saturation(seen)
        level = self.settings.detector.saturation
        if level is None or level > saturated.detail["top"]:
            found[SATURATED] = saturated
        counts = measures.missing_counts(seen)
        if counts.detail["counts"] < FEW:
            found[FEW_COUNTS] = counts
        rotation = rotation_if_known(self.scan)
        if rotation is not None:
            self.rotation = rotation
            found[ORIENTATION] = FaultMeasure(rotation.curl_before if rotation.needed else 0.0)

    def finding(self, name: str) -> Finding:
        """Return the finding of a measure that is above its threshold."""
        found, criterion = self.found[name], CRITERIA[name]
        remedy = criterion.remedy(self, found)
        values = {one.name: getattr(remedy, one.name) for one in fields(remedy)}
        return Finding(
            name=name,
            measure=criterion.measure,
            value=found.value,
            threshold=criterion.threshold,
            false_alarm=criterion.false_alarm,
            plane=criterion.plane,
            where=found.where,
            patterns=found.patterns,
            **{**values, "changes": self._supported(remedy.changes)},
        )

    def _supported(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the changes, with another optimiser if the present one does not support them."""
        try:
            self.settings.with_values(changes)
        except SettingsError:
            changes = {**changes, **NUMERICAL}
            self.settings.with_values(changes)
        return changes

    def grid(self, found: FaultMeasure) -> _Remedy:
        steps = found.detail
        notches = RemoveGridArtifacts(period_y=steps["period_y"], period_x=steps["period_x"])
        return _Remedy(
            f"The object varies with the periods of the scan, {steps['period_y']:.1f} and {steps['period_x']:.1f} "
            "pixels along y and x, more than around these frequencies. On a raster, object and probe can exchange such "
            "a pattern. Scan on a spiral or a jittered raster next time.",
            {"constraints": self._constraints(notches)},
            restart=True,
        )

    def vortices(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            f"Phase vortices without a partner within {measures.LONE} pixels: {found.detail['count']:.0f}, which the "
            "iterations could not remove. An object of amplitude and phase has none. If it has steps of more than π, "
            "vortices may be real.",
            {"object.parametrization": "amplitude_phase", **NUMERICAL},
            restart=True,
        )

    def ramp(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            f"The phase has a linear ramp of {found.value:.2g} turns over the object, and the probe the opposite one, "
            "as of an initial probe or patterns that are off centre.",
            {"constraints": self._constraints(RemovePhaseRamp())},
        )

    def empty_modes(self, found: FaultMeasure) -> _Remedy:
        used = max(1, round(found.detail["used"]))
        return _Remedy(
            f"{found.value:.0f} of {len(self.result.probe)} orthogonal modes have {found.detail['share']:.2%} of the "
            "power together: they fit noise.",
            {"probe.modes": used},
            restart=True,
        )

    def object_in_modes(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            f"Mode {found.detail['mode']:.0f} over the first one repeats the marked part of the object: the modes "
            "describe what the object should, as if it had moved or been too weak at first.",
            {"probe.modes": 1},
            restart=True,
        )

    def motion(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            f"The modes beyond the first describe a probe that moves by {found.detail['motion']:.2g} pixels, and "
            "single patterns ask for other positions: the modes stand in for wrong positions.",
            {"probe.modes": 1, "positions.learning_rate": self._rate_of_positions},
            restart=True,
        )

    def many_slices(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            "Neighbouring slices are equal: the data do not tell them apart, and the object is thinner than they are.",
            {"slices.count": max(1, round(found.detail["different"]))},
            restart=True,
        )

    def clipped_probe(self, found: FaultMeasure) -> _Remedy:
        factor = min(8, 2 * self.settings.detector.oversampling)
        return _Remedy(
            "The probe is wider than its window, which the detector's pixels determine: its outer parts enter at the "
            "other side. A finer sampling of the model makes the window larger.",
            {"detector.oversampling": factor, **NUMERICAL},
            restart=True,
        )

    def drift(self, found: FaultMeasure) -> _Remedy:
        limit = self.settings.positions.max_shift
        text = (
            f"Positions were refined by {found.detail['rms']:.2g} pixels, most of it smoothly in time: the stage or "
            "the sample drifts."
        )
        if found.detail["largest"] >= 0.95 * limit:
            return _Remedy(
                f"{text} Some moves are at the limit of {limit:g} pixels.", {"positions.max_shift": 2 * limit}
            )
        return _Remedy(f"{text} The refinement follows it; more epochs let it settle.", epochs=self._as_long)

    def not_converged(self, found: FaultMeasure) -> _Remedy:
        epochs, rates = len(self.result.epochs), found.detail["rates"]
        progress = LateProgress(found.detail["loss"], found.detail["phase"])
        small = (
            f"the loss fell by {progress.loss:.1%} in the last {last_tenth(epochs)} epochs, with {rates:.0%} of the "
            "learning rates at the beginning"
        )
        return _Remedy(f"At the end, {progress.text(epochs) or small}.", epochs=self._as_long)

    def diverging(self, found: FaultMeasure) -> _Remedy:
        return _Remedy("The loss rises: steps are too long.", self._slower(0.1), restart=True)

    def oscillating(self, found: FaultMeasure) -> _Remedy:
        return _Remedy("The loss jumps from epoch to epoch: steps are too long, or batches small.", self._slower(0.3))

    def positions(self, found: FaultMeasure) -> _Remedy:
        smooth = found.detail["smooth"] > 0.4
        kind = "They change smoothly in time: a drift." if smooth else "They differ from pattern to pattern."
        refined = self.settings.positions.learning_rate > 0
        text = f"Single patterns fit better {found.value:.2g} pixels away from their positions. {kind}"
        if refined:
            return _Remedy(f"{text} Their refinement has not ended.", epochs=self._as_long)
        return _Remedy(text, {"positions.learning_rate": self._rate_of_positions})

    def outliers(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            f"{found.value:.0f} of {len(self.seen.indices) if self.seen else 0} patterns that were examined fit far "
            "worse than the others: their positions are wrong by pixels, or the patterns are damaged "
            "(pt.analysis.find_suspicious). A search finds such positions.",
            {"positions.learning_rate": self._rate_of_positions, "positions.search_trials": 12},
        )

    def few_slices(self, found: FaultMeasure) -> _Remedy:
        result, geometry = self.result, self.scan.geometry if self.scan is not None else None
        text = "Patterns ask for another defocus each: parts of the object lie at different depths."
        if result.pixel_size is None or geometry is None:
            return _Remedy(text)
        depth = SLICE_DISTANCES[0] * result.pixel_size[0] * result.pixel_size[1] / geometry.wavelength
        slices = {"slices.count": 2, "slices.thickness": float(f"{depth:.3g}"), "slices.learning_rate": 0.005}
        rates = {"object.learning_rate": RATE_OF_SLICES, "probe.learning_rate": RATE_OF_SLICES}
        return _Remedy(text, {**slices, **rates, **NUMERICAL}, restart=True)

    def clipped_patterns(self, found: FaultMeasure) -> _Remedy:
        window = [int(2 * round(0.75 * side)) for side in self.result.scan.pattern_shape]
        return _Remedy(
            "Scattering reaches the detector's edge, and the model does not fit it there. Unmeasured pixels around "
            "let the model scatter beyond the edge, with smaller object pixels.",
            prepare=({"pad": {"window": window}},),
            restart=True,
        )

    def bad_pixels(self, found: FaultMeasure) -> _Remedy:
        assert self.scan is not None
        assert found.where is not None
        bad = found.where if self.scan.centred or not self.scan.is_far_field else np.fft.ifftshift(found.where)
        pixels = counted(round(found.value), "pixel")
        text = f"Far from their neighbours or the model, in the same way in all patterns: {pixels}."
        if not found.detail["unknown"]:
            return _Remedy(text, prepare=("mask_bad_pixels",), restart=True)
        return _Remedy(text, prepare=({"mask_pixels": {"mask": (~bad).tolist()}},), restart=True)

    def saturation(self, found: FaultMeasure) -> _Remedy:
        top = found.detail["top"]
        return _Remedy(
            f"Several pixels have the same largest count, {top:.6g}, in {found.value:.0%} of the patterns: the "
            "detector or its file ends there.",
            {"detector.saturation": top, **NUMERICAL},
        )

    def few_counts(self, found: FaultMeasure) -> _Remedy:
        return _Remedy(
            f"The model has {found.value:.1%} fewer counts than the patterns, of which a pixel has "
            f"{found.detail['counts']:.2g}: the loss of amplitudes is biased there, and the phase of a weak object too "
            "small.",
            {"loss": "poisson", "optimiser": "lbfgs", "momentum": 0.0},
            restart=True,
        )

    def orientation(self, found: FaultMeasure) -> _Remedy:
        steps = tuple(step.model_dump() for step in self.rotation.steps)
        return _Remedy(
            f"The centres of mass of the patterns are the gradient of a phase only if {self.rotation}. Another half "
            "turn fits equally, with the opposite phase (the twin image).",
            prepare=steps,
            restart=True,
        )

    @property
    def _rate_of_positions(self) -> float:
        """Learning rate of positions; with LSQML the factor of a least-squares step."""
        return 0.5 if self.settings.optimiser == "lsqml" else 0.1

    @property
    def _as_long(self) -> int:
        return max(len(self.result.epochs), 10)

    def _slower(self, factor: float) -> dict[str, Any]:
        rates = {f"{part}.learning_rate": getattr(self.settings, part).learning_rate for part in ("object", "probe")}
        return {name: float(f"{factor * rate:.3g}") for name, rate in rates.items()}

    def _constraints(self, added: Any) -> list[dict[str, Any]]:
        present = [one for one in self.settings.constraints if one.kind != added.kind]
        return [one.model_dump(mode="json", exclude_defaults=True) | {"kind": one.kind} for one in (*present, added)]


MOST_MODES, MOST_PROBE = 8, 256
"""Modes, and side of their window, that are compared with the object: 2 s for 8 modes."""
FEWEST_EPOCHS = 7
"""Smallest number of epochs whose losses say how a run goes on."""


CRITERIA: dict[str, Criterion] = {
    GRID: Criterion(_Case.grid, "part of the object's variation with the periods of the scan", 0.155, "object", 30),
    MOTION: Criterion(_Case.motion, "motion in the modes that positions lack [object pixels]", 0.15, "probe", 1),
    EMPTY_MODES: Criterion(_Case.empty_modes, "modes with less than 1% of the power", 0.5, "probe", 1),
    OBJECT_IN_MODES: Criterion(
        _Case.object_in_modes,
        "correlation of a mode's ratio to the first with the object, over chance",
        1.3,
        "object",
        1,
    ),
    ORIENTATION: Criterion(
        _Case.orientation,
        "curl of the centres of mass [part of their variation]",
        0.0,
        "positions",
        4,
        chance=FALSE_ALARM,
    ),
    POSITIONS: Criterion(_Case.positions, "step that single patterns ask for [object pixels]", 0.15, "positions", 30),
    OUTLIERS: Criterion(_Case.outliers, "patterns with 10 times the residuals of others", 0.5, "positions", 30),
    DRIFT: Criterion(_Case.drift, "smooth part of the refined moves [object pixels]", 0.5, "positions", 1),
    MANY_SLICES: Criterion(_Case.many_slices, "correlation of neighbouring slices", 0.9, "object", 1),
    FEW_SLICES: Criterion(_Case.few_slices, "residuals explained by defocus of single patterns", 0.007, "object", 26),
    VORTICES: Criterion(_Case.vortices, "lone vortices per 10,000 pixels", 1.6, "object", 30),
    RAMP: Criterion(_Case.ramp, "phase ramp over the object [turns]", 2.0, "object", 30),
    CLIPPED_PROBE: Criterion(_Case.clipped_probe, "intensity at the window's edge [mean]", 0.15, "probe", 27),
    CLIPPED_PATTERNS: Criterion(
        _Case.clipped_patterns, "counts at the detector's edge that do not fit [mean]", 0.02, "detector", 27
    ),
    BAD_PIXELS: Criterion(
        _Case.bad_pixels,
        "pixels unlike their neighbours or the model in all patterns",
        0.5,
        "detector",
        30,
        chance=2 / 32,
    ),
    SATURATED: Criterion(
        _Case.saturation, "patterns with several pixels at the largest count [part]", 0.05, "detector", 30
    ),
    NOT_CONVERGED: Criterion(
        _Case.not_converged,
        "fall of the loss, over the root of the learning rates, or growth of the phase at the end",
        CONVERGED,
        "loss",
        22,
    ),
    DIVERGING: Criterion(_Case.diverging, "rise of the loss above its minimum", 0.1, "loss", 28),
    OSCILLATING: Criterion(_Case.oscillating, "scatter of the loss from epoch to epoch", 0.05, "loss", 28),
    FEW_COUNTS: Criterion(_Case.few_counts, "missing counts of the model [part]", 0.02, "detector", 1),
}
"""Thresholds lie above all values of good reconstructions; `tests/benchmarks/RESULTS.md` lists both."""


def findings_of(result: Result, scan: Scan | None = None, seen: Residuals | None = None) -> Diagnosis:
    """Return the faults of a result, the clearest first.

    scan: the prepared scan; seen: its residuals. Without them only object, probe, positions and losses are examined.

    Raises InvalidValueError if the result is not finite, or of several scans.
    """
    if "scans" in result.scan.combination:
        raise InvalidValueError(
            "The result is of several scans together; expected that of one: diagnose each part of result.split() with "
            "its scan.",
            code="argument.invalid-value",
        )
    if not all(np.isfinite(one).all() for one in (result.object, result.probe, result.positions)) or not (
        result.probe.any() and result.object.any()
    ):
        raise InvalidValueError(
            "The result has values that are not finite, or is 0 everywhere: the run has diverged. Reconstruct with "
            "lower learning rates.",
            code="array.not-finite",
        )
    case = _Case(result, scan, seen)
    case.measure()
    values = {name: case.found[name].value for name in CRITERIA if name in case.found}
    wrong = [name for name, value in values.items() if value > CRITERIA[name].threshold and name not in case.deferred]
    wrong.sort(key=lambda name: -values[name] / max(CRITERIA[name].threshold, 1e-9))
    if seen is None:
        case.notes.append("Without the scan, patterns, positions and orientation were not examined.")
    return Diagnosis(
        findings=tuple(case.finding(name) for name in wrong),
        values=values,
        notes=tuple(case.notes),
        pattern=None if seen is None else seen.measured.mean(0, dtype=np.float64),
        deferred=case.deferred,
    )
