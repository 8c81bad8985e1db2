"""`recommend`: settings for a scan, from statistics of its patterns and from short trials, as a recipe with reasons.

1. Statistics of the patterns decide what needs no trial: bad pixels, the batch, the loss for few counts; and what is
   wrong with the geometry (`geometry_fit`), which short reconstructions confirm.
2. Trials of object and probe alone, at several learning rates, end with the best fit, from which all later trials
   begin.
3. One trial for each effect that may be in the data (wrong positions, a beam of varying intensity or shape, background,
   partial coherence, descan, several slices), and one that continues without any of them.
4. The effects are added one after the other, the one that explains most first, while the fit improves by more than
   its additional parameters explain of noise.

An effect with k parameters lowers χ² by about k even if it is not in the data. χ² is 4 Σ (√I - √M)², whose expectation
for Poisson noise is the number of pixels; where the model does not describe the data so well, its excess over that
number scales the threshold, as in quasi-likelihood (McCullagh and Nelder, Generalized Linear Models, 9.2).
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptynb.analysis.scan_survey import Survey, survey
from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError, EnginesBusyError, PtynbError, ReconstructionError, SettingsError
from ptynb.preparation import find_bad_pixels, mask_pixels, select
from ptynb.preparation.recorded_steps import check_measured
from ptynb.session.reconstruction import Reconstruction, make_way
from ptynb.settings import Settings
from ptynb.settings.base_models import MOST_EPOCHS, flat, merge
from ptynb.settings.recipe import PrepareStep, Recipe, Stage
from ptynb.table import duration
from ptynb.tuning.effects import MARGIN, Candidate, Effect, Sizes, effects_of
from ptynb.tuning.geometry_fit import mended_geometry
from ptynb.tuning.recommendation import Recommendation, RecommendationTrial, RecommendedSetting
from ptynb.tuning.trial import cause_of
from ptynb.tuning.trial_progress import TrialProgress

DIVERGED = ("reconstruction.not-finite", "array.not-finite")
"""Codes of the errors of trials whose learning rates are too high."""
RATES = (0.01, 0.03, 0.1)
"""Learning rates of object and probe that are tried."""
WARM_UP_EPOCHS, TRIAL_EPOCHS = 30, 20
LEAST_EPOCHS = 8
"""Smallest number of epochs of a trial."""
PLANNED_EPOCHS = 600
"""Approximate number of epochs of all trials, counted with the time of an epoch without further effects."""
LEAST_PATTERNS = 64
"""Smallest number of patterns of the trials; a larger scan is reduced to its middle if time is short."""
LEAST_GAIN = 0.03
"""Part of the loss by which an effect must improve the fit: smaller gains come from faster convergence, too."""
SIGNIFICANCE = 3.0
"""Factor between the gain of an effect in χ² and that of as many parameters without meaning."""
FEW_COUNTS = 2.0
"""Counts per pixel below which the likelihood of counts is used."""
UPDATES = 12
"""Smallest number of updates in an epoch."""
FIRST_STAGE = 0.1
"""Part of the epochs with object and probe alone.

Object errors after 100 epochs with wrong positions: 0.0203 with 0.1, 0.0236 with 0.2, 0.0282 with 0.3; with positions,
intensities and background in the near field: 0.0129 with 0.05, 0.0111, 0.0114, 0.0126, and 0.0186 without this stage.
"""
RATE_WITH_OPR = 0.01
"""Learning rate of object and probe, and without a schedule, if the probe varies: its variations have to keep up.

Object errors of a beam that changes its shape after 100 epochs: 0.024, with a cosine 0.042, with 0.1 and a cosine, the
best for other scans, 0.076; with descan and OPR 0.017, 0.022 and 0.030.
"""
END_FACTOR = 0.05
"""Learning rates at the end of a run, relative to those at its beginning."""
LEAST_PROGRESS = 1e-3
"""Relative decrease of the loss, over a tenth of the epochs, below which the recommended run ends."""


@dataclass(frozen=True)
class _Outcome:
    """epoch_seconds: median over the epochs after the first. error: why there is no loss."""

    loss: float
    seconds: float
    scan: Scan | None = None
    epoch_seconds: float = math.nan
    error: PtynbError | None = None

    @property
    def note(self) -> str:
        """The error in a table of trials."""
        if self.error is None:
            return ""
        return "diverged" if self.error.code in DIVERGED else cause_of(self.error)

    def check(self) -> None:
        """Raise SettingsError if there is no loss, of a trial without which there is no recommendation."""
        if self.error is not None:
            raise SettingsError(
                f"The scan cannot be reconstructed with the default settings: {cause_of(self.error)}",
                code=self.error.code,
            ) from self.error


@dataclass
class _Engines:
    """Runs trials on the engines at hand: on a cluster several at once, one on each engine."""

    cluster: Cluster | None
    device: str
    progress: TrialProgress

    def run(self, scan: Scan, jobs: Sequence[tuple[Settings, int]], keep: bool = False) -> list[_Outcome]:
        """Return the outcome of each (settings, epochs). keep: with the scan that has the result as its guesses."""
        world = 1 if self.cluster is None else len(self.cluster)
        if len(jobs) == 1 or world == 1:
            return [self._run(scan, *job, None, keep) for job in jobs]
        ranks = list(range(world))

        def on_free_engine(job: tuple[Settings, int]) -> _Outcome:
            rank = ranks.pop()
            try:
                return self._run(scan, *job, (rank,), keep)
            finally:
                ranks.append(rank)

        with ThreadPoolExecutor(world, "ptynb recommend") as pool:
            return list(pool.map(on_free_engine, jobs))

    def _run(self, scan: Scan, settings: Settings, epochs: int, ranks: Sequence[int] | None, keep: bool) -> _Outcome:
        started = time.monotonic()
        self.progress.check()
        try:
            recon = Reconstruction(scan, settings, self.cluster, device=self.device, checkpointing=None, ranks=ranks)
            # Notices of a trial, such as a batch that is larger than an engine's share, are not the user's.
            recon.warns = False
            try:
                recon.start(epochs)
                with self.progress.trial(recon, epochs):
                    self.progress.wait(recon)
                loss = recon.epochs[-1].loss
                per_epoch = statistics.median([epoch.seconds for epoch in recon.epochs[1:] or recon.epochs])
                result = recon.result if keep else None
            finally:
                recon.close(result=False)
        except (SettingsError, ReconstructionError, ClusterError) as raised:
            # An engine may die while the result is taken, which is missing then.
            lost = raised.code == "reconstruction.no-result" and isinstance(raised.__cause__, ReconstructionError)
            error = raised.__cause__ if lost else raised
            assert isinstance(error, PtynbError)
            if error.code.startswith("engine.") and not isinstance(error, EnginesBusyError):
                raise ReconstructionError(f"A trial has failed: {cause_of(error)}", code=error.code) from error
            if not isinstance(error, SettingsError) and error.code not in (*DIVERGED, "memory.insufficient"):
                raise
            return _Outcome(math.inf, time.monotonic() - started, error=error)
        if result is None:
            return _Outcome(loss, time.monotonic() - started, epoch_seconds=per_epoch)
        object = result.object if result.object.ndim < 4 else result.object[0]
        warm = replace(scan, object=object, probe=result.probe, positions=result.positions, ground_truth=None)
        return _Outcome(loss, time.monotonic() - started, warm, epoch_seconds=per_epoch)


def recommend(
    scan: Scan,
    cluster: Cluster | None = None,
    *,
    epochs: int = 100,
    seconds: float = 120.0,
    device: str = "auto",
    report: Callable[[str], None] | None = None,
    progress: Callable[[float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Recommendation:
    """Recommend preparation and settings for a scan, from its patterns and from short trials on the engines at hand.

    Whether an effect is in the data (wrong positions, background, a beam that varies or is partially coherent, descan,
    several slices) is decided by trials that begin with the same object and probe: it is recommended if the fit
    improves by more than its additional parameters explain of noise. Before that, a mirrored or transposed detector and
    a rotated scan are put right by steps of preparation, and of electrons the pixel size, by the bright-field disc, and
    the probe, by the aberrations that `direct` finds, if short reconstructions fit better then.

    Use it as `recon = pt.Reconstruction(scan, pt.recommend(scan, cluster).recipe, cluster)`.

    Parameters
    ----------
    scan : Scan
        The scan.
    cluster : Cluster, optional
        Engines for the trials, several at the same time. None: this process, one after another.
    epochs : int, default 100
        Number of epochs of the recommended run.
    seconds : float, default 120
        Approximate time for the trials [s]. Large scans are reduced to their middle; what remains untried is noted.
    device : {"auto", "cpu", "cuda", "xpu"}, default "auto"
        Device of this process if there is no cluster.
    report : callable, optional
        Function called with each line about the progress.
    progress : callable, optional
        Function called with the completed fraction of the trials, from 0 to 1; it is an estimate, since results decide
        how many follow.
    cancelled : callable, optional
        Function without arguments that returns whether the trials are to end; called about once a second.

    Returns
    -------
    Recommendation
        The recipe, with a reason for each setting.

    Raises
    ------
    SettingsError
        If epochs or seconds is out of range (code "argument.invalid-value"), or the scan cannot be reconstructed with
        the default settings (code and message of the cause).
    EnginesBusyError
        If the engines are running a reconstruction.
    ReconstructionError
        If `cancelled` returned True ("tuning.cancelled"), or an engine has failed in a trial.
    ScanError
        If the scan is being measured ("scan.live").
    """
    if not 10 <= epochs <= MOST_EPOCHS:
        raise SettingsError(f"epochs is {epochs}; expected 10 to {MOST_EPOCHS}.", code="argument.invalid-value")
    if not seconds > 0:
        raise SettingsError(f"seconds is {seconds}; expected a positive time.", code="argument.invalid-value")
    check_measured(scan, "recommend")
    if cluster is not None:
        make_way(cluster)
    trials = TrialProgress(progress, cancelled)
    found = _Search(scan, _Engines(cluster, device, trials), epochs, seconds, report or (lambda line: None)).run()
    trials.end()
    return found


class _Search:
    """The search for settings: `run` once."""

    def __init__(
        self, scan: Scan, engines: _Engines, epochs: int, seconds: float, report: Callable[[str], None]
    ) -> None:
        self._whole, self._engines, self._epochs, self._seconds, self._report = scan, engines, epochs, seconds, report
        self._started = time.monotonic()
        self._choices: list[RecommendedSetting] = []
        self._notes: list[str] = []
        self._prepare: list[PrepareStep] = []
        self._trials: list[RecommendationTrial] = []

    def run(self) -> Recommendation:
        """Return the recommendation."""
        self._report("Reading patterns")
        seen = survey(self._whole, 256)
        scan = self._oriented(self._without_bad_pixels(self._whole, seen))
        base = self._from_statistics(scan, seen)
        scan, epoch_seconds = self._reduced(scan, base)
        shorter = min(1.0, self._seconds / max(1e-9, PLANNED_EPOCHS * epoch_seconds))
        warm_epochs, trial_epochs = (
            max(LEAST_EPOCHS, round(number * shorter)) for number in (WARM_UP_EPOCHS, TRIAL_EPOCHS)
        )
        effects = sum(len(effect.variants) for effect in effects_of(self._whole))
        # One more round with half of them, as usual; several at once still take their time.
        self._engines.progress.plan((len(RATES) + 1) * warm_epochs + (1.5 * effects + 1) * trial_epochs)
        base, warm = self._warm_up(scan, base, warm_epochs)
        chosen = self._effects(warm, base, trial_epochs, float(np.nanmean(seen.sums)))
        recipe = self._recipe(base, chosen)
        return Recommendation(
            scan=self._whole.name,
            recipe=recipe,
            choices=tuple(self._choices),
            trials=tuple(self._trials),
            patterns=len(scan),
            seconds=time.monotonic() - self._started,
            notes=tuple(self._notes),
        )

    def _without_bad_pixels(self, scan: Scan, seen: Survey) -> Scan:
        with contextlib.suppress(ValueError):
            good = find_bad_pixels(scan)
            before = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
            new = int((before & ~good).sum())
            if new:
                self._prepare.append(PrepareStep(function="mask_bad_pixels"))
                what = "pixel is" if new == 1 else "pixels are"
                self._choose(
                    "prepare", "mask_bad_pixels", f"{new} {what} far brighter or darker than the neighbours, or stuck"
                )
                return mask_pixels(scan, good)
        return scan

    def _oriented(self, scan: Scan) -> Scan:
        """Put the geometry right; what is wrong with it is found from the patterns, and by short reconstructions."""
        self._report("Geometry: orientation of the detector, pixel size, aberrations")

        def losses(scans: Sequence[Scan], settings: Settings, epochs: int) -> list[float]:
            first = self._engines.run(scans[0], [(settings, epochs)])[0]
            if len(scans) * first.seconds > self._seconds / 2:
                return [first.loss] + [math.nan] * (len(scans) - 1)
            return [first.loss, *(self._engines.run(one, [(settings, epochs)])[0].loss for one in scans[1:])]

        found = mended_geometry(scan, losses)
        self._prepare += found.steps
        self._notes += found.notes
        for names, reason in found.reasons:
            self._choose("prepare", names, reason)
        return found.scan

    def _from_statistics(self, scan: Scan, seen: Survey) -> dict[str, Any]:
        """Return settings that need no trial."""
        pixels = scan.pattern_shape[0] * scan.pattern_shape[1]
        counts = float(np.nanmean(seen.sums)) / pixels
        batch = max(1, min(16, len(scan) // UPDATES))
        base: dict[str, Any] = {"object": {"padding": MARGIN}}
        if batch != Settings().batch:
            base["batch"] = batch
            self._choose("batch", str(batch), f"{len(scan)} patterns: at least {UPDATES} updates an epoch")
        if counts < FEW_COUNTS:
            base |= {"loss": "poisson", "optimiser": "lbfgs"}
            base.pop("batch", None)
            self._choices = [choice for choice in self._choices if choice.name != "batch"]
            why = f"{counts:.2g} counts per pixel: the amplitude loss is biased below about {FEW_COUNTS:g}"
            self._choose("loss", "poisson", why)
            self._choose("optimiser", "lbfgs", "steps from all patterns do not fluctuate with the noise of a batch")
        if scan.motion is not None:
            base["fly_scan"] = {"steps": 4}
            self._choose("fly_scan.steps", "4", "the scan has the motion of the sample during the exposure")
        return base

    def _reduced(self, scan: Scan, base: Mapping[str, Any]) -> tuple[Scan, float]:
        """Return the scan of the trials, and the time of its epoch [s]."""
        self._report("Measuring the time of an epoch")
        part = self._middle(scan, max(LEAST_PATTERNS, len(scan) // 16)) if len(scan) > 16 * LEAST_PATTERNS else scan
        settings = Settings(**base)
        # The first epoch compiles and reads.
        [timed] = self._engines.run(part, [(settings, 6)])
        timed.check()
        epoch = timed.epoch_seconds * len(scan) / len(part)
        # On a cluster as many trials run at once as an epoch of one trial takes longer on its one engine.
        fraction = self._seconds / (PLANNED_EPOCHS * epoch)
        wanted = max(LEAST_PATTERNS, round(len(scan) * fraction))
        if wanted >= len(scan):
            return scan, epoch
        self._notes.append(
            f"Trials used {wanted} patterns of the middle of the scan: all {len(scan)} would take "
            f"{duration(PLANNED_EPOCHS * epoch)}, and {duration(self._seconds)} were given."
        )
        return self._middle(scan, wanted), epoch * wanted / len(scan)

    @staticmethod
    def _middle(scan: Scan, count: int) -> Scan:
        """Return the patterns nearest to the centre of the scan, in their order."""
        away = np.linalg.norm(scan.positions - np.median(scan.positions, 0), axis=1)
        return select(scan, np.sort(np.argsort(away, kind="stable")[:count]))

    def _warm_up(self, scan: Scan, base: dict[str, Any], epochs: int) -> tuple[dict[str, Any], Scan]:
        """Find the learning rate of object and probe; return the settings, and the scan with the best guesses."""
        full_steps = Settings(**base).optimiser == "lbfgs"
        variants = [base] if full_steps else [_with_rate(base, rate) for rate in RATES]
        if not full_steps:
            late = {"probe": {"start_epoch": max(2, epochs // 6)}}
            variants.append(merge(_with_rate(base, RATES[1]), late))
        self._report(f"Object and probe: {len(variants)} trials of {epochs} epochs")
        outcomes = self._engines.run(scan, [(_settings(one, epochs), epochs) for one in variants], keep=True)
        best = min(range(len(variants)), key=lambda index: outcomes[index].loss)
        outcomes[best].check()
        names = [
            "object and probe, before other effects" if full_steps else f"learning rates {rate:g} of object and probe"
            for rate in RATES[: len(variants)]
        ]
        names += ["the object alone first"] * (len(variants) - len(names))
        for index, (name, outcome) in enumerate(zip(names, outcomes, strict=True)):
            different = {} if full_steps else variants[index]
            self._trials.append(_trial(name, different, outcome, chosen=index == best))
        chosen = variants[best]
        if not full_steps:
            rate = chosen["object"]["learning_rate"]
            others = ", ".join(
                f"{outcome.loss:.3g} with {other:g}"
                for other, outcome in zip(RATES, outcomes, strict=False)
                if other != rate
            )
            if rate != Settings().object.learning_rate:
                self._choose(
                    "object.learning_rate, probe.learning_rate",
                    f"{rate:g}",
                    f"loss {outcomes[best].loss:.3g} after {epochs} epochs; {others}",
                )
            if "start_epoch" in chosen.get("probe", {}):
                chosen = merge(chosen, {"probe": {"start_epoch": max(2, self._epochs // 20)}})
                self._choose(
                    "probe.start_epoch",
                    str(chosen["probe"]["start_epoch"]),
                    "the object alone first: the loss was lower than with both from the beginning",
                )
        warm = outcomes[best].scan
        assert warm is not None
        return chosen, warm

    def _effects(
        self, scan: Scan, base: dict[str, Any], epochs: int, counts: float
    ) -> list[tuple[Effect, dict[str, Any]]]:
        """Return the effects that are in the data, with the settings that model them, the largest first."""
        present = dict(base)
        if "probe" in present:
            present["probe"] = {name: value for name, value in base["probe"].items() if name != "start_epoch"}
        sizes = Sizes(len(scan), math.prod(scan.pattern_shape), math.prod(_object_shape(scan)))
        # χ² of the amplitude loss; twice the negative logarithm of the likelihood for the Poisson loss.
        unit = (2 if base.get("loss") == "poisson" else 4) * counts * len(scan)
        pixels = sizes.patterns * sizes.window

        def significance(candidate: Candidate, before: float, after: float) -> float:
            """Gain in χ², relative to that of as many parameters without meaning."""
            if not math.isfinite(after):
                return 0.0
            excess = max(1.0, unit * after / pixels)
            return (
                unit
                * (before - after)
                / (SIGNIFICANCE * candidate.effect.parameters(candidate.changes, sizes) * excess)
            )

        def criterion(candidate: Candidate, after: float, least: float) -> float:
            """χ² and a penalty for parameters: of two effects that explain the same, the simpler one is chosen."""
            excess = max(1.0, unit * least / pixels)
            return unit * after / excess + SIGNIFICANCE * candidate.effect.parameters(candidate.changes, sizes)

        candidates = [Candidate(effect, changes) for effect in effects_of(self._whole) for changes in effect.variants]
        self._report(f"Effects in the data: {len(candidates) + 1} trials of {epochs} epochs")
        control, *outcomes = self._try(scan, present, [{}, *(one.changes for one in candidates)], epochs)
        control.check()
        self._trials.append(_trial("none of these effects", {}, control))
        loss, chosen = control.loss, list[tuple[Effect, dict[str, Any]]]()
        while True:
            with_names = f", with {' and '.join(effect.name for effect, _ in chosen)}" if chosen else ""
            first, accepted = len(self._trials), list[tuple[Candidate, float]]()
            for candidate, outcome in zip(candidates, outcomes, strict=True):
                weight = significance(candidate, loss, outcome.loss)
                name = f"{candidate.effect.name}{with_names}"
                self._trials.append(_trial(name, candidate.changes, outcome, weight))
                if weight > 1 and outcome.loss < (1 - LEAST_GAIN) * loss:
                    accepted.append((candidate, outcome.loss))
            if not accepted:
                return chosen
            least = min(after for _, after in accepted)
            best, best_loss = min(accepted, key=lambda one: criterion(one[0], one[1], least))
            index = first + candidates.index(best)
            self._trials[index] = replace(self._trials[index], chosen=True)
            reason = f"{best.effect.reason}: loss {best_loss:.3g} instead of {loss:.3g} in {epochs} epochs{with_names}"
            if "object" in best.changes:
                self._choices = [choice for choice in self._choices if not choice.name.startswith("object.learning_r")]
            for name, value in flat(best.changes):
                self._choose(name, value if isinstance(value, str) else f"{value:g}", reason)
            candidates = _next_candidates(candidates, [outcome.loss for outcome in outcomes], loss, best.effect)
            chosen.append((best.effect, best.changes))
            present, loss = merge(present, best.changes), best_loss
            if not candidates:
                return chosen
            if time.monotonic() - self._started > self._seconds:
                names = ", ".join(candidate.effect.name for candidate in candidates)
                self._notes.append(f"Not tried together with {best.effect.name}, for lack of time: {names}.")
                return chosen
            self._report(f"Together with {best.effect.name}: {len(candidates)} trials of {epochs} epochs")
            outcomes = self._try(scan, present, [candidate.changes for candidate in candidates], epochs)

    def _try(
        self, scan: Scan, present: dict[str, Any], changes: Sequence[dict[str, Any]], epochs: int
    ) -> list[_Outcome]:
        return self._engines.run(scan, [(_settings(merge(present, one), epochs), epochs) for one in changes])

    def _recipe(self, base: dict[str, Any], chosen: list[tuple[Effect, dict[str, Any]]]) -> Recipe:
        """Return the stages: object and probe first, then all effects, whose rates are 0 before."""
        changes: dict[str, Any] = {}
        for _, one in chosen:
            changes = merge(changes, one)
        # Before that, large steps may hold the loss up, which the decreasing ones of the schedule lower again.
        least = round(0.8 * self._epochs)
        stop = {"patience": max(5, self._epochs // 10), "tolerance": LEAST_PROGRESS, "min_epochs": least}
        schedule = _schedule(self._epochs)
        if "opr" in changes and "object" not in changes and Settings(**base).optimiser != "lbfgs":
            base, schedule = _with_rate(base, RATE_WITH_OPR), {}
            names = "object.learning_rate, probe.learning_rate"
            self._choices = [choice for choice in self._choices if choice.name != names]
            self._choose(names, f"{RATE_WITH_OPR:g}", "small and constant, so that the variations of the probe keep up")
        settings = merge(base, {**schedule, "stop": stop})
        if not changes:
            stages = [Stage(epochs=self._epochs, reason="No effect beside object and probe was found in the data.")]
            return Recipe(prepare=tuple(self._prepare), settings=Settings(**settings), stages=tuple(stages))
        first = max(2, round(FIRST_STAGE * self._epochs))
        # The structure of the model is that of the last stage from the beginning; only rates change.
        later = {name: part for name, part in changes.items() if _begins_later(name, part)}
        rates = {name: {"learning_rate": part["learning_rate"]} for name, part in later.items()}
        structure = {name: {**part, "learning_rate": 0.0} if name in later else part for name, part in changes.items()}
        settings = merge(settings, structure)
        names = ", ".join(effect.name for effect, _ in chosen)
        stages = [Stage(epochs=first, reason="Object and probe first: other parts move wrongly before they fit.")]
        if rates:
            stages.append(Stage(epochs=self._epochs - first, settings=rates, reason=f"Then also: {names}."))
        else:
            stages = [Stage(epochs=self._epochs, reason=f"With {names} from the beginning.")]
        return Recipe(prepare=tuple(self._prepare), settings=Settings(**settings), stages=tuple(stages))

    def _choose(self, name: str, value: str, reason: str) -> None:
        self._choices.append(RecommendedSetting(name, value, reason))


def _trial(
    effect: str, changes: dict[str, Any], outcome: _Outcome, significance: float = math.nan, chosen: bool = False
) -> RecommendationTrial:
    return RecommendationTrial(
        effect, dict(flat(changes)), outcome.loss, significance, outcome.seconds, chosen, outcome.note
    )


def _next_candidates(
    candidates: Sequence[Candidate], losses: Sequence[float], without: float, accepted: Effect
) -> list[Candidate]:
    """Return the best variant of each other effect that improved the fit at all."""
    best: dict[str, tuple[float, Candidate]] = {}
    for candidate, loss in zip(candidates, losses, strict=True):
        name = candidate.effect.name
        if name != accepted.name and loss < 0.99 * without and (name not in best or loss < best[name][0]):
            best[name] = loss, candidate
    return [candidate for _, candidate in best.values()]


def _begins_later(name: str, part: Any) -> bool:
    """Whether a part is optimised from the second stage on."""
    return name not in ("object", "probe") and isinstance(part, Mapping) and "learning_rate" in part


def _with_rate(base: dict[str, Any], rate: float) -> dict[str, Any]:
    return merge(base, {"object": {"learning_rate": rate}, "probe": {"learning_rate": rate}})


def _schedule(epochs: int) -> dict[str, Any]:
    return {"schedule": {"kind": "cosine", "epochs": epochs, "end_factor": END_FACTOR}}


def _settings(values: dict[str, Any], epochs: int) -> Settings:
    return Settings(**merge(values, _schedule(epochs)))


def _object_shape(scan: Scan) -> Iterable[int]:
    assert scan.object is not None
    return scan.object.shape[-2:]
