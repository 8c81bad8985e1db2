"""The object of a checkpoint is read in parts, from one file or from those of all engines."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import h5py
import numpy as np
import pytest

from ptynb.io.checkpoint_file import ReconstructionState, companion, file_name, image, load_state, put
from ptynb.io.reading import checkpoint_object
from ptynb.io.reading.checkpoint_object import Area, load_object, rows_of
from tests.io.test_checkpoint_file import a_state
from tests.raising import raises

SHAPE = (2, 3, 11, 13, 2)
OWNED: list[Area] = [(0, 6, 0, 13), (6, 11, 0, 7), (6, 11, 7, 13), (11, 11, 0, 13)]
WANTED: list[Area | None] = [None, (0, 11, 0, 13), (4, 9, 2, 8), (7, 8, 9, 13), (0, 3, 5, 6)]


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> ReconstructionState:
    """A state whose arrays of the object are read in several portions."""
    monkeypatch.setattr(checkpoint_object, "ROWS_BYTES", 400)
    random, some = np.random.default_rng(0), a_state()
    moments = {
        "optimiser/object/parts/exp_avg": random.random(SHAPE),
        "optimiser/object/parts/step": np.array(3.0),
        "algorithm/illumination": random.random(SHAPE[2:4]).astype("f4"),
    }
    object = {"object.parts": random.random(SHAPE).astype("f4")}
    return dataclasses.replace(some, model=some.model | object, algorithm=some.algorithm | moments, rows={})


def cut(values: np.ndarray, area: Area | None) -> np.ndarray:
    """These pixels of an array of the object."""
    if area is None:
        return values
    place = slice(*area[:2]), slice(*area[2:])
    return values[place] if values.ndim == 2 else values[:, :, *place]


def written(state: ReconstructionState, path: Path, in_tiles: bool) -> Path:
    """The path of the state, in one file or in those of several engines, one of which has no pixels of its own."""
    for rank, area in enumerate(OWNED if in_tiles else [None]):
        own = dataclasses.replace(state, token="of all")
        if area is not None:
            arrays = {name: cut(one, area) if one.ndim > 1 else one for name, one in state.algorithm.items()}
            tile = np.array([*area, *SHAPE[2:4]])
            model = state.model | {"object.parts": cut(state.model["object.parts"], area)}
            own = dataclasses.replace(own, model=model, algorithm=arrays, tile=tile, parts=len(OWNED))
        put(companion(path, rank), image(own, rank))
    return path


@pytest.mark.parametrize("in_tiles", [False, True])
@pytest.mark.parametrize("wanted", WANTED)
def test_any_part_is_that_of_the_whole(
    state: ReconstructionState, tmp_path: Path, in_tiles: bool, wanted: Area | None
) -> None:
    path = written(state, tmp_path / file_name(3, 0), in_tiles)
    without = load_state(path, with_object=False)
    assert "object.parts" not in without.model
    assert "algorithm/illumination" not in without.algorithm
    found = load_object(path, without, wanted)
    assert found.tile.size == 0
    for stored, own in ((state.model, found.model), (state.algorithm, found.algorithm)):
        assert stored.keys() == own.keys()
        for name in stored:
            is_cut = name in ("object.parts", "optimiser/object/parts/exp_avg", "algorithm/illumination")
            np.testing.assert_array_equal(own[name], cut(stored[name], wanted if is_cut else None), err_msg=name)
            assert own[name].dtype == stored[name].dtype


def test_rows_in_memory_are_small_and_together_the_array(state: ReconstructionState) -> None:
    values = state.model["object.parts"]
    whole = np.zeros_like(values)
    for rows in rows_of(state):
        assert rows.values.nbytes <= 400
        if rows.name == "model/object.parts":
            whole[rows.place] = rows.values
    np.testing.assert_array_equal(whole, values)


@pytest.mark.parametrize("shape", [[2, 3, 11, 13, 3], [-2, 3, -11, 13, 2], 7])
def test_a_shape_with_another_number_of_values_is_refused(
    state: ReconstructionState, tmp_path: Path, shape: object
) -> None:
    path = written(state, tmp_path / file_name(3, 0), in_tiles=False)
    without = load_state(path, with_object=False)
    with h5py.File(path, "r+") as file:
        file["model/object.parts"].attrs["shape"] = shape
    with raises("file.damaged", "1716 values of model/object.parts"):
        load_object(path, without)
