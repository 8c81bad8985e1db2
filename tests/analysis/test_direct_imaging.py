"""First pictures of a scan: closed forms of the weak-phase model, and simulated scans with known aberrations."""

import dataclasses
import json
import math

import h5py
import numpy as np
from scipy import ndimage

import ptynb as pt
from ptynb import preparation
from ptynb.analysis.direct import direct_imaging
from ptynb.analysis.direct.direct_imaging import DirectReading
from ptynb.analysis.direct.position_grid import position_grid
from ptynb.analysis.direct.weak_phase import BrightFieldImages, WeakPhaseFit, integrated, turn_matrix
from ptynb.cli.main import main
from ptynb.data.patterns import ArrayFrames, ArrivingFrames, Frames
from tests.live_source import Source
from tests.parametrization import each
from tests.raising import raises

WAVELENGTH = pt.electrons.electron_wavelength(80e3)
CONVERGENCE = 0.0214
WINDOW = (64, 64)
GEOMETRY = pt.Geometry(wavelength=WAVELENGTH, distance=1.0, detector_pixel=(3e-3, 3e-3))
PIXEL = GEOMETRY.object_pixel(WINDOW)[0]
STEP = 3
"""Step of the scans [object pixels]: 0.65 Å."""


def random_phase(shape, smooth, seed=0):
    phase = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), smooth, mode="wrap")
    return phase / phase.std()


def raster(rows=24, columns=24, step=STEP):
    y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    return step * np.stack([y.ravel(), x.ravel()], 1).astype(float)


def electron_scan(aberrations, angle=0.0, transposed=False, *, counts=1e7, rms=0.15, positions=None, noise=True):
    """A scan of a weak random phase; positions are those that the correction takes to the true ones, and the phase."""
    claimed = raster() if positions is None else positions
    true = (claimed - claimed.mean(0)) @ turn_matrix(angle, transposed).T
    true = true - true.min(0)
    size = np.ceil(true.max(0)).astype(int) + WINDOW
    phase = rms * random_phase(tuple(size), 2.0)
    probe = math.sqrt(counts) * pt.illumination.electron_probe(
        WINDOW, (PIXEL, PIXEL), WAVELENGTH, CONVERGENCE, aberrations
    )
    scan = pt.simulate_diffraction(np.exp(1j * phase), probe[None], true, geometry=GEOMETRY, noise=noise)
    scan = dataclasses.replace(scan, positions=claimed, ground_truth=None)
    at = (true + np.array(WINDOW) // 2).T
    return scan, phase, at


def phase_images(fit, shape, step, radius, spacing, seed=0):
    """Images of bright-field pixels from p(k)p*(k - q), written out, of a periodic random phase, and this phase."""
    index = np.arange(-20, 21)
    pixels = np.stack(np.meshgrid(index, index, indexing="ij"), -1).reshape(-1, 2) * spacing
    pixels = pixels[np.hypot(*pixels.T) < radius]
    phase = 0.1 * random_phase(shape, 1.0, seed)
    spectrum = np.fft.fft2(phase)
    q = np.stack(np.meshgrid(*(np.fft.fftfreq(n, step) for n in shape), indexing="ij"), -1) @ fit.turn.T

    def pupil(k):
        wave = np.exp(-1j * np.pi * np.einsum("...i,ij,...j", k, fit.matrix, k))
        return np.where(np.hypot(k[..., 0], k[..., 1]) < radius, wave, 0)

    images = [
        np.fft.ifft2(spectrum * 1j * (np.conj(pupil(k)) * pupil(k - q) - pupil(k) * np.conj(pupil(k + q)))).real.astype(
            np.float32
        )
        for k in pixels
    ]
    return BrightFieldImages(np.stack(images, -1), (step, step), pixels, radius), phase


@each(("angle", "transposed"), [(0.0, False), (0.5, False), (-0.4, True)])
@each("known", [True, False])
def test_images_of_the_weak_phase_model_give_its_aberrations_and_its_phase(angle, transposed, known):
    radius, step = CONVERGENCE / WAVELENGTH, 0.6e-10
    truth = WeakPhaseFit(-9e-9 * WAVELENGTH, 1.5e-9 * WAVELENGTH, -1e-9 * WAVELENGTH, angle, transposed, 0.0)
    bright, phase = phase_images(truth, (40, 36), step, radius, radius / 7.1)
    found = bright.fit((angle + 0.02, transposed) if known else None)
    assert found is not None
    assert found.transposed is transposed
    assert abs(found.angle - angle) < math.radians(0.5)
    wrong = np.array([found.c10 - truth.c10, found.c12a - truth.c12a, found.c12b - truth.c12b]) / abs(truth.c10)
    assert np.abs(wrong).max() < 0.02
    # The shift of each image is the gradient of χ.
    shifts = bright.pixels @ (found.matrix - truth.matrix).T
    assert np.abs(shifts).max() < 0.1 * step
    _, band = bright.pictures(truth)
    assert np.corrcoef(band.ravel(), phase.ravel())[0, 1] > 0.98
    assert abs(np.polyfit(phase.ravel(), band.ravel(), 1)[0] - 1) < 0.1


@each("transposed", [False, True])
def test_a_mirrored_fit_with_much_astigmatism_has_the_shifts_of_one_with_defocus(transposed):
    fit = WeakPhaseFit(1e-9, -4e-9, 3e-9, 0.7, transposed, 2.0)
    other = fit.rounder
    assert other.transposed is not transposed
    assert math.hypot(other.c12a, other.c12b) < abs(other.c10)
    np.testing.assert_allclose(
        np.linalg.inv(other.turn) @ other.matrix, np.linalg.inv(fit.turn) @ fit.matrix, atol=1e-20
    )
    assert other.rounder is other


def test_parallax_is_the_aligned_sum_of_shifted_images():
    truth = WeakPhaseFit(6e-9 * WAVELENGTH, 0.0, 2e-9 * WAVELENGTH, 0.3, False, 0.0)
    step = 0.6e-10
    base = random_phase((32, 30), 1.5)
    pixels = np.random.default_rng(0).uniform(-3e9, 3e9, (50, 2))
    frequencies = np.stack(np.meshgrid(np.fft.fftfreq(32, step), np.fft.fftfreq(30, step), indexing="ij"), -1)
    spectrum = np.fft.fft2(base)
    seen = [
        np.fft.ifft2(spectrum * np.exp(2j * np.pi * (frequencies @ truth.turn.T @ truth.matrix @ k))) for k in pixels
    ]
    bright = BrightFieldImages(np.stack(seen, -1).real.astype(np.float32), (step, step), pixels, 5e9)
    aligned, _ = bright.pictures(truth)
    np.testing.assert_allclose(aligned, base, atol=1e-3)


def test_noise_alone_gives_no_aberrations():
    index = np.arange(-4, 5)
    pixels = np.stack(np.meshgrid(index, index, indexing="ij"), -1).reshape(-1, 2) * 1e9
    for seed in range(3):
        noise = np.random.default_rng(seed).standard_normal((32, 32, len(pixels))).astype(np.float32)
        assert BrightFieldImages(noise, (0.6e-10, 0.6e-10), pixels, 5e9).fit(None) is None


@each(
    ("c10", "astigmatism", "angle", "transposed", "counts"),
    [
        (-8e-9, (0.0, 0.0), 0.0, False, 1e6),
        (8e-9, (1e-9, 0.6), 0.0, False, 1e6),
        (-8e-9, (0.0, 0.0), math.radians(25), False, 1e5),
        (-8e-9, (0.0, 0.0), math.radians(-20), True, 1e6),
    ],
)
def test_a_scan_with_known_aberrations_and_rotation(c10, astigmatism, angle, transposed, counts):
    scan, phase, at = electron_scan({"C10": c10, "C12": astigmatism}, angle, transposed, counts=counts)
    found = pt.direct(scan)
    assert found.aberrations is not None, found
    assert found.transposed is transposed
    assert abs(math.degrees(found.angle - angle)) < 1
    assert abs(found.aberrations["C10"] / c10 - 1) < 0.05
    magnitude, azimuth = found.aberrations["C12"]
    error = magnitude * np.exp(2j * azimuth) - astigmatism[0] * np.exp(2j * astigmatism[1])
    assert abs(error) < 0.05 * abs(c10)
    assert abs(found.convergence_angle / CONVERGENCE - 1) < 0.05
    band = found.pictures["single side band"]
    expected = ndimage.map_coordinates(phase, at).reshape(band.shape)
    inside = (slice(4, -4),) * 2  # behind the edges half of the signal is not in the scan
    assert np.corrcoef(band[inside].ravel(), expected[inside].ravel())[0, 1] > 0.8
    assert ("transpose" in str(found.lines)) is transposed
    assert ("rotate" in str(found.lines)) is (transposed or angle != 0)
    # The probe of the last line has the aberrations.
    probe = eval(found.lines[-1].partition("=")[2], {"pt": pt, "scan": scan})
    true = pt.illumination.electron_probe(
        WINDOW, scan.pixel_size, WAVELENGTH, CONVERGENCE, {"C10": c10, "C12": astigmatism}
    )
    assert abs(np.vdot(probe, true)) > 0.95


def test_a_reconstruction_may_begin_with_what_was_found():
    scan, _, at = electron_scan({"C10": -8e-9}, 0.3, True)
    guess = pt.direct(scan).initial_guess(scan)
    # Distances are those of the true places.
    np.testing.assert_allclose(np.ptp(guess.positions, 0), np.ptp(at, 1), rtol=0.03)
    true = pt.illumination.electron_probe(WINDOW, scan.pixel_size, WAVELENGTH, CONVERGENCE, {"C10": -8e-9})
    assert abs(np.vdot(guess.probe[0], true)) > 0.95
    steps = [next(iter(step)) for step in guess.preparation]
    assert steps == ["transpose_positions", "rotate_positions", "lens_probe"]


def test_the_integrated_phase_of_a_focused_probe_is_the_phase_that_the_probe_smooths():
    scan, phase, at = electron_scan({}, 0.3, noise=False, rms=0.05)
    found = pt.direct(scan)
    light = np.abs(pt.illumination.electron_probe(WINDOW, (PIXEL, PIXEL), WAVELENGTH, CONVERGENCE, {})) ** 2
    smooth = ndimage.convolve(phase, light[16:49, 16:49], mode="wrap")
    expected = ndimage.map_coordinates(smooth, at).reshape(found.pictures["integrated phase"].shape)
    inside = (slice(3, -3),) * 2
    seen, known = (one[inside] - one[inside].mean() for one in (found.pictures["integrated phase"], expected))
    assert np.corrcoef(seen.ravel(), known.ravel())[0, 1] > 0.95
    assert abs((seen * known).sum() / (known**2).sum() - 1) < 0.1


@each("order", ["centred", "fft"])
def test_virtual_detectors_are_sums_over_the_detector(order):
    random = np.random.default_rng(3)
    y, x = np.mgrid[:32, :32] - 16
    disc = np.hypot(y - 1, x + 2) < 8
    patterns = random.poisson(np.where(disc, 30, 1), (121, 32, 32)).astype(np.uint16)
    mask = np.ones((32, 32), bool)
    mask[10, 20] = False
    shown = patterns if order == "centred" else np.fft.ifftshift(patterns, axes=(1, 2))
    scan = pt.Scan.from_arrays(
        shown,
        raster(11, 11),
        order=order,
        mask=mask if order == "centred" else np.fft.ifftshift(mask),
        geometry=GEOMETRY,
    )
    told = []
    found = pt.direct(scan, report=told.append)
    assert told[-1] == 121
    good = np.where(mask, patterns, 0).astype(float)
    radius, centre = found.disc.radius, found.disc.centre
    assert abs(radius - 8) < 0.5
    away = np.hypot(y - centre[0], x - centre[1])
    np.testing.assert_allclose(found.pictures["sum"], good.sum((1, 2)).reshape(11, 11), rtol=1e-6)
    np.testing.assert_allclose(
        found.pictures["bright field"], good[:, away <= radius].sum(1).reshape(11, 11), rtol=1e-6
    )
    dark = good[:, away > 1.1 * radius].sum(1).reshape(11, 11)
    np.testing.assert_allclose(found.pictures["dark field"], dark, rtol=1e-6)
    moments = preparation.centre_of_mass(scan)
    unit = GEOMETRY.detector_pixel[0] / GEOMETRY.distance  # [rad]
    expected = ((moments - moments.mean(0)) * unit @ turn_matrix(found.angle, found.transposed)).reshape(11, 11, 2)
    np.testing.assert_allclose(found.pictures["deflection y"], expected[..., 0], atol=1e-4 * unit)
    np.testing.assert_allclose(found.pictures["deflection x"], expected[..., 1], atol=1e-4 * unit)
    assert "single side band" not in found.pictures
    assert "no common shift" in str(found)
    assert found.pixel_size == tuple(3 * one for one in scan.pixel_size)
    np.testing.assert_allclose(found.y, (3 * np.arange(11) + 16) * scan.pixel_size[0])


def test_the_gradient_of_a_field_gives_the_field():
    y, x = np.meshgrid(np.arange(48) * 0.5, np.arange(40) * 0.25, indexing="ij")
    field = np.cos(np.pi * (y + 0.25) / 24 * 3) * np.cos(np.pi * (x + 0.125) / 10 * 2)
    slope_y = -np.pi / 24 * 3 * np.sin(np.pi * (y + 0.25) / 24 * 3) * np.cos(np.pi * (x + 0.125) / 10 * 2)
    slope_x = -np.pi / 10 * 2 * np.cos(np.pi * (y + 0.25) / 24 * 3) * np.sin(np.pi * (x + 0.125) / 10 * 2)
    found = integrated(np.stack([slope_y, slope_x], -1), (0.5, 0.25))
    np.testing.assert_allclose(found, field - field.mean(), atol=1e-12)


def test_a_raster_in_any_order_is_the_grid_itself():
    places = raster(7, 9, 2.5) + np.array([3.0, 4.0])
    places += np.random.default_rng(0).uniform(-0.1, 0.1, places.shape)
    order = np.random.default_rng(1).permutation(63)
    grid = position_grid(places[order])
    assert grid.raster
    assert (len(grid.y), len(grid.x)) == (7, 9)
    assert grid.inside.all()
    np.testing.assert_array_equal(grid.picture(np.arange(63.0)[order]), np.arange(63.0).reshape(7, 9))
    np.testing.assert_allclose(grid.step, 2.5, rtol=0.02)


def test_scattered_positions_are_interpolated_and_said_to_be():
    places = np.random.default_rng(0).uniform(0, 40, (1600, 2))
    places = places[np.hypot(*(places - 20).T) < 20]
    grid = position_grid(places)
    assert not grid.raster
    assert 0.7 < grid.inside.mean() < 0.9  # the corners are outside of a disc
    wave = np.cos(places @ [0.2, 0.1])
    expected = np.cos(0.2 * grid.y[:, None] + 0.1 * grid.x)
    assert np.abs(grid.picture(wave) - expected)[grid.inside].mean() < 0.04
    spiral = np.sqrt(np.arange(500))[:, None] * np.stack(
        [np.sin(2.4 * np.arange(500)), np.cos(2.4 * np.arange(500))], 1
    )
    scan, *_ = electron_scan({"C10": -8e-9}, counts=1e6, positions=STEP * (spiral - spiral.min(0)))
    found = pt.direct(scan)
    assert "interpolated from scattered positions" in str(found)
    assert np.isnan(found.pictures["sum"]).any()
    assert abs(found.aberrations["C10"] / -8e-9 - 1) < 0.1


def test_only_some_patterns_are_in_memory_at_once(monkeypatch):
    monkeypatch.setattr("ptynb.preparation.shared_transforms.PIECE", 64 * 64 * 20)
    scan, *_ = electron_scan({"C10": -8e-9}, counts=1e5)
    whole, reads = scan.frames, []

    class Recording(Frames):
        shape, dtype = whole.shape, whole.dtype

        def read(self, start, stop):
            reads.append((start, stop))
            return whole.read(start, stop)

    found = pt.direct(dataclasses.replace(scan, frames=Recording()))
    assert max(stop - start for start, stop in reads) <= 32 * 4  # of the sample: a portion of the survey
    passed = [(start, stop) for start, stop in reads if stop - start > 1]
    assert [part for part in passed if part[1] - part[0] <= 20] == [
        (start, min(start + 20, 576)) for start in range(0, 576, 20)
    ]
    np.testing.assert_allclose(found.pictures["sum"].ravel(), whole.read(0, 576).sum((1, 2)), rtol=1e-6)


def test_pictures_are_exported_and_drawn(tmp_path, capsys):
    scan, *_ = electron_scan({"C10": -8e-9}, counts=1e5)
    file = tmp_path / "scan.h5"
    pt.save_scan(scan, file)
    outputs = [tmp_path / name for name in ("found.h5", "found.npz", "found.png")]
    assert main(["direct", str(file), "--json", "--output", *map(str, outputs)]) == 0
    plain = json.loads(capsys.readouterr().out)
    found = pt.direct(scan)
    assert plain["aberrations"]["C10"] == found.aberrations["C10"]
    with h5py.File(outputs[0]) as stored, np.load(outputs[1]) as arrays:
        assert json.loads(stored["entry/found"][()])["lines"] == plain["lines"]
        assert set(arrays) == {*found.pictures, "y", "x", "found"}
        for name, values in found.pictures.items():
            np.testing.assert_allclose(arrays[name], values)
            np.testing.assert_allclose(stored[f"entry/{name}/data"][()], values, rtol=1e-6)
            assert stored[f"entry/{name}/data"].attrs["units"] == found.units[name]
            np.testing.assert_allclose(stored[f"entry/{name}/x"][()], found.x)
    assert outputs[2].read_bytes().startswith(b"\x89PNG")
    page = pt.figure(found)
    assert [axes.get_title() for axes in page.axes if axes.get_title()][-1] == "Single side band [rad]"
    shown = found._repr_html_()
    assert shown.count("<img") == len(found.pictures) == 8
    assert "nm (underfocus)" in shown
    assert main(["direct", str(file)]) == 0
    assert "nm (underfocus)" in capsys.readouterr().out
    with raises("file.unknown-format", ".tif"):
        pt.export(found, tmp_path / "found.tif")
    with raises("argument.conflict"):
        pt.figure(found, ticks=True)


def test_without_geometry_there_are_pictures_and_no_lengths():
    scan, *_ = electron_scan({"C10": -8e-9}, counts=1e5)
    found, known = pt.direct(dataclasses.replace(scan, geometry=None)), pt.direct(scan)
    assert found.aberrations is None
    assert found.pixel_size is None
    assert found.units["deflection y"] == "detector pixels"
    np.testing.assert_allclose(
        found.pictures["deflection y"] * GEOMETRY.detector_pixel[0], known.pictures["deflection y"], atol=2e-6
    )
    np.testing.assert_allclose(found.pictures["integrated phase"], known.pictures["integrated phase"], atol=0.05)
    np.testing.assert_allclose(found.x, known.x / PIXEL)
    assert np.corrcoef(found.pictures["parallax"].ravel(), known.pictures["parallax"].ravel())[0, 1] > 0.999


def test_what_direct_cannot_read():
    scan = electron_scan({}, positions=raster(4, 4))[0]
    near = pt.NearField(wavelength=1e-10, focus_to_sample=math.inf, sample_to_detector=0.1, detector_pixel=(1e-6, 1e-6))
    with raises("scan.near-field"):
        pt.direct(dataclasses.replace(scan, geometry=near))
    with raises("scan.combined", 2):
        pt.direct(preparation.combine([scan, scan], share="probe"))
    with raises("scan.empty"):
        pt.direct(dataclasses.replace(scan, frames=ArrayFrames.of(np.zeros((16, 64, 64), np.uint16))))
    with raises("scan.too-few-patterns", 16):
        pt.direct(dataclasses.replace(scan, positions=np.arange(32.0).reshape(16, 2)))


def test_a_scan_that_is_being_measured_gives_pictures_of_what_has_come(tmp_path, monkeypatch):
    """Each pattern is read once, but for the first ones, which show where the disc is."""
    whole = electron_scan({"C10": -20e-9})[0]
    source, taken = Source(whole, tmp_path), []
    take = ArrivingFrames.take
    monkeypatch.setattr(
        ArrivingFrames,
        "take",
        lambda frames, indices, out: (taken.extend(indices.tolist()), take(frames, indices, out)),
    )
    try:
        with raises("scan.live", 576):
            pt.direct(source.live)
        came = 24 * 11
        source.give(range(came))
        reading = DirectReading(source.live)
        assert reading.read(most=100)
        assert not reading.read()
        half = reading.images()
        with monkeypatch.context() as without:
            without.setattr(direct_imaging, "FEWEST_PIXELS", math.inf)  # the angle of the deflections
            alone = pt.direct(preparation.select(whole, np.arange(came)))
        assert (half.raster, half.rotation) == (True, alone.rotation)
        for name in ("sum", "bright field", "dark field", "deflection y", "deflection x", "integrated phase"):
            seen = half.pictures[name]
            assert np.isnan(seen[11:]).all()
            np.testing.assert_allclose(seen[:11], alone.pictures[name], rtol=1e-6, atol=1e-6 * np.ptp(seen[:11]))
        assert "single side band" not in half.pictures
        assert "264 of 576 patterns" in str(half)
        taken.clear()
        source.give([400, *range(came, 300)])
        assert not reading.read()
        assert not reading.read(), "nothing has come since"
        assert sorted(taken) == [*range(came, 300), 400]
        known = np.isfinite(reading.images().pictures["sum"]).ravel()
        np.testing.assert_array_equal(np.flatnonzero(known), [*range(300), 400])
        source.give(range(576))
        reading.read()
        assert len(set(taken)) == len(taken)
        now, complete = reading.images(), pt.direct(whole)
        np.testing.assert_allclose(now.pictures["sum"], complete.pictures["sum"], rtol=1e-6)
        assert now.rotation == complete.rotation
    finally:
        source.close()


def test_measured_positions_are_interpolated_on_the_grid_of_the_plan(tmp_path):
    plan = electron_scan({}, positions=raster(12, 12))[0]
    measured = plan.positions + np.random.default_rng(0).uniform(-1.2, 1.2, plan.positions.shape)
    source = Source(plan, tmp_path, positions=measured, positions_planned=False)
    try:
        source.give(range(72))
        found = pt.direct(source.live)
    finally:
        source.close()
    seen, sums = found.pictures["sum"], plan.counts(0, 144).sum((1, 2)).reshape(12, 12)
    assert (found.raster, seen.shape) == (False, (12, 12))
    assert np.isfinite(seen[:6]).all()
    assert np.isnan(seen[8:]).all()
    assert np.abs(seen[:6] - sums[:6]).max() < np.ptp(sums)
    assert not np.array_equal(seen[:6], sums[:6])
