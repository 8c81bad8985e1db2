"""What ptynb makes of scans that other packages simulated (`simulate.py`), asked as a new user would, without a probe.

usage: python -m tests.benchmarks.foreign.judge FILE ... [--recommend SECONDS] [--epochs 100] [--seed 0]
       python -m tests.benchmarks.foreign.judge el_right.npz [--dose 1e5] [--claim CLAIM ...] [--recommend SECONDS]

Prints a line of JSON for each run: with the default settings, or with --recommend what `pt.recommend` finds within that
time, and the run that it recommends. Of X-rays and light "error" is that of the object (complex, registered). Electrons
begin with the probe of the claimed lens; the phase is compared with the projected potential, as it is and blurred by
0.25 angstrom: correlation and slope. A claim is what a file would say wrongly; "right" is none of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb import preparation
from ptynb.data.scan import Scan, Truth
from ptynb.exceptions import InvalidValueError
from ptynb.settings.cluster_options import Device

Array = NDArray[Any]
CONVERGENCE_ANGLE, DEFOCUS, STEP, BLUR = 0.0214, -15e-9, 0.6, 0.25
"""Of el_right and el_wide: [rad], [m], and step of the scan and width of the blur [angstrom]."""
CLAIMS: dict[str, dict[str, Any]] = {
    "right": {},
    "transposed": {"transposed": True},
    "flip y": {"flipped": "y"},
    "flip x": {"flipped": "x"},
    "turned": {"turned": 30},
    "pixel": {"pixel": 1.03},
    "defocus": {"defocus": 1.3},
    "defocus sign": {"defocus": -1.0},
    "transposed, turned": {"transposed": True, "turned": 30},
    "flip y, pixel": {"flipped": "y", "pixel": 1.03},
    "flip x, defocus sign": {"flipped": "x", "defocus": -1.0},
    "transposed, defocus": {"transposed": True, "defocus": 0.7},
    "turned, pixel": {"turned": 30, "pixel": 0.97},
    "turned, flip y, pixel, defocus": {"turned": 30, "flipped": "y", "pixel": 1.03, "defocus": 1.3},
}


def geometry_of(content: dict[str, Array], pixel: float = 1.0) -> pt.Geometry | pt.NearField:
    wavelength, distance, size = (float(content[name]) for name in ("wavelength", "distance", "detector_pixel"))
    if not content["near_field"]:
        return pt.Geometry(wavelength=wavelength, distance=distance, detector_pixel=(size * pixel, size * pixel))
    return pt.NearField(
        wavelength=wavelength, focus_to_sample=np.inf, sample_to_detector=distance, detector_pixel=(size, size)
    )


def plain_scan(content: dict[str, Array], name: str) -> Scan:
    """The scan without a probe."""
    scan = pt.Scan.from_arrays(content["patterns"], content["positions"], geometry=geometry_of(content), name=name)
    return dataclasses.replace(scan, ground_truth=Truth(content["object"], content["probe"][None]))


def electrons(content: dict[str, Array], dose: float, claim: dict[str, Any]) -> Scan:
    """A scan of electrons with a dose [electrons per square angstrom], as a file with this claim would describe it."""
    counts = np.random.default_rng(0).poisson(np.maximum(content["patterns"], 0) * dose * STEP**2)
    metres = content["positions"] * geometry_of(content).object_pixel(counts.shape[1:])
    scan = pt.Scan.from_arrays(
        counts.astype(np.float32), metres, units="metres", geometry=geometry_of(content, claim.get("pixel", 1.0))
    )
    if "transposed" in claim:
        scan = preparation.transpose(scan)
    if "flipped" in claim:
        scan = preparation.flip(scan, claim["flipped"])
    if "turned" in claim:
        scan = preparation.rotate_positions(scan, np.deg2rad(claim["turned"]))
    # The steps that made the file are not known to who reads it.
    scan = dataclasses.replace(scan, preparation=())
    return scan.with_probe(convergence_angle=CONVERGENCE_ANGLE, defocus=DEFOCUS * claim.get("defocus", 1.0))


def scanned(corners: Array, window: int) -> tuple[slice, slice]:
    """The area between the outermost centres of the probe."""
    low, high = np.ceil(corners.min(0) + window / 2).astype(int), np.floor(corners.max(0) + window / 2).astype(int)
    return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))


def object_error(result: pt.Result, content: dict[str, Array]) -> dict[str, float]:
    area = scanned(content["positions"], content["patterns"].shape[-1])
    try:
        fit = pt.analysis.register(result.projection, content["object"], area, result.origin)
    except InvalidValueError:  # nothing like the truth: it is registered nowhere near
        return {"error": float("nan")}
    return {"error": fit.error}


def phase_agreement(result: pt.Result, content: dict[str, Array]) -> dict[str, float]:
    """Correlation and slope of the phase against that of the potential, in the coordinates of the result.

    These follow from the positions: a scan that was turned by a wrong angle shows an object that is turned.
    """
    window = content["patterns"].shape[-1]
    centres, true_centres = result.positions + window / 2, content["positions"] + window / 2
    design = np.column_stack([centres, np.ones(len(centres))])
    to_truth = np.linalg.lstsq(design, true_centres, rcond=None)[0]
    matrix, shift = to_truth[:2].T, to_truth[2]
    first, last = np.floor(centres.min(0)).astype(int), np.ceil(centres.max(0)).astype(int)
    height, width = last - first
    places = (np.indices((height, width)).reshape(2, -1).T + first) @ matrix.T + shift
    truth = ndimage.map_coordinates(np.angle(content["object"]), places.T, order=3).reshape(height, width)
    inside = ((places >= true_centres.min(0)) & (places <= true_centres.max(0))).all(1).reshape(height, width)
    try:
        fit = pt.analysis.register(
            result.projection,
            np.exp(1j * truth),
            (slice(0, int(height)), slice(0, int(width))),
            (-int(first[0]), -int(first[1])),
        )
    except InvalidValueError:  # nothing like the truth
        return {"correlation": float("nan")}
    level = np.median(truth[inside])
    phase = np.angle(fit.aligned * np.exp(-1j * level)) + level
    pixel = 1e10 * geometry_of(content).object_pixel((window, window))[0] * np.sqrt(abs(np.linalg.det(matrix)))
    figures = {}
    for name, blur in (("", 0.0), ("_blurred", BLUR / pixel)):
        found, true = (ndimage.gaussian_filter(values, blur)[inside] for values in (phase, truth))
        found, true = found - found.mean(), true - true.mean()
        figures[f"correlation{name}"] = float(np.corrcoef(found, true)[0, 1])
        figures[f"slope{name}"] = float(found @ true / (true @ true))
    return figures


def recommended(scan: Scan, epochs: int, seconds: float, device: Device) -> tuple[pt.Recipe, dict[str, Any]]:
    """The recipe, and what was found: [name, value, reason] of each setting or step of preparation."""
    started = time.perf_counter()
    found = pt.recommend(scan, device=device, epochs=epochs, seconds=seconds)
    return found.recipe, {
        "seconds": round(time.perf_counter() - started, 1),
        "misfit": min(
            trial.misfit
            for trial in found.trials
            if trial.effect.startswith(("learning rates", "object and probe", "the object alone"))
        ),
        "found": [(choice.name, choice.value, choice.reason) for choice in found.choices],
        "notes": found.notes,
    }


def judge(
    scan: Scan,
    content: dict[str, Array],
    epochs: int,
    settings: pt.Settings,
    seconds: float | None = None,
    device: Device = "cpu",
) -> dict[str, Any]:
    """One run, with these settings or, if `seconds` is given, with the recommended ones."""
    chosen: pt.Settings | pt.Recipe = settings
    row: dict[str, Any] = {}
    if seconds is not None:
        chosen, row = recommended(scan, epochs, seconds, device)
    started = time.perf_counter()
    with pt.Reconstruction(scan, chosen, device=device, checkpointing=None) as recon:
        recon.start(epochs)
        recon.wait()
        result = recon.result
    row |= {"r_factor": result.r_factor, "run_seconds": round(time.perf_counter() - started, 1)}
    return row | (object_error(result, content) if scan.ground_truth else phase_agreement(result, content))


def main() -> None:
    """Prints a line for each scan and claim."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--recommend", type=float, metavar="SECONDS", help="ask pt.recommend, with this time limit")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dose", type=float, default=1e5, help="of electrons [1 / square angstrom]")
    parser.add_argument("--claim", nargs="+", choices=CLAIMS, default=["right"], metavar="CLAIM", help="of electrons")
    chosen = parser.parse_args()
    for path in chosen.files:
        with np.load(path) as stored:
            content = dict(stored)
        of_electrons = path.stem.startswith("el_")
        for claim in chosen.claim if of_electrons else [""]:
            scan = electrons(content, chosen.dose, CLAIMS[claim]) if of_electrons else plain_scan(content, path.stem)
            row = judge(scan, content, chosen.epochs, pt.Settings(seed=chosen.seed), chosen.recommend)
            asked = {"scan": path.stem, "epochs": chosen.epochs, "seed": chosen.seed}
            asked |= {"dose": chosen.dose, "claim": claim} if of_electrons else {}
            print(json.dumps(asked | row), flush=True)


if __name__ == "__main__":
    main()
