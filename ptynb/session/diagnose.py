"""`diagnose`: why a reconstruction is bad, from its result and its scan, and trials of what helps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.analysis.faults.diagnosis import Confirmation, Diagnosis, Finding, findings_of, helps
from ptynb.cluster.cluster import Cluster
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import InvalidTypeError, InvalidValueError, ReconstructionError, SettingsError
from ptynb.io.named_results import result_in
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.run_result import with_guesses_of
from ptynb.settings import Settings
from ptynb.settings.recipe import Recipe
from ptynb.simulation.model_residuals import model_residuals

SAMPLE = 96
"""Largest number of patterns that are compared with the model: 2 s for 128 x 128 pixels and one mode."""
EPOCHS = 30
"""Epochs of a trial."""
Progress = Callable[[int, int], None]


def diagnose(
    source: Reconstruction | Result | str | Path,
    scan: Scan | None = None,
    *,
    trial: bool = False,
    epochs: int = EPOCHS,
    cluster: Cluster | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> Diagnosis:
    """Look for known faults of a reconstruction, and for what helps against each.

    Of the object: raster grid pathology, phase vortices, phase ramp, a wrong number of slices. Of the probe: modes
    that describe wrong positions, fill the window, or repeat the object; a probe or patterns that do not fit in their
    window. Of the scan: wrong positions and drift, patterns that are transposed, mirrored or rotated against the
    positions, bad and saturated pixels. Of the run: not converged, diverging, a loss that is biased by few counts.

    Each has a measure of its own, and a threshold with the rate of false alarms that was counted on good
    reconstructions, mostly of scans that other packages simulated. Sources of the measures are in their docstrings
    (`ptynb.analysis.faults.fault_measures`). No result tells a detector that is rotated by 180 degrees, which
    gives the twin image, nor errors that all its patterns fit.

    Parameters
    ----------
    source : Reconstruction, Result, str or Path
        A reconstruction (its present result), a result, or the path of its file.
    scan : Scan, optional
        Scan of the result, prepared as for it; by default that of the reconstruction. Without it, faults that show in
        object, probe, positions and losses alone are looked for.
    trial : bool
        Whether to try the remedy of each finding (`confirm`).
    epochs : int
        Epochs of each trial.
    cluster : Cluster, optional
        Engines of the trials. None: this process.
    device : {"auto", "cpu", "cuda", "xpu"}
        Device of this process if there is no cluster.
    progress : callable, optional
        Called with (epochs done, epochs in total) of the trials; an exception that it raises ends them.

    Returns
    -------
    Diagnosis
        The findings; printed as a table, and a section of the report with `pt.report(..., diagnosis=...)`.

    Raises
    ------
    InvalidTypeError
        If source is of another type ("argument.invalid-type").
    InvalidValueError
        If the result is not finite ("array.not-finite") or of several scans ("argument.invalid-value"), the scan has
        another number or size of patterns ("array.shape-mismatch"), or `trial` is set without one
        ("argument.missing").
    """
    result, scan = _result_and_scan(source, scan)
    if trial and scan is None:
        raise InvalidValueError(
            "trial=True requires the scan; give it as the second argument.", code="argument.missing"
        )
    found = _examined(result, scan)
    if not trial or scan is None:
        return found
    tried = confirm(found, result, scan, epochs=epochs, cluster=cluster, device=device, progress=progress)
    return dataclasses.replace(found, findings=tried)


def confirm(
    found: Diagnosis,
    result: Result,
    scan: Scan,
    *,
    epochs: int = EPOCHS,
    cluster: Cluster | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> tuple[Finding, ...]:
    """Try the remedy of each finding in a short run, beside one without it, and return the findings with the outcome.

    Both begin with the result's object, probe and positions, or from the beginning if the remedy requires it. A remedy
    helps if the finding's measure falls and the R-factor does not rise, or the R-factor falls clearly. If it is more
    epochs, the result is compared with its continuation.

    epochs, cluster, device, progress: as for `diagnose`. Findings without a remedy by settings or preparation do not
    change.
    """
    settings = Settings(**result.settings)
    without: dict[bool, tuple[Result, Diagnosis]] = {}
    tries = [one for one in found.findings if one.has_remedy]
    total = epochs * (len(tries) + len({one.restart for one in tries if not one.epochs}))
    done = 0

    def run(recipe: Recipe, restart: bool) -> tuple[Result, Diagnosis]:
        nonlocal done
        begun = scan if restart else with_guesses_of(result, scan)
        with Reconstruction(begun, recipe, cluster, device=device, checkpointing=None) as recon:
            recon.warns = False
            recon.start(epochs)
            recon.wait(progress=lambda: progress is None or progress(done + min(recon.epoch, epochs), total))
            done += epochs
            return recon.result, _examined(recon.result, recon.scan)

    def tried(finding: Finding) -> Finding:
        if not finding.has_remedy:
            return finding
        try:
            after, with_it = run(finding.recipe(settings), finding.restart)
            if finding.epochs:
                before, control = result, found
            else:
                if finding.restart not in without:
                    without[finding.restart] = run(Recipe(settings=settings), finding.restart)
                before, control = without[finding.restart]
        except (ReconstructionError, SettingsError) as error:
            return dataclasses.replace(finding, explanation=f"{finding.explanation} The trial has failed: {error}")
        without_it, with_remedy = (one.values.get(finding.name) for one in (control, with_it))
        factors = before.r_factor, after.r_factor
        improved = helps(finding, finding.value if without_it is None else without_it, with_remedy, *factors)
        outcome = Confirmation(epochs, without_it, with_remedy, *factors, improved)
        return dataclasses.replace(finding, confirmation=outcome)

    return tuple(tried(finding) for finding in found.findings)


def _examined(result: Result, scan: Scan | None) -> Diagnosis:
    """Return the findings; with a scan, also those from evenly spaced patterns of it, of those that came."""
    if scan is None:
        return findings_of(result, None, None)
    known = np.arange(len(result.positions)) if result.admissions is None else np.sort(result.admissions.patterns)
    sample = np.unique(known[np.linspace(0, len(known) - 1, min(SAMPLE, len(known))).astype(np.int64)])
    return findings_of(result, scan, model_residuals(result, scan, sample))


def _result_and_scan(source: Any, scan: Scan | None) -> tuple[Result, Scan | None]:
    if isinstance(source, Reconstruction):
        result, scan = source.result, source.scan if scan is None else scan
    elif isinstance(source, Result | str | Path):
        result = result_in(source)
    else:
        raise InvalidTypeError(
            f"{type(source).__name__} is not supported; expected a Reconstruction, a Result, or the path of its file.",
            code="argument.invalid-type",
        )
    if scan is not None and (len(scan), *scan.pattern_shape) != (len(result.positions), *result.scan.pattern_shape):
        raise InvalidValueError(
            f"The scan has {len(scan)} patterns of {scan.pattern_shape[0]} x {scan.pattern_shape[1]} and the result "
            f"{len(result.positions)} of {result.scan.pattern_shape[0]} x {result.scan.pattern_shape[1]}; expected the "
            "scan that was reconstructed, with the same preparation.",
            code="array.shape-mismatch",
        )
    return result, scan
