"""What an error tells its reader to do is done here, and works.

Each case goes wrong with the words that it names, and goes right by doing what they say; a line of Python in the
sentence is taken as it stands. `python -m tests.remedies` lists sentences with a remedy that no test names.
"""

from __future__ import annotations

import re
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


def built(**settings: Any) -> pt.Settings:
    return pt.Settings(**settings)


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

FILES = {
    "metadata": Case(
        lambda folder: pt.load(arrays(folder)),
        "give it: load(...,",
        lambda folder, _: pt.load(arrays(folder), **KNOWN),
    ),
    "positions": Case(
        lambda folder: pt.load(tiff(folder), **KNOWN),
        "positions=array (pattern, yx)",
        lambda folder, _: pt.load(tiff(folder), positions=METRES, **KNOWN),
    ),
    "raster instead": Case(
        lambda folder: pt.load(tiff(folder), **KNOWN),
        "or raster=(rows, columns) and step=",
        lambda folder, _: pt.load(tiff(folder), raster=(3, 4), step=(1e-7, 1e-7), **KNOWN),
    ),
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
    "which array": Case(
        lambda folder: pt.load(arrays(folder), patterns="nothing", **KNOWN),
        "name one with patterns=...",
        lambda folder, _: pt.load(arrays(folder), patterns="patterns", **KNOWN),
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
    "energy and wavelength": Case(
        lambda folder: pt.load(arrays(folder), wavelength=1e-10, **KNOWN),
        "defines the wavelength; give one of them",
        lambda folder, _: pt.load(arrays(folder), **KNOWN),
    ),
    "a geometry of its own": Case(
        lambda folder: pt.load(native(folder), energy=8000.0),
        "leave out energy",
        lambda folder, _: pt.load(native(folder)),
    ),
    "a link that leads out": Case(
        lambda folder: pt.load(linked(folder), patterns="entry/data", positions=METRES, **KNOWN),
        "load(..., links='anywhere')",
        lambda folder, told: pt.load(
            linked(folder), patterns="entry/data", positions=METRES, **KNOWN, **in_the_sentence(told)
        ),
    ),
    "Fortran's order": Case(
        lambda folder: pt.load(fortran(folder, np.asfortranarray(COUNTS)), positions=METRES, **KNOWN),
        "numpy.save(path, numpy.ascontiguousarray(patterns))",
        lambda folder, _: pt.load(fortran(folder, np.ascontiguousarray(COUNTS)), positions=METRES, **KNOWN),
    ),
    "no folder": Case(
        lambda folder: pt.save_scan(SIMULATED, folder / "new" / "scan.h5"),
        "make it first",
        lambda folder, _: ((folder / "new").mkdir(), pt.save_scan(SIMULATED, folder / "new" / "scan.h5")),
    ),
    "a mask's name": Case(
        lambda folder: pt.save_mask(np.ones((4, 4), bool), folder / "mask.txt"),
        "expected the suffix .npy, .h5 or .hdf5",
        lambda folder, _: pt.load_mask(pt.save_mask(np.ones((4, 4), bool), folder / "mask.npy")),
    ),
    "a scan for a result": Case(
        lambda folder: pt.load_result(native(folder)),
        "open scans with load",
        lambda folder, _: pt.load(native(folder)),
    ),
    "a scan to start from": Case(
        lambda folder: pt.load_initial_guess(SIMULATED, native(folder)),
        "open it with load",
        lambda folder, _: pt.load(native(folder)),
    ),
}

FILES |= {
    "not SI": Case(
        lambda folder: pt.load(arrays(folder, energy=8000.0, distance=2000.0, detector_pixel=7.5e-5)),
        "give distance= [m]",
        lambda folder, _: pt.load(arrays(folder, energy=8000.0, detector_pixel=7.5e-5), distance=2.0),
    ),
    "angle and lengths": Case(
        lambda folder: pt.load(arrays(folder), angular_pixel=(1e-4, 1e-4), **KNOWN),
        "give the angle, or both lengths",
        lambda folder, _: pt.load(arrays(folder), angular_pixel=(1e-4, 1e-4), energy=GEOMETRY.energy),
    ),
    "a broken archive": Case(
        lambda folder: pt.load(cut_short(arrays(folder)), **KNOWN),
        "write it again with numpy.savez",
        lambda folder, _: pt.load(arrays(folder), **KNOWN),
    ),
    "a folder for a report": Case(
        lambda folder: pt.report(result(), folder),
        "; choose another path",
        lambda folder, _: pt.report(result(), folder / "report.html"),
    ),
    "a folder for a result": Case(
        lambda folder: pt.load_result(folder),
        "; name the file in it",
        lambda folder, _: pt.load_result(pt.save_result(result(), folder / "a.h5")),
    ),
    "nothing to start from": Case(
        lambda folder: pt.load_initial_guess(SIMULATED, result(), probe=False, object=False, positions=False),
        "select its probe, object or positions",
        lambda folder, _: pt.load_initial_guess(SIMULATED, result(), object=False, positions=False),
    ),
}

SETTINGS = {
    "slices without thickness": Case(
        lambda _: built(slices={"count": 2}),
        "give the distance of two slices [m]",
        lambda *_: built(slices={"count": 2, "thickness": 1e-6}),
    ),
    "tilts of one slice": Case(
        lambda _: built(tilt={"learning_rate": 0.1}),
        "set slices.count to at least 2",
        lambda *_: built(tilt={"learning_rate": 0.1}, slices={"count": 2, "thickness": 1e-6}),
    ),
    "nothing moves": Case(
        lambda _: built(object={"learning_rate": 0}, probe={"learning_rate": 0}),
        "set at least one of them to a positive value",
        lambda *_: built(object={"learning_rate": 0.01}, probe={"learning_rate": 0}),
    ),
    "momentum": Case(
        lambda _: built(momentum=0.5),
        "set momentum=0 or use 'sgd', 'rpie' or 'lsqml'",
        lambda *_: [built(momentum=0.5, optimiser="sgd"), built(momentum=0.5, optimiser="rpie"), built(momentum=0)],
    ),
    "polar rPIE": Case(
        lambda _: built(optimiser="rpie", object={"parametrization": "amplitude_phase"}),
        "use 'complex'",
        lambda *_: built(optimiser="rpie", object={"parametrization": "complex"}),
    ),
    "rPIE's loss": Case(
        lambda _: built(optimiser="rpie", loss="poisson"),
        "use 'amplitude'",
        lambda *_: built(optimiser="rpie", loss="amplitude"),
    ),
    "portions": Case(
        lambda _: built(batch=4, gradient_accumulation=8),
        "set gradient_accumulation to at most batch",
        lambda *_: built(batch=4, gradient_accumulation=4),
    ),
    "states that are one": Case(
        lambda _: built(regularizers=(pt.regularizers.Similarity(weight=0.1),)),
        "remove it or set object.modes to at least 2",
        lambda *_: (built(), built(regularizers=(pt.regularizers.Similarity(weight=0.1),), object={"modes": 2})),
    ),
    "epochs in order": Case(
        lambda _: pt.Probe(start_epoch=9, end_epoch=3),
        "give an end_epoch that is not earlier",
        lambda *_: pt.Probe(start_epoch=9, end_epoch=9),
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
}

RUNS = {
    "a piece that DM does not know": Case(
        lambda _: reconstructed(plain, built(optimiser="dm", pattern_intensities={"learning_rate": 0.1})),
        "use 'adam' or leave it out",
        lambda *_: (
            reconstructed(plain, built(pattern_intensities={"learning_rate": 0.1})),
            reconstructed(plain, built(optimiser="dm")),
        ),
    ),
    "no run to aim": Case(
        lambda _: aimed(5),
        "start(...) begins one",
        lambda *_: reconstructed(plain),
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
    "no geometry": Case(
        lambda _: reconstructed(plain, built(slices={"count": 2, "thickness": 1e-6})),
        "give the scan geometry=Geometry(...)",
        lambda *_: reconstructed(replace(plain, geometry=GEOMETRY), built(slices={"count": 2, "thickness": 1e-6})),
    ),
    "slices of tilted planes": Case(
        lambda _: reconstructed(tilted, built(slices={"count": 2, "thickness": 1e-6})),
        "leave slices.count and detector.oversampling at 1",
        lambda *_: reconstructed(tilted),
    ),
    "a finer grid of tilted planes": Case(
        lambda _: reconstructed(tilted, built(detector={"oversampling": 2})),
        "leave slices.count and detector.oversampling at 1",
        lambda *_: reconstructed(tilted, built(detector={"psf_sigma": 0.5})),
    ),
    "no GPU": Case(
        lambda _: reconstructed(plain, device="cuda"),
        "Use device='cpu'",
        lambda *_: reconstructed(plain, device="cpu"),
    ),
    "slices to expose": Case(
        lambda _: pt.simulate_diffraction(thick, SIMULATED.ground_truth.probe, SIMULATED.positions),
        "give both",
        lambda *_: pt.simulate_diffraction(
            thick, SIMULATED.ground_truth.probe, SIMULATED.positions, geometry=GEOMETRY, thickness=1e-6
        ),
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
    "images of two shapes": Case(
        lambda _: analysis.fourier_ring_correlation(thick[0], thick[0, 2:], align=False),
        "Cut them to the same area",
        lambda *_: analysis.fourier_ring_correlation(thick[0, 2:], thick[0, 2:], align=False),
    ),
    "a threshold": Case(
        lambda _: analysis.fourier_ring_correlation(thick[0], thick[0], align=False).crossing("half"),
        "expected 'half-bit', 'one-bit' or 'one-seventh'",
        lambda *_: [
            analysis.fourier_ring_correlation(thick[0], thick[0], align=False).crossing(name)
            for name in ("half-bit", "one-bit", "one-seventh")
        ],
    ),
}


@pytest.mark.parametrize("case", [*FILES.values(), *SETTINGS.values(), *RUNS.values()], ids=[*FILES, *SETTINGS, *RUNS])
def test_what_the_sentence_says_helps(tmp_path: Path, case: Case) -> None:
    follow(case, tmp_path)
