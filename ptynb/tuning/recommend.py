"""`recommend`: settings for a scan, from statistics of its patterns and from short trials, as a recipe with reasons.

1. Statistics of the patterns decide what needs no trial: bad pixels, the batch, the loss for few counts; and what is
   wrong with the geometry (`geometry_fit`), which short reconstructions confirm.
2. Trials of object and probe alone, with several learning rates. The best one is continued until it has converged:
   until its misfit falls by less than `SETTLED` in a further trial, the control. If it is at the level of the noise
   then, there is nothing that an effect could explain. Pixels that differ from their neighbours are masked in all
   trials; they are no defects if the control predicts their counts.
3. One trial for each effect that may be in the data (wrong positions, a beam of varying intensity or shape, background,
   partial coherence, descan, several slices), which begin and end as the control does.
4. The effects are added one after the other, the one that explains most first, while they predict counts better that
   were held out from all trials (`evidence`): by `SIGMAS` standard errors, by a tenth of the misfit, and by more than
   object and probe still gain by further epochs.
5. Together they have to explain most of the misfit, or lower it from above the noise to below it. A fit
   that is wrong in another way (an object that has not been found, an effect that was not tried) is also improved by
   parameters that only are flexible, but not to the noise.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.scan_survey import Survey, survey
from ptynb.cluster.cluster import Cluster
from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError, EnginesBusyError, PtynbError, ReconstructionError, SettingsError
from ptynb.io.prepared_scan import prepare
from ptynb.physics.losses import poisson_below
from ptynb.preparation import mask_pixels
from ptynb.preparation.pixel_mask import judged, pixel_statistics
from ptynb.preparation.recorded_steps import check_measured
from ptynb.preparation.shared_transforms import as_centred
from ptynb.session.reconstruction import Reconstruction, make_way
from ptynb.session.run_result import with_guesses_of
from ptynb.settings import Settings
from ptynb.settings.base_models import MOST_EPOCHS, flat, merge
from ptynb.settings.recipe import PrepareStep, Recipe, Stage
from ptynb.table import duration
from ptynb.tuning.effects import MARGIN, Candidate, Effect, effects_of
from ptynb.tuning.evidence import HeldOut, TrialFit, counts_per_unit, thinned
from ptynb.tuning.geometry_fit import mended_geometry, middle
from ptynb.tuning.recommendation import Recommendation, RecommendationTrial, RecommendedSetting
from ptynb.tuning.trial import cause_of
from ptynb.tuning.trial_progress import TrialProgress

DIVERGED = ("reconstruction.not-finite", "array.not-finite")
"""Codes of the errors of trials whose learning rates are too high."""
RATES = ((0.1, 0.1), (0.2, 0.1), (0.03, 0.03))
"""Learning rates of object and probe that are tried, the default ones first."""
BETTER_RATES = 0.8
"""Largest misfit, relative to that with the default learning rates, with which others are chosen: nearer ones depend on
where a short trial happens to end."""
WARM_UP_EPOCHS, TRIAL_EPOCHS = 30, 20
LEAST_EPOCHS = 8
"""Smallest number of epochs of a trial."""
PLANNED_EPOCHS = 600
"""Approximate number of epochs of all trials, counted with the time of an epoch without further effects."""
LEAST_PATTERNS = 64
"""Smallest number of patterns of the trials; a larger scan is reduced to its middle if time is short."""
SIGMAS = 5.0
"""Least gain of an effect in the prediction of held-out counts, in units of its standard error."""
LEAST_SHARE = 0.1
"""Part of the misfit that an effect has to explain."""
FLEXIBLE_SHARE = 0.3
"""Part by which a probe that varies has to explain more than any other effect: it imitates several ones at a time."""
MOST_LEFT = 0.2
"""Part of the misfit that the effects may leave together, unless they lower it from above the noise to below it.

Of true effects less than a tenth was left. From an object that was not found (PtyLab's simulation, a misfit of 12), a
beam that varies and is partially coherent still explained 61%; where 0.3% of the light misses the detector of a near
field (LightPipes), four probe modes lowered a misfit of 0.30 to 0.17, and made the object worse (0.0088, not 0.0053).
"""
MASKING = "mask_bad_pixels"
LEAST_BAD = 0.5
"""Part of the pixels unlike their neighbours whose counts the fit must not predict, so that they are masked.

Those that are too dark to be judged do not count.
"""
TO_THE_NOISE = 0.1
"""Misfit below which there is nothing to explain, and by which an effect has to lower it: the noise is 1."""
SETTLED = 0.2
"""Relative decrease of the misfit by a further trial of object and probe, below which they have converged."""
SETTLING = 0.5
"""Part of the time after which object and probe have to have converged."""
FEW_COUNTS = 2.0
"""Counts per pixel below which the likelihood of counts is used."""
UPDATES = 10
"""Smallest number of updates in an epoch.

With 12 a scan of ptypy with 161 patterns got batches of 13 and ended at 0.037, 0.038 and 0.038 (three seeds); with
batches of 16 at 0.020, 0.023 and 0.017. On own scans of 64 to 121 patterns both are equal within 7%.
"""
LIKELIHOOD_STAGE = 0.3
"""Part of the epochs at the end with the Poisson likelihood, if the fit is at the level of the noise.

Amplitudes find a strong object in fewer epochs, and the likelihood weighs dark pixels correctly. Object errors after
100 epochs of scans that other packages simulated, with amplitudes alone, and with 0.3 and 0.5: CDTools 0.0074, 0.0056,
0.0058; ptypy 0.030, 0.030, 0.031; xptycho 0.035, 0.027, 0.027; HCIPy 0.0196, 0.0161, 0.0160. With 50 epochs of LSQML
first, and 0.5: 0.0059, 0.054, 0.035, 0.016. Positions, intensities and background of a near-field scan: 0.0111, 0.0112,
0.0133.
"""
LIKELY = 0.3
"""Largest misfit of a fit whose run ends with the likelihood: errors of the model weigh more in dark pixels.

A measured Siemens star has a misfit of 0.42 with a background. The resolution of its halves is 3.67 pixels with
amplitudes, 3.74 with the likelihood at the end; with a misfit of 1.3, without the background but with three modes, 3.46
and 3.53, 3.75 with the likelihood from the beginning.
"""
FIRST_STAGE = 0.1
"""Part of the epochs with object and probe alone.

Object errors after 100 epochs with wrong positions: 0.0203 with 0.1, 0.0236 with 0.2, 0.0282 with 0.3; with positions,
intensities and background in the near field: 0.0129 with 0.05, 0.0111, 0.0114, 0.0126, and 0.0186 without this stage.
"""
END_FACTOR = 0.01
"""Factor of the learning rates at the end of a run of object and probe alone, instead of 0.05.

Object errors with 0.05 and 0.01, and the likelihood at the end: CDTools 0.0046, 0.0040; HCIPy 0.0155, 0.0151; ptypy
0.0076, 0.0075; xptycho 0.0202, 0.0203; LightPipes, batches of 7 without the likelihood, 0.0051, 0.0044. With few
counts, where the likelihood is used from the beginning, a weak object of electrons loses 0.6% (10^5 electrons a square
angstrom) or 1.7% (10^4) of its phase.
"""
RATE_WITH_OPR = 0.01
"""Learning rate of object and probe, and without a schedule, if the probe varies: its variations have to keep up.

Object errors of a beam that changes its shape after 100 epochs, with rates of 0.03 and 0.1 of the variations: 0.025
and 0.019; with a rate of 0.1 and a cosine 0.026 and 0.041.
"""
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
    fit: TrialFit | None = None

    @property
    def misfit(self) -> float:
        """That of the fit; infinite without one."""
        return math.inf if self.fit is None else self.fit.misfit

    @property
    def note(self) -> str:
        """The error in a table of trials."""
        if self.error is None:
            return ""
        return "diverged" if self.error.code in DIVERGED else cause_of(self.error)

    def check(self) -> None:
        """Raise SettingsError if there is no loss, of a trial without which there is no recommendation."""
        if self.error is not None:
            text = f"The scan cannot be reconstructed with the default settings: {cause_of(self.error)}"
            raise self.error.retold(SettingsError, text) from self.error


@dataclass
class _Engines:
    """Runs trials on the engines at hand: on a cluster several at once, one on each engine."""

    cluster: Cluster | None
    device: str
    progress: TrialProgress
    held_out: HeldOut | None = None

    def run(self, scan: Scan, jobs: Sequence[tuple[Settings, int]], keep: bool = False) -> list[_Outcome]:
        """Return the outcome of each (settings, epochs). keep: with the scan that has the result as its guesses.

        With held-out counts, outcomes have a fit.
        """
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
                fit = None if self.held_out is None else self.held_out.fit(recon)
                result = recon.result if keep else None
            finally:
                recon.close(result=False)
        except (SettingsError, ReconstructionError, ClusterError) as raised:
            # An engine may die while the result is taken, which is missing then.
            lost = raised.code == "reconstruction.no-result" and isinstance(raised.__cause__, ReconstructionError)
            error = raised.__cause__ if lost else raised
            assert isinstance(error, PtynbError)
            if error.code.startswith("engine.") and not isinstance(error, EnginesBusyError):
                raise error.retold(ReconstructionError, f"A trial has failed: {cause_of(error)}") from error
            if not isinstance(error, SettingsError) and error.code not in (*DIVERGED, "memory.insufficient"):
                raise
            return _Outcome(math.inf, time.monotonic() - started, error=error)
        if result is None:
            return _Outcome(loss, time.monotonic() - started, epoch_seconds=per_epoch, fit=fit)
        warm = with_guesses_of(result, scan)
        return _Outcome(loss, time.monotonic() - started, warm, per_epoch, fit=fit)


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

    Where the fit is at the level of the noise, the last epochs of the recipe minimise the Poisson likelihood of the
    counts, with which the R-factor, a measure of amplitudes, is higher, and the object nearer to the truth.

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
        Function without arguments that returns whether the trials are to end; called four times a second.

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
        self._suspects: NDArray[np.bool_] | None = None
        """Pixels (y, x) that are masked in the trials because they are unlike their neighbours, centred."""
        self._surely_bad = False
        """Whether some of the masked pixels are not finite or stuck."""

    def run(self) -> Recommendation:
        """Return the recommendation."""
        self._report("Reading patterns")
        seen = survey(self._whole, 256)
        scan = self._oriented(self._without_bad_pixels(self._whole))
        base = self._from_statistics(scan, seen)
        scan, epoch_seconds = self._reduced(scan, base)
        shorter = min(1.0, self._seconds / max(1e-9, PLANNED_EPOCHS * epoch_seconds))
        warm_epochs, trial_epochs = (
            max(LEAST_EPOCHS, round(number * shorter)) for number in (WARM_UP_EPOCHS, TRIAL_EPOCHS)
        )
        effects = sum(len(effect.variants) for effect in effects_of(self._whole))
        # One more round with half of them, as usual; several at once still take their time.
        self._engines.progress.plan((len(RATES) + 2) * warm_epochs + (1.5 * effects + 3) * trial_epochs)
        unit = counts_per_unit(self._whole, seen)
        self._whole_counts = unit == 1
        self._engines.held_out = HeldOut.of(scan, unit)
        base, warm = self._warm_up(thinned(scan, unit), base, warm_epochs)
        chosen = self._effects(base, warm, trial_epochs)
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

    def _without_bad_pixels(self, scan: Scan) -> Scan:
        with contextlib.suppress(ValueError):
            statistics = pixel_statistics(scan)
            kinds = judged(scan, statistics)
            before = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
            surely = before & (~statistics.finite | kinds.stuck)
            bad = surely | kinds.hot | kinds.dead
            new = int(bad.sum())
            if new:
                self._prepare.append(PrepareStep(function=MASKING))
                what = "pixel is" if new == 1 else "pixels are"
                self._choose("prepare", MASKING, f"{new} {what} far brighter or darker than the neighbours, or stuck")
                self._surely_bad = bool(surely.any())
                return mask_pixels(scan, ~bad)
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
        if self._prepare and not self._surely_bad:
            # The other steps do not move pixels, and may need the mask.
            moved = prepare(self._whole, [step for step in found.steps if step.function in ("flip", "transpose")])
            before, after = as_centred(moved).mask, as_centred(found.scan).mask
            assert after is not None, "pixels are masked"
            self._suspects = ~after if before is None else before & ~after
        self._prepare += found.steps
        self._notes += found.notes
        for names, reason in found.reasons:
            self._choose("prepare", names, reason)
        return found.scan

    def _from_statistics(self, scan: Scan, seen: Survey) -> dict[str, Any]:
        """Return settings that need no trial."""
        pixels = scan.pattern_shape[0] * scan.pattern_shape[1]
        counts = self._mean_count = float(np.nanmean(seen.sums)) / pixels
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
        part = middle(scan, max(LEAST_PATTERNS, len(scan) // 16)) if len(scan) > 16 * LEAST_PATTERNS else scan
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
        return middle(scan, wanted), epoch * wanted / len(scan)

    def _warm_up(self, scan: Scan, base: dict[str, Any], epochs: int) -> tuple[dict[str, Any], _Outcome]:
        """Find the learning rates of object and probe; return the settings, and the best outcome."""
        full_steps = Settings(**base).optimiser == "lbfgs"
        variants = {"object and probe, before other effects": base}
        if not full_steps:
            variants = {f"learning rates {rates[0]:g} and {rates[1]:g}": _with_rates(base, *rates) for rates in RATES}
            late = {"probe": {"start_epoch": max(2, epochs // 6)}}
            variants["the object alone first"] = merge(_with_rates(base, *RATES[0]), late)
            if half := Settings(**base).batch // 2:
                variants[f"batches of {half}"] = {**_with_rates(base, *RATES[0]), "batch": half}
        self._report(f"Object and probe: {len(variants)} trials of {epochs} epochs")
        settings = [*variants.values()]
        outcomes = self._engines.run(scan, [(Settings(**one), epochs) for one in settings], keep=True)
        best = min(range(len(settings)), key=lambda index: outcomes[index].misfit)
        if not outcomes[best].misfit < BETTER_RATES * outcomes[0].misfit and outcomes[0].error is None:
            best = 0
        outcomes[best].check()
        for index, (name, outcome) in enumerate(zip(variants, outcomes, strict=True)):
            self._trials.append(_trial(name, {} if full_steps else settings[index], outcome, chosen=index == best))
        chosen = settings[best]
        if not full_steps:
            misfits = [f"{outcome.misfit:.3g} with {name}" for name, outcome in zip(variants, outcomes, strict=True)]
            why = f"misfit {misfits[best]} after {epochs} epochs; {', '.join(misfits[:best] + misfits[best + 1 :])}"
            rates = tuple(chosen[part]["learning_rate"] for part in ("object", "probe"))
            if rates != RATES[0]:
                self._choose("object.learning_rate, probe.learning_rate", f"{rates[0]:g}, {rates[1]:g}", why)
            if chosen.get("batch") != base.get("batch"):
                self._choices = [choice for choice in self._choices if choice.name != "batch"]
                self._choose("batch", str(chosen["batch"]), why)
            if "start_epoch" in chosen.get("probe", {}):
                chosen = merge(chosen, {"probe": {"start_epoch": max(2, self._epochs // 20)}})
                self._choose(
                    "probe.start_epoch",
                    str(chosen["probe"]["start_epoch"]),
                    "the object alone first: the loss was lower than with both from the beginning",
                )
        return chosen, outcomes[best]

    def _settled(
        self, present: dict[str, Any], before: _Outcome, epochs: int, what: str, share: float = 1.0
    ) -> tuple[Scan, _Outcome, float]:
        """Repeat a trial from its own result until the misfit falls no more.

        Return the scan with the guesses of the last repetition, its outcome, and by how much it lowered the misfit.
        share: part of the time after which it ends.
        """
        while True:
            assert before.scan is not None
            self._report(f"Further {epochs} epochs with {what}")
            [after] = self._engines.run(before.scan, [(Settings(**present), epochs)], keep=True)
            after.check()
            self._trials.append(_trial(f"{what}, continued", {}, after))
            gained = before.misfit - after.misfit
            if gained <= SETTLED * before.misfit or after.misfit < TO_THE_NOISE:
                return before.scan, after, gained
            if time.monotonic() - self._started > share * self._seconds:
                self._notes.append(
                    f"Not converged, for lack of time (seconds): {what}, whose misfit still fell from "
                    f"{before.misfit:.3g} to {after.misfit:.3g} in {epochs} epochs."
                )
                return before.scan, after, gained
            before = after

    def _effects(self, base: dict[str, Any], warm: _Outcome, epochs: int) -> list[tuple[Effect, dict[str, Any]]]:
        """Return the effects that are in the data, with the settings that model them, the largest first."""
        present = dict(base)
        if "probe" in present:
            present["probe"] = {name: value for name, value in base["probe"].items() if name != "start_epoch"}
        scan, control, gained = self._settled(present, warm, epochs, "object and probe", SETTLING)
        held_out = self._engines.held_out
        assert held_out is not None
        self._misfit = control.misfit
        if control.fit is not None:
            self._judge_bad_pixels(held_out, control.fit)
        if control.misfit < TO_THE_NOISE:
            self._notes.append(
                f"Object and probe explain the patterns to the noise (a misfit of {control.misfit:.2g} of it): no "
                "effects were tried."
            )
            return []
        candidates = [Candidate(effect, changes) for effect in effects_of(self._whole) for changes in effect.variants]
        begin, fit, chosen = scan, control, list[tuple[Candidate, int, str, float]]()
        while candidates and fit.misfit > TO_THE_NOISE:
            names = " and ".join(one.effect.name for one, *_ in chosen)
            if chosen and time.monotonic() - self._started > self._seconds:
                untried = ", ".join(dict.fromkeys(candidate.effect.name for candidate in candidates))
                self._notes.append(f"Not tried together with {names}, for lack of time: {untried}.")
                break
            together = f"Together with {names}" if chosen else "Effects in the data"
            self._report(f"{together}: {len(candidates)} trials of {epochs} epochs")
            jobs = [(Settings(**merge(present, one.changes)), epochs) for one in candidates]
            outcomes = self._engines.run(scan, jobs, keep=True)
            first, accepted = len(self._trials), list[tuple[int, float]]()
            least = max(LEAST_SHARE * fit.misfit, TO_THE_NOISE, 2 * gained)
            for index, (candidate, outcome) in enumerate(zip(candidates, outcomes, strict=True)):
                sigmas = 0.0
                if fit.fit is not None and outcome.fit is not None:
                    gain, error = held_out.gain(fit.fit, outcome.fit)
                    sigmas = gain / error if error else 0.0
                name = f"{candidate.effect.name}{f', with {names}' if names else ''}"
                self._trials.append(_trial(name, candidate.changes, outcome, sigmas))
                if sigmas > SIGMAS and fit.misfit - outcome.misfit > least:
                    accepted.append((index, sigmas))
            if not accepted:
                break
            # Of effects that explain the same, the simplest one, which is the first.
            lowest, flexible = min(
                (outcomes[index].misfit, "opr" in candidates[index].changes) for index, _ in accepted
            )
            limit = lowest + (FLEXIBLE_SHARE if flexible else LEAST_SHARE) * (fit.misfit - lowest)
            best, sigmas = next(one for one in accepted if outcomes[one[0]].misfit <= limit)
            candidate, outcome, best = _best_variant(candidates, outcomes, best)
            reason = (
                f"{candidate.effect.reason}: misfit {outcome.misfit:.3g} instead of {fit.misfit:.3g} (noise: 1)"
                f"{f', with {names}' if names else ''}; held-out counts are predicted "
                f"better by {sigmas:.0f} standard errors"
            )
            chosen.append((candidate, first + best, reason, sigmas))
            candidates = _next_candidates(candidates, outcomes, fit.misfit, candidate.effect)
            present = merge(present, candidate.changes)
            scan, fit, gained = self._settled(
                present, outcome, epochs, " and ".join(one.effect.name for one, *_ in chosen)
            )
        left = fit.misfit / control.misfit
        if chosen and left > MOST_LEFT and not fit.misfit < 1 < control.misfit:
            names = " and ".join(one.effect.name for one, *_ in chosen)
            self._notes.append(
                f"Not decided: {names} would explain {1 - left:.0%} of the misfit; what remains, {fit.misfit:.3g} "
                "times the noise, may come from a wrong object or probe, and so may all of it. A longer run or a "
                "better initial probe would decide."
            )
            return []
        if not chosen:
            self._notes.append(f"No effect that was tried explains the misfit of {control.misfit:.2g} times the noise.")
        self._misfit = fit.misfit
        for candidate, index, reason, sigmas in chosen:
            self._trials[index] = replace(self._trials[index], chosen=True)
            if "object" in candidate.changes:
                self._choices = [choice for choice in self._choices if not choice.name.startswith("object.learning_r")]
            for name, value in flat(candidate.changes):
                self._choose(name, value if isinstance(value, str) else f"{value:g}", reason, sigmas)
            if "positions" in candidate.changes:
                self._compare_with_map(begin, fit.scan)
        return [(candidate.effect, candidate.changes) for candidate, *_ in chosen]

    def _judge_bad_pixels(self, held_out: HeldOut, fit: TrialFit) -> None:
        """Do not recommend to mask pixels whose counts the fit without them predicts: fringes of the beam."""
        if self._suspects is None:
            return
        unexplained, decided = (self._suspects & found for found in held_out.unexplained(fit))
        bad = int(unexplained.sum())
        if bad >= LEAST_BAD * decided.sum():
            return
        self._prepare = [step for step in self._prepare if step.function != MASKING]
        self._choices = [choice for choice in self._choices if choice.value != MASKING]
        self._notes.append(
            f"Pixels far brighter or darker than their neighbours: {self._suspects.sum()}. Object and probe explain "
            f"the counts of all but {bad}, so that none is masked; preparation.mask_pixels masks single ones."
        )

    def _compare_with_map(self, before: Scan, after: Scan | None) -> None:
        """Note if moved positions are mostly one linear map, which other quantities can explain as well."""
        assert after is not None
        start, moved = (one.positions - one.positions.mean(0) for one in (before, after))
        moved = moved - start
        change = np.linalg.lstsq(start, moved, rcond=None)[0]
        share = 1 - ((moved - start @ change) ** 2).sum() / max((moved**2).sum(), 1e-300)
        if share > 0.5:
            scale, angle = 1 + np.trace(change) / 2, np.degrees(abs(change[0, 1] - change[1, 0]) / 2)
            self._notes.append(
                f"{share:.0%} of the shifts of the positions are one linear map (scale {scale:.4g}, rotation "
                f"{angle:.2f}°). A wrong pixel size (energy, distance), a wrong defocus of a known probe or a rotated "
                "scan gives the same: a calibration decides, or affine.learning_rate instead of positions."
            )

    def _recipe(self, base: dict[str, Any], chosen: list[tuple[Effect, dict[str, Any]]]) -> Recipe:
        """Return the stages: object and probe first, then all effects, whose rates are 0 before."""
        changes: dict[str, Any] = {}
        for _, one in chosen:
            changes = merge(changes, one)
        # Before that, large steps may hold the loss up, which the decreasing ones of the schedule lower again.
        least = round(0.8 * self._epochs)
        stop = {"patience": max(5, self._epochs // 10), "tolerance": LEAST_PROGRESS, "min_epochs": least}
        if "opr" in changes and "object" not in changes and Settings(**base).optimiser != "lbfgs":
            base = merge(_with_rates(base, RATE_WITH_OPR, RATE_WITH_OPR), {"schedule": {"kind": "constant"}})
            names = "object.learning_rate, probe.learning_rate"
            self._choices = [choice for choice in self._choices if choice.name != names]
            self._choose(names, f"{RATE_WITH_OPR:g}", "small and constant, so that the variations of the probe keep up")
        settings = merge(base, {"stop": stop})
        likelihood = self._likelihood_stage(base)
        epochs = self._epochs - sum(stage.epochs for stage in likelihood)
        if not changes:
            if not self._has_likelihood(base):
                settings = merge(settings, {"schedule": {"end_factor": END_FACTOR}})
                why = "no other effect needs large steps until the end; smaller ones average over the noise"
                self._choose("schedule.end_factor", f"{END_FACTOR:g}", why)
            plain = Stage(epochs=epochs, reason="No effect beside object and probe was found in the data.")
            return Recipe(prepare=tuple(self._prepare), settings=Settings(**settings), stages=(plain, *likelihood))
        first = max(2, round(FIRST_STAGE * self._epochs))
        # The structure of the model is that of the last stage from the beginning; only rates change.
        later = {name: part for name, part in changes.items() if _begins_later(name, part)}
        rates = {name: {"learning_rate": part["learning_rate"]} for name, part in later.items()}
        structure = {name: {**part, "learning_rate": 0.0} if name in later else part for name, part in changes.items()}
        settings = merge(settings, structure)
        names = ", ".join(effect.name for effect, _ in chosen)
        every = [Stage(epochs=first, reason="Object and probe first: other parts move wrongly before they fit.")]
        if rates:
            every.append(Stage(epochs=epochs - first, settings=rates, reason=f"Then also: {names}."))
        else:
            every = [Stage(epochs=epochs, reason=f"With {names} from the beginning.")]
        return Recipe(prepare=tuple(self._prepare), settings=Settings(**settings), stages=(*every, *likelihood))

    def _has_likelihood(self, base: Mapping[str, Any]) -> bool:
        """Whether the counts are so few that the Poisson likelihood is used from the beginning."""
        return "loss" in base or self._mean_count < poisson_below(self._whole.geometry)

    def _likelihood_stage(self, base: Mapping[str, Any]) -> tuple[Stage, ...]:
        """Return the last stage, with the Poisson likelihood; none if the fit or the counts do not allow for it."""
        if self._has_likelihood(base) or not self._whole_counts or not self._misfit < LIKELY:
            return ()
        reason = (
            "the likelihood weighs dark pixels correctly, and the fit, whose misfit is "
            f"{max(self._misfit, 0):.2g} of the noise, allows for it"
        )
        self._choose("loss", "poisson, in the last stage", reason)
        last = round(LIKELIHOOD_STAGE * self._epochs)
        return (Stage(epochs=last, settings={"loss": "poisson"}, reason=f"{reason[0].upper()}{reason[1:]}."),)

    def _choose(self, name: str, value: str, reason: str, sigmas: float = math.nan) -> None:
        self._choices.append(RecommendedSetting(name, value, reason, sigmas))


def _trial(
    effect: str, changes: dict[str, Any], outcome: _Outcome, sigmas: float = math.nan, chosen: bool = False
) -> RecommendationTrial:
    return RecommendationTrial(
        effect, dict(flat(changes)), outcome.loss, outcome.misfit, sigmas, outcome.seconds, chosen, outcome.note
    )


def _best_variant(
    candidates: Sequence[Candidate], outcomes: Sequence[_Outcome], index: int
) -> tuple[Candidate, _Outcome, int]:
    """Return the variant of an effect with the lowest misfit, and its index. index: of one of its variants."""
    effect = candidates[index].effect
    variants = [other for other, candidate in enumerate(candidates) if candidate.effect is effect]
    best = min(variants, key=lambda other: outcomes[other].misfit)
    return candidates[best], outcomes[best], best


def _next_candidates(
    candidates: Sequence[Candidate], outcomes: Sequence[_Outcome], without: float, accepted: Effect
) -> list[Candidate]:
    """Return the best variant of each other effect that improved the fit at all."""
    best = dict.fromkeys(candidate.effect for candidate in candidates if candidate.effect is not accepted)
    found = [
        _best_variant(candidates, outcomes, next(i for i, one in enumerate(candidates) if one.effect is effect))
        for effect in best
    ]
    return [candidate for candidate, outcome, _ in found if outcome.misfit < 0.99 * without]


def _begins_later(name: str, part: Any) -> bool:
    """Whether a part is optimised from the second stage on."""
    return name not in ("object", "probe") and isinstance(part, Mapping) and "learning_rate" in part


def _with_rates(base: dict[str, Any], object: float, probe: float) -> dict[str, Any]:
    return merge(base, {"object": {"learning_rate": object}, "probe": {"learning_rate": probe}})
