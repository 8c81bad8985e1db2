"""What an error tells its reader to do is done here, and works.

Each case goes wrong with the words that it names, and goes right by doing what they say; a line of Python in the
sentence is taken as it stands. What the other sentences name (`NAMED`) is done by the tests of what they are about.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile

import ptynb as pt
from ptynb import analysis, preparation
from ptynb.data.scan import Scan
from ptynb.simulation import illumination
from tests.parametrization import each
from tests.remedy_cases import Case, follow, hdf5

SIMULATED = pt.simulate(patterns=12, window=16, step=2, seed=3)
GEOMETRY = SIMULATED.geometry
COUNTS = SIMULATED.counts(0, 12).astype(np.uint16)
METRES = SIMULATED.positions * SIMULATED.pixel_size
KNOWN: dict[str, Any] = {
    "energy": GEOMETRY.energy,
    "distance": GEOMETRY.distance,
    "detector_pixel": GEOMETRY.detector_pixel,
}
FAR: dict[str, Any] = {name: KNOWN[name] for name in ("distance", "detector_pixel")}


def arrays(folder: Path, **values: Any) -> Path:
    np.savez(folder / "scan.npz", **{"patterns": COUNTS, "positions": METRES, **values})
    return folder / "scan.npz"


def tiff(folder: Path) -> Path:
    tifffile.imwrite(folder / "scan.tif", COUNTS)
    return folder / "scan.tif"


def native(folder: Path) -> Path:
    pt.save_scan(SIMULATED, folder / "own.h5")
    return folder / "own.h5"


def fortran(folder: Path, patterns: Any) -> Path:
    np.save(folder / "patterns.npy", patterns)
    return folder / "patterns.npy"


def linked(folder: Path) -> Path:
    (folder / "inside").mkdir(exist_ok=True)
    with h5py.File(folder / "outside.h5", "w") as file:
        file["data"] = COUNTS
    with h5py.File(folder / "inside" / "scan.h5", "w") as file:
        file["entry/data"] = h5py.ExternalLink(str(folder / "outside.h5"), "data")
    return folder / "inside" / "scan.h5"


def cut_short(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-200])
    return path


def result() -> pt.Result:
    truth = SIMULATED.ground_truth
    return pt.Result(
        truth.object, truth.probe, SIMULATED.positions, (0, 0), r_factor=0.1, pixel_size=SIMULATED.pixel_size
    )


def in_the_sentence(sentence: str) -> dict[str, Any]:
    """The arguments that the sentence has as `load(..., patterns='a/b')` or as energy=8000."""
    line = re.search(r"load\(\.\.\., (.*?)\)(?=[.,;])", sentence) or re.search(r"give (\w+=[\d.e+-]+)", sentence)
    assert line, sentence
    return eval(f"dict({line[1].rstrip('.')})", {})


def reconstructed(scan: Scan, settings: pt.Settings | None = None, device: str = "cpu") -> Any:
    recon = pt.Reconstruction(scan, settings or pt.Settings(), device=device)
    try:
        return [*recon.run(1)]
    finally:
        recon.close()


def aimed(epoch: int) -> None:
    recon = pt.Reconstruction(plain, pt.Settings(), device="cpu", checkpointing=None)
    try:
        recon.target = epoch
    finally:
        recon.close()


def negative(**options: Any) -> Scan:
    corner = np.indices(COUNTS.shape[1:]).sum(0) == 0
    mask = ~corner if options else None
    return pt.Scan.from_arrays(np.where(corner, -3.0, COUNTS), SIMULATED.positions, mask=mask)


plain = pt.Scan.from_arrays(COUNTS.astype(np.float32), SIMULATED.positions)
thick = np.ones((2, 40, 40), complex)
tilted = replace(
    plain,
    geometry=pt.TiltedGeometry(
        wavelength=1e-9,
        detector_steps=((0.0, 1e-4, 0.0), (1e-4, 0.0, 0.0)),
        detector_centre=(0.0, 0.3, 0.4),
        beam=(0.0, 0.0, 1.0),
    ),
)

FOLLOWED = {
    "another raster": Case(
        lambda folder: pt.load(tiff(folder), raster=(3, 5), step=(1e-7, 1e-7), **KNOWN),
        "Give raster=(rows, columns) with a product of 12",
        lambda folder, _: pt.load(tiff(folder), raster=(4, 3), step=(1e-7, 1e-7), **KNOWN),
    ),
    "which patterns": Case(
        lambda folder: pt.load(hdf5(folder, a__one=COUNTS, a__two=COUNTS), positions=METRES, **KNOWN),
        "name one: load(..., patterns='a/one')",
        lambda folder, told: pt.load(folder / "scan.h5", positions=METRES, **KNOWN, **in_the_sentence(told)),
    ),
    "pixels for metres": Case(
        lambda folder: pt.load(arrays(folder, positions=SIMULATED.positions), **KNOWN),
        "give units='pixels' if they are object pixels",
        lambda folder, _: pt.load(arrays(folder, positions=SIMULATED.positions), units="pixels", **KNOWN),
    ),
    "keV for eV": Case(
        lambda folder: pt.load(arrays(folder, energy=8.3), **FAR),
        "keV taken as eV; give energy=8300",
        lambda folder, told: pt.load(arrays(folder, energy=8.3), **FAR, **in_the_sentence(told)),
    ),
    "a link that leads out": Case(
        lambda folder: pt.load(linked(folder), patterns="entry/data", positions=METRES, **KNOWN),
        "load(..., links='anywhere')",
        lambda folder, told: pt.load(
            linked(folder), patterns="entry/data", positions=METRES, **KNOWN, **in_the_sentence(told)
        ),
    ),
    "not SI": Case(
        lambda folder: pt.load(arrays(folder, energy=8000.0, distance=2000.0, detector_pixel=7.5e-5)),
        "give distance= [m]",
        lambda folder, _: pt.load(arrays(folder, energy=8000.0, detector_pixel=7.5e-5), distance=2.0),
    ),
    "a broken archive": Case(
        lambda folder: pt.load(cut_short(arrays(folder)), **KNOWN),
        "write it again with numpy.savez",
        lambda folder, _: pt.load(arrays(folder), **KNOWN),
    ),
    "momentum": Case(
        lambda _: pt.Settings(momentum=0.5),
        "set momentum=0 or use 'sgd', 'rpie' or 'lsqml'",
        lambda *_: [
            pt.Settings(momentum=0.5, optimiser="sgd"),
            pt.Settings(momentum=0.5, optimiser="rpie"),
            pt.Settings(momentum=0),
        ],
    ),
    "no ranges": Case(
        lambda _: pt.tune(plain, pt.Settings(), {}),
        "name at least one setting, as {'probe.learning_rate': pt.between(1e-4, 1e-1)}",
        lambda folder, _: pt.tune(
            plain,
            pt.Settings(),
            {"probe.learning_rate": pt.between(1e-4, 1e-1)},
            study=folder / "a.journal",
            trials=1,
            epochs=1,
            device="cpu",
        ).wait(),
    ),
    "a piece that DM does not know": Case(
        lambda _: reconstructed(plain, pt.Settings(optimiser="dm", pattern_intensities={"learning_rate": 0.1})),
        "use 'adam' or leave it out",
        lambda *_: (
            reconstructed(plain, pt.Settings(pattern_intensities={"learning_rate": 0.1})),
            reconstructed(plain, pt.Settings(optimiser="dm")),
        ),
    ),
    "a position far away": Case(
        lambda _: pt.Scan.from_arrays(COUNTS, np.vstack([SIMULATED.positions[:-1], [[900, 900]]])),
        "Leave such patterns out",
        lambda *_: pt.Scan.from_arrays(COUNTS[:-1], SIMULATED.positions[:-1]),
    ),
    "negative counts": Case(
        lambda _: negative(),
        "Give a mask that is False at bad pixels",
        lambda *_: reconstructed(negative(masked=True)),
    ),
    "slices of tilted planes": Case(
        lambda _: reconstructed(tilted, pt.Settings(slices={"count": 2, "thickness": 1e-6})),
        "leave slices.count and detector.oversampling at 1",
        lambda *_: reconstructed(tilted),
    ),
    "a finer grid of tilted planes": Case(
        lambda _: reconstructed(tilted, pt.Settings(detector={"oversampling": 2})),
        "leave slices.count and detector.oversampling at 1",
        lambda *_: reconstructed(tilted, pt.Settings(detector={"psf_sigma": 0.5})),
    ),
    "a pinhole too wide": Case(
        lambda _: illumination.pinhole_probe((16, 16), (1e-7, 1e-7), 1e-10, diameter=2e-6, distance=0.0),
        "use at least",
        lambda _, told: illumination.pinhole_probe(
            tuple(map(int, re.search(r"use at least (\d+) x (\d+)", told).groups())),
            (1e-7, 1e-7),
            1e-10,
            diameter=2e-6,
            distance=0.0,
        ),
    ),
    "a pinhole too small": Case(
        lambda _: illumination.pinhole_probe((16, 16), (1e-7, 1e-7), 1e-10, diameter=1e-7, distance=0.0),
        "use pixels of at most",
        lambda _, told: illumination.pinhole_probe(
            (16, 16), (float(re.search(r"at most ([\d.e-]+\d)", told)[1]),) * 2, 1e-10, diameter=1e-7, distance=0.0
        ),
    ),
    "odd blocks": Case(
        lambda _: preparation.bin(plain, 3),
        "Crop or pad them first",
        lambda *_: (preparation.bin(preparation.crop(plain, 12), 3), preparation.bin(preparation.pad(plain, 18), 3)),
    ),
    "a window outside": Case(
        lambda _: preparation.crop(plain, 12, centre=(2, 8)),
        "make it smaller, or pad them first",
        lambda *_: (preparation.crop(plain, 4, centre=(2, 8)), preparation.crop(preparation.pad(plain, 28), 12)),
    ),
}

NAMED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "metadata": (lambda folder: pt.load(arrays(folder)), "give it: load(...,"),
    "positions": (lambda folder: pt.load(tiff(folder), **KNOWN), "positions=array (pattern, yx)"),
    "raster instead": (lambda folder: pt.load(tiff(folder), **KNOWN), "or raster=(rows, columns) and step="),
    "which array": (lambda folder: pt.load(arrays(folder), patterns="nothing", **KNOWN), "name one with patterns=..."),
    "energy and wavelength": (
        lambda folder: pt.load(arrays(folder), wavelength=1e-10, **KNOWN),
        "defines the wavelength; give one of them",
    ),
    "a geometry of its own": (lambda folder: pt.load(native(folder), energy=8000.0), "leave out energy"),
    "Fortran's order": (
        lambda folder: pt.load(fortran(folder, np.asfortranarray(COUNTS)), positions=METRES, **KNOWN),
        "numpy.save(path, numpy.ascontiguousarray(patterns))",
    ),
    "no folder": (lambda folder: pt.save_scan(SIMULATED, folder / "new" / "scan.h5"), "make it first"),
    "a mask's name": (
        lambda folder: pt.save_mask(np.ones((4, 4), bool), folder / "mask.txt"),
        "expected the suffix .npy, .h5 or .hdf5",
    ),
    "a scan for a result": (lambda folder: pt.load_result(native(folder)), "open scans with load"),
    "a scan to start from": (lambda folder: pt.load_initial_guess(SIMULATED, native(folder)), "open it with load"),
    "angle and lengths": (
        lambda folder: pt.load(arrays(folder), angular_pixel=(1e-4, 1e-4), **KNOWN),
        "give the angle, or both lengths",
    ),
    "a folder for a report": (lambda folder: pt.report(result(), folder), "; choose another path"),
    "a folder for a result": (lambda folder: pt.load_result(folder), "; name the file in it"),
    "nothing to start from": (
        lambda folder: pt.load_initial_guess(SIMULATED, result(), probe=False, object=False, positions=False),
        "select its probe, object or positions",
    ),
    "slices without thickness": (lambda _: pt.Settings(slices={"count": 2}), "give the distance of two slices [m]"),
    "tilts of one slice": (lambda _: pt.Settings(tilt={"learning_rate": 0.1}), "set slices.count to at least 2"),
    "nothing moves": (
        lambda _: pt.Settings(object={"learning_rate": 0}, probe={"learning_rate": 0}),
        "set at least one of them to a positive value",
    ),
    "polar rPIE": (
        lambda _: pt.Settings(optimiser="rpie", object={"parametrization": "amplitude_phase"}),
        "use 'complex'",
    ),
    "rPIE's loss": (lambda _: pt.Settings(optimiser="rpie", loss="poisson"), "use 'amplitude'"),
    "portions": (lambda _: pt.Settings(batch=4, gradient_accumulation=8), "set gradient_accumulation to at most batch"),
    "states that are one": (
        lambda _: pt.Settings(regularizers=(pt.regularizers.Similarity(weight=0.1),)),
        "remove it or set object.modes to at least 2",
    ),
    "epochs in order": (lambda _: pt.Probe(start_epoch=9, end_epoch=3), "give an end_epoch that is not earlier"),
    "no run to aim": (lambda _: aimed(5), "start(...) begins one"),
    "no geometry": (
        lambda _: reconstructed(plain, pt.Settings(slices={"count": 2, "thickness": 1e-6})),
        "give the scan geometry=Geometry(...)",
    ),
    "no GPU": (lambda _: reconstructed(plain, device="cuda"), "Use device='cpu'"),
    "slices to expose": (
        lambda _: pt.simulate_diffraction(thick, SIMULATED.ground_truth.probe, SIMULATED.positions),
        "give both",
    ),
    "images of two shapes": (
        lambda _: analysis.fourier_ring_correlation(thick[0], thick[0, 2:], align=False),
        "Cut them to the same area",
    ),
    "a threshold": (
        lambda _: analysis.fourier_ring_correlation(thick[0], thick[0], align=False).crossing("half"),
        "expected 'half-bit', 'one-bit' or 'one-seventh'",
    ),
}


@pytest.mark.parametrize("case", FOLLOWED.values(), ids=FOLLOWED)
def test_what_the_sentence_says_helps(tmp_path: Path, case: Case) -> None:
    follow(case, tmp_path)


@each(("wrong", "told"), NAMED.values())
def test_the_sentence_names_a_remedy(tmp_path: Path, wrong: Callable[[Path], Any], told: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=re.escape(told)):
        wrong(tmp_path)
