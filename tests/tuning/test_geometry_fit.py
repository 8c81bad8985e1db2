"""Wrong geometry is found and put right: electrons by the first pictures, X-rays by short reconstructions."""

import dataclasses
import functools
import math

import numpy as np
import pytest

import ptynb as pt
from ptynb.engine import initial_probe
from ptynb.preparation import flip, rotate_positions, transpose
from ptynb.preparation.rotation_fit import rotation_if_known
from ptynb.tuning.geometry_fit import mended_geometry
from tests.analysis.test_direct_imaging import CONVERGENCE, GEOMETRY, electron_scan
from tests.parametrization import each

C10 = -8e-9


@functools.cache
def simulated():
    return electron_scan({"C10": C10}, counts=1e6)[0]


def electrons(*, pixel=1.0, c10=C10):
    """A scan with the probe of a lens, of which the file claims these values; the right pixel and C10 by default."""
    scan = simulated()
    size = GEOMETRY.detector_pixel[0] * pixel
    claimed = dataclasses.replace(GEOMETRY, detector_pixel=(size, size))
    positions = scan.positions * pixel  # the step in metres is known
    return dataclasses.replace(scan, geometry=claimed, positions=positions).with_probe(
        convergence_angle=CONVERGENCE, defocus=c10
    )


def better(scans, settings, epochs):
    """Losses of trials in which everything that is found fits better."""
    return [1e-6 / (index + 1) for index in range(len(scans))]


def no_better(scans, settings, epochs):
    return [0.01] * len(scans)


def not_called(scans, settings, epochs):
    raise AssertionError("there is nothing to try")


WRONG = {
    "transposed": (lambda: transpose(electrons()), ["transpose"]),
    "mirrored in y": (lambda: flip(electrons(), "y"), ["flip"]),
    "turned": (lambda: rotate_positions(electrons(), -0.5), ["rotate_positions"]),
    "transposed and turned": (lambda: transpose(rotate_positions(electrons(), 0.5)), ["transpose", "rotate_positions"]),
    "pixel": (lambda: electrons(pixel=0.93), ["calibrate_from_disc", "lens_probe"]),
    "defocus": (lambda: electrons(c10=1.4 * C10), ["lens_probe"]),
    "sign of the defocus": (lambda: electrons(c10=-C10), ["lens_probe"]),
}


@each("wrong", WRONG)
def test_wrong_geometry_of_electrons_is_put_right(wrong):
    make, steps = WRONG[wrong]
    scan = make()
    found = mended_geometry(scan, better)
    assert [step.function for step in found.steps] == steps, found.notes
    assert [name for name, reason in found.reasons if reason]
    # The steps are those of a recipe, and what they make is right.
    mended = pt.prepare(scan, found.steps)
    assert mended.metadata_digest == found.scan.metadata_digest
    seen = pt.direct(mended)
    assert not seen.transposed
    assert abs(math.degrees(seen.angle)) < 3
    # The disc of the simulated pupil is 3% too small.
    assert seen.aberrations["C10"] == pytest.approx(C10, rel=0.08 if wrong == "pixel" else 0.05)
    assert seen.convergence_angle == pytest.approx(CONVERGENCE, rel=0.04)
    right = electrons().probe[0]
    assert abs(np.vdot(mended.probe[0], right)) / np.linalg.norm(mended.probe) / np.linalg.norm(right) > 0.97


def test_right_geometry_is_left_alone():
    scan = electrons()
    for one in (scan, dataclasses.replace(scan, preparation=())):  # a lens, and a probe whose lens is not known
        assert mended_geometry(one, not_called).scan is one


@each("wrong", ["transposed", "defocus"])
def test_what_fits_no_better_is_left_out_and_said(wrong):
    scan = WRONG[wrong][0]()
    found = mended_geometry(scan, no_better)
    assert (found.scan is scan, found.steps) == (True, ())
    assert any("fits no better" in note for note in found.notes)


def test_electrons_without_a_probe_begin_with_that_of_the_fitted_lens():
    found = mended_geometry(dataclasses.replace(electrons(), probe=None, preparation=()), better)
    [step] = found.steps
    assert step.function == "lens_probe"
    assert step.arguments["aberrations"]["C10"] == pytest.approx(C10, rel=0.05)


def losses(scans, settings, epochs):
    found = []
    for scan in scans:
        recon = pt.Reconstruction(scan, settings, device="cpu", checkpointing=None)
        try:
            recon.start(epochs)
            recon.wait()
            found.append(recon.epochs[-1].loss)
        finally:
            recon.close(result=False)
    return found


def test_short_reconstructions_tell_the_orientation_of_x_rays(monkeypatch):
    monkeypatch.setattr(initial_probe, "EPOCHS", 8)  # of an easy scan
    right = pt.simulate(patterns=100, window=24, photons=1e5, seed=4)
    assert rotation_if_known(right, 100) is None, "otherwise the centres of mass tell"
    scan = dataclasses.replace(right, probe=None, ground_truth=None)
    found = mended_geometry(flip(scan, "x"), losses)
    assert [step.model_dump() for step in found.steps] == [{"flip": {"axes": "y"}}], "up to half a turn"
