"""Several scans made one: what is read, where objects lie, what each pattern is modelled as, and what cannot be one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.components.component import Batch
from ptynb.physics.losses import AmplitudeLoss
from ptynb.physics.model_builder import check_together, initial_arrays, make_model, object_frame
from ptynb.preparation import combine
from ptynb.settings import OPR, Affine, Descan, Detector, FlyScan, Positions, Probe, ProbeOffset, Settings
from tests.parametrization import each
from tests.raising import raises


def two(window: int = 32, **changes: Any) -> list[Scan]:
    scans = [pt.simulate(patterns=count, window=window, seed=seed, step=4) for count, seed in ((9, 1), (16, 2))]
    return [dataclasses.replace(scan, name=name, **changes) for scan, name in zip(scans, "ab", strict=True)]


def modelled(
    scan: Scan, settings: Settings, object: torch.Tensor, probe: torch.Tensor, moves: torch.Tensor | None = None
) -> torch.Tensor:
    """Intensities of all patterns (pattern, y, x) for this object (state, slice, y, x) and probe (mode, y, x).

    moves: (pattern, yx); with them, all positions are also rotated, scaled and shifted.
    """
    model = make_model(scan, settings, object, probe, AmplitudeLoss(1.0), mean_count=1.0)
    if moves is not None:
        affine, positions, offset = (model.components[name] for name in ("affine", "positions", "offset"))
        affine.active = positions.active = offset.active = True
        affine.map.data = affine.radius * torch.tensor([[0.01, 0.02], [-0.02, 0.03]], dtype=torch.float64)
        positions.moves.data, offset.shift.data = moves, torch.full_like(offset.shift, 0.3)
    counts = torch.zeros((len(scan), *scan.pattern_shape), dtype=torch.float64)
    return model.intensities(Batch(torch.arange(len(scan)), counts, len(scan), torch.float64)).detach()


def noise(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.complex128)


MODEL = Settings(
    precision="double",
    probe=Probe(modes=2),
    positions=Positions(learning_rate=0.1, max_shift=3),
    affine=Affine(learning_rate=0.1),
    probe_offset=ProbeOffset(learning_rate=0.1),
    fly_scan=FlyScan(steps=2),
)


@each("oversampling", [1, 2])
def test_with_a_common_probe_each_pattern_is_that_of_its_scan_alone(oversampling: int) -> None:
    """Only the part of the object that belongs to a scan counts: the rest of the array is noise."""
    settings = MODEL.replace(detector=Detector(oversampling=oversampling))
    scans = two()
    one = combine(scans, share="probe", gap=2 * settings.margin + 32 * (oversampling - 1))
    check_together(one, settings)
    window = (32 * oversampling,) * 2
    probe, frame = noise((2, *window), 0), object_frame(one, settings)
    object = noise((1, 1, *frame.shape), 1)
    moves = noise((len(one), 2), 2).real
    reached = np.zeros(frame.shape, int)
    together = modelled(one, settings, object, probe, moves)
    assert one.combination is not None
    for scan, span, offset in zip(scans, one.spans, one.combination.offsets, strict=True):
        own = object_frame(scan, settings)
        top, left = (np.array(own.origin) + offset - frame.origin).astype(int)
        part = object[..., top : top + own.shape[0], left : left + own.shape[1]]
        assert part.shape[-2:] == own.shape
        reached[top : top + own.shape[0], left : left + own.shape[1]] += 1
        alone = modelled(scan, settings, part, probe, moves[span])
        torch.testing.assert_close(together[span], alone, rtol=1e-9, atol=1e-9)
    assert reached.max() == 1, "no window reaches the object of two scans, wherever it moves"


def test_each_scan_has_a_plane_of_shifts_of_its_own() -> None:
    scans, settings = two(), Settings(descan=Descan(start="plane"), batch=9)
    one = combine(scans, share="probe")
    shifts = []
    for scan in (one, *scans):
        loop = Loop(scan, settings, SingleGroup(torch.device("cpu")))
        shifts.append(loop.model.components["descan"].arrays()["shifts"])
        loop.disconnect()
    for span, alone in zip(one.spans, shifts[1:], strict=True):
        assert alone.abs().max() > 1e-3
        torch.testing.assert_close(shifts[0][span], alone)


def test_with_a_common_object_each_pattern_is_that_of_its_own_probe() -> None:
    settings = Settings(precision="double", probe=Probe(modes=2), opr=OPR(modes=1))
    one = combine(two(), share="object", shifts=[(0, 0), (2.5, -3)])
    frame = object_frame(one, settings)
    object, probes = noise((1, 1, *frame.shape), 1), noise((4, 32, 32), 0)
    together = modelled(one, settings, object, probes)
    plain = dataclasses.replace(one, combination=None)
    for number, span in enumerate(one.spans):
        alone = modelled(plain, settings, object, probes[2 * number : 2 * number + 2])
        torch.testing.assert_close(together[span], alone[span], rtol=1e-9, atol=1e-9)
        assert not torch.allclose(together[span], modelled(plain, settings, object, probes[1:3])[span])


def test_each_scan_of_a_common_object_begins_with_its_own_probe() -> None:
    scans = two()
    scans[1] = dataclasses.replace(scans[1], probe=None)
    one = combine(scans, share="object")
    means = torch.from_numpy(np.stack([scan.counts(0, len(scan)).mean(0) for scan in scans]))
    means = torch.fft.ifftshift(means, (-2, -1))
    _, both = initial_arrays(one, Settings(), means, torch.complex128)
    for scan, mean, probe in zip(scans, means, both, strict=True):
        _, alone = initial_arrays(scan, Settings(), mean, torch.complex128)
        torch.testing.assert_close(probe, alone[0])


def test_patterns_are_read_in_sequence_and_from_their_own_files(tmp_path: Path) -> None:
    scans = two()
    narrow = dataclasses.replace(
        scans[0], frames=type(scans[0].frames).of(np.minimum(scans[0].counts(0, 9), 255).astype(np.uint8))
    )
    stored = [pt.save_scan(narrow, tmp_path / "a.h5"), pt.save_scan(scans[1], tmp_path / "b.h5")]
    one = combine(stored, share="probe")
    assert one.frames.in_file
    assert len(one) == 25
    assert one.name == "a + b"
    np.testing.assert_array_equal(one.counts(7, 12), np.concatenate([narrow.counts(7, 9), scans[1].counts(0, 3)]))
    _ = one.sample_digest  # is computed once, from all patterns, and goes with every part
    (tmp_path / "a.h5").unlink()
    np.testing.assert_array_equal(one.part(np.arange(10, 20)).counts(10, 20), scans[1].counts(1, 11))


def test_pixels_that_are_bad_in_one_scan_are_used_in_none() -> None:
    scans, masks = two(), np.ones((2, 32, 32), bool)
    masks[0, 3, :5], masks[1, 3, 4:6] = False, False
    with pytest.warns(pt.PtynbWarning, match="4 of 1024 pixels"):
        one = combine([dataclasses.replace(s, mask=m) for s, m in zip(scans, masks, strict=True)], share="probe")
    assert one.mask is not None
    np.testing.assert_array_equal(one.mask, masks[0] & masks[1])


@each("share", ["probe", "object"])
def test_initial_objects_lie_where_their_scans_do(share: Any) -> None:
    first, second = two()
    assert first.ground_truth is not None
    first = dataclasses.replace(first, object=first.ground_truth.object)
    one = combine([first, second], share=share, shifts=None if share == "probe" else [(0, 0), (-3, 4)])
    assert one.object is not None
    assert one.combination is not None
    top, left = one.combination.offsets[0].astype(int)
    height, width = first.ground_truth.object.shape
    np.testing.assert_array_equal(one.object[top : top + height, left : left + width], first.ground_truth.object)
    assert (np.rint(one.positions) >= 0).all()
    outside = one.object.copy()
    outside[top : top + height, left : left + width] = 1
    np.testing.assert_array_equal(outside, 1)


NEAR = pt.NearField(wavelength=1.5e-10, focus_to_sample=0.01, sample_to_detector=1.0, detector_pixel=(5e-5, 5e-5))
DIFFERENT: dict[str, tuple[Any, tuple[str, ...]]] = {
    "wavelength": (
        lambda scan: dataclasses.replace(scan, geometry=dataclasses.replace(scan.geometry, wavelength=1.6e-10)),
        ("wavelength (1.5e-10 and 1.6e-10 m)", "object pixel"),
    ),
    "size": (lambda scan: pt.preparation.crop(scan, 24), ("size of the patterns (32 x 32 and 24 x 24 pixels)",)),
    "kind": (lambda scan: dataclasses.replace(scan, geometry=NEAR), ("kind of geometry (Geometry and NearField)",)),
    "order": (lambda scan: dataclasses.replace(scan, centred=False), ("pixel order (centred) (True and False)",)),
    "motion": (lambda scan: dataclasses.replace(scan, motion=scan.positions), ("motion",)),
}


@each("name", DIFFERENT)
def test_what_differs_is_named(name: str) -> None:
    change, facts = DIFFERENT[name]
    first, second = two()
    with raises("scan.different", "'a' and 'b'", *facts):
        combine([first, change(second)], share="probe")


def test_scans_of_one_object_have_to_overlap() -> None:
    first, second = two()
    away = dataclasses.replace(second, positions=second.positions + np.array((0, 500)))
    with raises("scan.disjoint", "'a' from", "'b' from", "shifts="):
        combine([first, away], share="object")
    combine([first, away], share="object", shifts=[(0, 0), (0, -495)])
    combine([first, away], share="probe")


def test_arguments_that_make_no_combination() -> None:
    first, second = two()
    with raises("argument.invalid-type", "Scan"):
        combine(first, share="probe")  # type: ignore[arg-type]
    with raises("argument.invalid-value", "1 scans"):
        combine([first], share="probe")
    with raises("argument.invalid-value", "'beam'"):
        combine([first, second], share="beam")  # type: ignore[arg-type]
    with raises("argument.conflict", "shifts"):
        combine([first, second], share="probe", shifts=[(0, 0), (1, 1)])
    with raises("array.shape-mismatch", "(2,)", "(2, 2)"):
        combine([first, second], share="object", shifts=(1, 1))
    with raises("argument.invalid-value", "-1"):
        combine([first, second], share="probe", gap=-1)
    with raises("scan.combined", "'a + b'"):
        combine([combine([first, second], share="probe"), first], share="probe")


def test_scans_are_prepared_before_they_are_combined() -> None:
    one = combine(two(), share="probe")
    for change in (lambda scan: pt.preparation.crop(scan, 24), lambda scan: pt.preparation.select(scan, slice(5))):
        with raises("scan.combined", "'a + b'", "prepare each scan"):
            change(one)


def test_settings_that_do_not_fit_a_combination() -> None:
    close = combine(two(), share="probe", gap=20)
    check_together(close, Settings())
    with raises("scan.combined", "20 pixels apart", "gap=42"):
        check_together(close, Settings(positions=Positions(learning_rate=0.1, max_shift=20)))
