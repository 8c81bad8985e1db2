"""Pictures of regions of an object: the illuminated area with more pixels, of a whole object and of one in tiles."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numba
import numpy as np
import pytest
import torch
from PIL import Image

import ptynb as pt
from ptynb.data.engine_records import PANES, Array, Pictures
from ptynb.data.images import hues, jpeg, levels, reduce_by
from ptynb.distributed.group import SingleGroup
from ptynb.engine import state_reader
from ptynb.engine.loop import Loop
from ptynb.engine.rendering import prepare_rendering
from ptynb.kernels import image_kernels
from ptynb.physics.components import builtin
from ptynb.physics.components.builtin import ObjectPart
from ptynb.settings import Object, Settings, Slices
from tests.cases import a_scan
from tests.engine import diagnostics_work
from tests.engine.loop_reader import LoopReader
from tests.engine.ranks import Ranks
from tests.raising import raises

PIXEL = (1e-7, 2e-7)
TILTED = (0.05, -0.08)
"""Steps of a ramp in the object's phase [rad/pixel]."""


def a_reader(slices: int = 1, form: str = "complex") -> LoopReader:
    """A reader of an object with structure in each pixel and a ramp."""
    settings = Settings(
        slices=Slices(count=slices, thickness=2e-4) if slices > 1 else Slices(),
        object=Object(parametrization=form),
    )
    loop = Loop(a_scan(), settings, SingleGroup(torch.device("cpu")))
    height, width = loop.frame.shape
    random = np.random.default_rng(0)
    y, x = np.ogrid[:height, :width]
    phase = TILTED[0] * y + TILTED[1] * x + random.uniform(-0.4, 0.4, (slices, height, width))
    field = random.uniform(0.7, 1.1, phase.shape) * np.exp(1j * phase)
    loop.model.object.set(torch.from_numpy(field)[None].to(torch.complex64))
    loop.pixel_size = PIXEL
    return LoopReader(loop, (slice(1, 61), slice(5, 61)))


def made(pictures: Pictures | None) -> Pictures:
    assert pictures is not None
    return pictures


def decoded(image: bytes) -> Array:
    with Image.open(io.BytesIO(image)) as opened:
        return np.asarray(opened).astype(float)


def flattened(field: Array, pictures: Pictures, top: int = 0, left: int = 0) -> Array:
    """The phase of a field whose first pixel has this place in the object, without the ramp of these pictures."""
    assert pictures.contrast is not None
    assert pictures.contrast.ramp is not None
    ramp = pictures.contrast.ramp
    down, across = ramp.along(top + np.arange(field.shape[0]), left + np.arange(field.shape[1]))
    flat: Array = np.angle(field * np.exp(-1j * (down[:, None] + across)))
    return flat


def test_while_there_are_no_pictures_what_renders_them_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By calls with the types of arguments for which the loops are compiled."""
    called = set[Any]()

    def recorded(kernel: Any) -> Any:
        def call(*arguments: Any) -> Any:
            called.add((kernel, *(numba.typeof(one) for one in arguments)))
            return kernel(*arguments)

        return call

    for name in ("mean_steps", "turned_sum", "phases", "greys"):
        monkeypatch.setattr(image_kernels, name, recorded(getattr(image_kernels, name)))
    reader = a_reader()
    loop, reader._loop = reader._loop, None
    prepare_rendering.cache_clear()
    assert reader.pictures(pt.RenderRequest()) is None
    loaded = {*called}
    assert len(loaded) == 4
    called.clear()
    reader._loop = loop
    made(reader.pictures(pt.RenderRequest(panes=PANES)))
    assert called == loaded


def test_a_region_is_the_part_of_the_full_picture_in_the_contrast_of_the_overview() -> None:
    reader = a_reader()
    object = reader._loop.model.object.values[0, 0].detach().numpy()  # type: ignore[union-attr]
    request = pt.RenderRequest(panes=PANES, size=15, quality=95)
    overview = made(reader.pictures(request))
    assert overview.contrast is not None
    assert overview.corner == (1, 5)
    assert [one.reduction for one in overview.pictures[:3]] == [4] * 3
    shown = made(reader.pictures(dataclasses.replace(request, region=(20, 34, 30, 45))))
    crop = object[20:34, 30:45]
    assert shown.corner == (20, 30)
    assert shown.contrast == overview.contrast
    by_name = {one.name: one for one in shown.pictures}
    for pane in ("amplitude", "phase"):
        picture, whole = by_name[pane], next(one for one in overview.pictures if one.name == pane)
        assert (picture.shape, picture.reduction, picture.limits) == ((14, 15), 1, whole.limits)
        assert picture.limits is not None
        values = np.abs(crop) if pane == "amplitude" else flattened(crop, overview, 20, 30)
        assert np.abs(decoded(picture.image) - levels(values, picture.limits)).mean() < 3
    # The ramp of the means over blocks is that of the pixels.
    ramp = overview.contrast.ramp
    assert ramp is not None
    assert (ramp.step_y, ramp.step_x) == pytest.approx(TILTED, abs=0.01)
    assert abs(flattened(object[1:61, 5:61], overview, 1, 5).mean()) < 0.02
    # Colours are as bright as in the overview.
    colours = hues(flattened(crop, overview, 20, 30), np.abs(crop), overview.contrast.largest)
    assert np.abs(crop).max() > overview.contrast.largest  # type: ignore[operator]
    assert np.abs(decoded(by_name["complex"].image) - decoded(jpeg(colours, 95))).mean() < 1


def test_a_region_has_no_more_pixels_than_wanted_and_its_blocks_are_means() -> None:
    reader = a_reader()
    object = reader._loop.model.object.values[0, 0].detach().numpy()  # type: ignore[union-attr]
    request = pt.RenderRequest(panes=("amplitude",), size=12, quality=95, region=(10, 46, 8, 32))
    shown = made(reader.pictures(request))
    [picture] = shown.pictures[:1]
    assert (picture.shape, picture.reduction) == ((36, 24), 3)
    assert picture.limits is not None
    expected = levels(np.abs(reduce_by(object[10:46, 8:32], 3)), picture.limits)
    assert decoded(picture.image).shape == (12, 8)
    assert np.abs(decoded(picture.image) - expected).mean() < 3


def test_a_contrast_that_is_given_is_kept_and_the_overview_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = a_reader()
    request = pt.RenderRequest(size=15)
    contrast = made(reader.pictures(request)).contrast
    given = dataclasses.replace(request, region=(20, 34, 30, 45), contrast=contrast)
    before = made(reader.pictures(given))
    with torch.no_grad():
        reader._loop.model.object.parts[..., :20, :, :] *= 5  # type: ignore[union-attr]
    taken = []
    monkeypatch.setattr(
        reader, "_take", lambda *arguments: taken.append(arguments[2]) or LoopReader._take(reader, *arguments)
    )
    assert [one.image for one in made(reader.pictures(given)).pictures] == [one.image for one in before.pictures]
    assert reader.value_at("phase", 20, 20, dataclasses.replace(request, contrast=contrast)) is not None
    assert all(area != reader._loop.area for area in taken)  # type: ignore[union-attr]
    assert made(reader.pictures(dataclasses.replace(given, contrast=None))).contrast != contrast


def test_values_are_those_of_pixels_without_the_ramp_of_the_picture() -> None:
    reader = a_reader()
    object = reader._loop.model.object.values[0, 0].detach().numpy()  # type: ignore[union-attr]
    request = pt.RenderRequest(panes=PANES, size=15)
    overview = made(reader.pictures(request))
    phase = flattened(object[1:61, 5:61], overview, 1, 5)
    for y, x in ((0, 0), (59, 55), (31, 7)):
        assert reader.value_at("phase", y, x, request) == pytest.approx(phase[y, x], abs=1e-5)
        assert reader.value_at("amplitude", y, x, request) == pytest.approx(abs(object[y + 1, x + 5]), abs=1e-6)
    region = dataclasses.replace(request, region=(20, 34, 30, 45))
    assert reader.value_at("phase", 2, 4, region) == pytest.approx(phase[21, 29], abs=1e-5)
    with raises("argument.invalid-value", "14 x 15 pixels", "(14, 0)"):
        reader.value_at("phase", 14, 0, region)


def test_a_contrast_serves_values_of_panes_and_of_cuts() -> None:
    reader = a_reader(slices=3)
    request = pt.RenderRequest(panes=PANES, size=15, slice=1, cut=(20, 30))
    contrast = made(reader.pictures(request)).contrast
    assert contrast is not None
    assert len(contrast.slice_ramps) == 3
    assert contrast.slice_ramps[1] == contrast.ramp
    given = dataclasses.replace(request, contrast=contrast)
    for name, y, x in (("phase", 3, 4), ("phase xz", 2, 50), ("phase yz", 41, 0), ("complex yz", 41, 0)):
        assert reader.value_at(name, y, x, given) == pytest.approx(reader.value_at(name, y, x, request), abs=1e-6)
    # A slice in a cut and in its own picture.
    assert reader.value_at("phase yz", 9, 1, given) == pytest.approx(reader.value_at("phase", 9, 25, given), abs=1e-6)


@pytest.mark.parametrize("form", ["complex", "amplitude_phase"])
def test_a_large_area_is_averaged_in_pieces_to_the_same_pictures(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = a_reader(slices=3, form=form)
    for request in (
        pt.RenderRequest(panes=PANES, size=15, cut=(20, 30)),
        pt.RenderRequest(panes=PANES, size=15, slice=1, cut=(20, 30)),
        pt.RenderRequest(size=13, flat=False, region=(0, 61, 7, 60)),
        pt.RenderRequest(size=13, region=(7, 9, 0, 63)),
    ):
        copied = made(reader.pictures(request))
        with monkeypatch.context() as small:
            small.setattr(state_reader, "COPIED", 0)
            small.setattr(state_reader, "PIECE", 700)
            small.setattr(builtin, "BAND", 200)
            averaged = made(reader.pictures(request))
        same_pictures(averaged, copied, 1e-5)
    copied_snapshot = reader.snapshot(15)
    monkeypatch.setattr(state_reader, "COPIED", 0)
    snapshot = reader.snapshot(15)
    assert snapshot is not None
    assert copied_snapshot is not None
    np.testing.assert_allclose(snapshot.object, copied_snapshot.object, atol=1e-5)
    assert snapshot.reduction == copied_snapshot.reduction


def same_pictures(found: Pictures, expected: Pictures, most: float) -> None:
    """Hold pictures against others: facts, limits, and their pixels to one level in a thousand."""
    assert [one.name for one in found.pictures] == [one.name for one in expected.pictures]
    assert (found.corner, found.slices, found.states) == (expected.corner, expected.slices, expected.states)
    for one, other in zip(found.pictures, expected.pictures, strict=True):
        facts = [
            (each.title, each.shape, each.reduction, each.pixel_size, each.bands, each.note) for each in (one, other)
        ]
        assert facts[0] == facts[1]
        assert (one.limits is None) == (other.limits is None)
        if one.limits is not None:
            assert one.limits == pytest.approx(other.limits, abs=most)
        assert np.abs(decoded(one.image) - decoded(other.image)).mean() < 0.3, one.name


def test_a_region_beyond_the_object_is_refused() -> None:
    reader = a_reader()
    height, width = reader._loop.frame.shape  # type: ignore[union-attr]
    with raises("argument.invalid-value", f"{height} x {width} pixels", f"(0, {height + 1}, 0, 5)"):
        reader.pictures(pt.RenderRequest(region=(0, height + 1, 0, 5)))


@pytest.mark.parametrize("origin", [(0, 0), (4, 7), (11, 2)])
def test_means_of_a_tile_are_its_share_of_those_of_the_whole(origin: tuple[int, int]) -> None:
    """The tile begins and ends in the middle of blocks, and its array has a halo."""
    whole = torch.randn(29, 31, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    array = whole[origin[0] : origin[0] + 15, origin[1] : origin[1] + 17]
    rows, columns = slice(1, array.shape[0] - 2), slice(2, array.shape[1] - 1)
    part = ObjectPart(rows, columns, (29, 31), origin)
    own = torch.zeros_like(whole)
    own[origin[0] + rows.start : origin[0] + rows.stop, origin[1] + columns.start : origin[1] + columns.stop] = part.of(
        array
    )
    for area in ((slice(0, 29), slice(0, 31)), (slice(5, 16), slice(6, 21)), (slice(25, 28), slice(0, 31))):
        for block in (1, 2, 5, 100):
            expected = reduce_by(own[area].numpy(), block)
            found = part.reduced(lambda here: array[here], area, block).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-12)


WHOLE = Settings(batch_sampling="cells", precision="double", optimiser="sgd", batch=8)
THICK = {"slices": {"count": 3, "thickness": 2e-4}}
CUT: dict[str, Any] = {"panes": PANES, "cut": (30, 45)}
REQUESTS = [
    pt.RenderRequest(panes=PANES),
    pt.RenderRequest(panes=PANES, size=17),
    pt.RenderRequest(size=17, flat=False),
    pt.RenderRequest(panes=PANES, size=17, region=(9, 50, 3, 47)),
    pt.RenderRequest(region=(20, 31, 22, 40)),
    pt.RenderRequest(size=9, region=(25, 27, 0, 50)),
]
OF_SLICES = [
    pt.RenderRequest(slice=1, **CUT),
    pt.RenderRequest(size=17, **CUT),
    pt.RenderRequest(size=17, slice=2, **CUT),
    pt.RenderRequest(size=17, slice=0, flat=False, **CUT),
    pt.RenderRequest(size=17, slice=2, region=(9, 50, 3, 47), **CUT),
    pt.RenderRequest(slice=1, **{**CUT, "cut": (10**6, 0)}),
]


@pytest.mark.parametrize(
    ("slices", "world"),
    [
        (1, 2),
        pytest.param(1, 3, marks=pytest.mark.system("worlds")),
        pytest.param(3, 2, marks=pytest.mark.system("worlds")),
        (3, 3),
    ],
)
def test_pictures_cuts_and_values_of_an_object_in_tiles_are_those_of_the_whole_one(
    ranks: Ranks, slices: int, world: int
) -> None:
    settings = WHOLE.replace(**THICK) if slices > 1 else WHOLE
    requests = [*REQUESTS, *(OF_SLICES if slices > 1 else ())]
    questions = [
        (name, y, x, request)
        for request in requests
        for name, y, x in (
            *((pane, y, x) for pane in request.panes for y, x in ((0, 0), (1, 11), (1, 16))),
            ("probe 1", 3, 5),
        )
    ]
    for request in OF_SLICES if slices > 1 else ():
        questions += [(f"{pane} xz", z, x, request) for pane in request.panes for z, x in ((0, 0), (2, 40))]
        questions += [(f"{pane} yz", y, z, request) for pane in request.panes for y, z in ((0, 1), (33, 2))]
    asked = (a_scan(), settings, 2, requests, questions, 20)
    [alone] = ranks.run(1, diagnostics_work.show, *asked)
    tiles = settings.replace(object={"layout": "tiles"})
    shared = ranks.run(world, diagnostics_work.show, asked[0], tiles, *asked[2:])[0]
    for request, found, expected in zip(requests, shared[0], alone[0], strict=True):
        assert any(name.endswith("xz") for name in [one.name for one in found.pictures]) == (request.cut is not None)
        same_pictures(found, expected, 1e-6)
    for question, found, expected in zip(questions, shared[1], alone[1], strict=True):
        assert found == pytest.approx(expected, abs=1e-6), question
    np.testing.assert_allclose(shared[2].object, alone[2].object, atol=1e-9)
    assert np.abs([value for value in alone[1] if isinstance(value, float)]).max() > 0.01


def test_what_an_object_in_tiles_does_not_have_is_refused_before_engines_are_asked(ranks: Ranks) -> None:
    [told, _] = ranks.run(2, diagnostics_work.refused, a_scan(), WHOLE.replace(object={"layout": "tiles"}))
    assert [code for code, _ in told] == ["argument.invalid-value"] * 4
    assert "slice 3" in told[0][1]
    assert "mode 1" in told[1][1]
    assert "(0, 1000, 0, 5)" in told[2][1]
    assert "none at (0, 1000)" in told[3][1]
