"""Object and probe of a checkpoint file as a result, without engines and without the scan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.provenance import Machines, ScanIdentity, Software
from ptynb.data.record import RunRecord, fields_of, utc
from ptynb.data.result import Result, squeezed
from ptynb.exceptions import FileError
from ptynb.io.checkpoint_branches import name_of
from ptynb.io.checkpoint_file import ReconstructionState, check_parts, companion, header_of, load_model_state
from ptynb.io.reading.checkpoint_object import stored_rows
from ptynb.io.reading.large_array import large_array
from ptynb.io.reading.reading_errors import reading
from ptynb.settings.change_replay import settings_before


def is_checkpoint(path: Path) -> bool:
    """Return whether this is a checkpoint file of ptynb, by its first bytes."""
    try:
        return header_of(path) is not None
    except OSError:
        return False


def progress_text(epoch: int, update: int) -> str:
    """Return completed epochs, and updates of the next one, as text: '40', '40 + 3'."""
    return f"{epoch} + {update}" if update else str(epoch)


def name_of_checkpoint(path: Path, epoch: int, update: int) -> str:
    """Return the name of a checkpoint for people: 'epoch 40 (main)'."""
    return f"epoch {progress_text(epoch, update)} ({name_of(path.absolute().parent)})"


def checkpoint_result(path: Path, state: ReconstructionState | None = None) -> Result:
    """Return the result at a checkpoint; its R-factor is that measured at its epoch, else NaN.

    Parameters of the model other than object, probe and positions are not part of it: reading them requires the scan.
    A large object in tiles is put together in a file without a name in the checkpoint's folder (`large_array`).

    state: content of the checkpoint; None: it is read.

    Raise FileError if the file is damaged or of another kind.
    """
    state = state or load_model_state(path)
    with reading(path):
        try:
            return _result(path, state)
        except KeyError as error:
            raise FileError(
                f"{path} lacks {error}, which every checkpoint has; use another one.", code="file.incomplete"
            ) from None


def _result(path: Path, state: ReconstructionState) -> Result:
    model, placement, scan = state.model, state.placement, state.scan
    object = _of_tiles(path, state) if state.tile.size else _complex_object(model)
    top, left = placement["origin"].tolist()
    pixel = placement.get("pixel_size")
    height, width = scan["window"]
    measured = dict(state.r_factors) if state.update == 0 else {}
    header = header_of(path)
    return Result(
        **fields_of(RunRecord, state) | {"metadata": {**state.metadata, "scan": str(scan["name"])}},
        object=squeezed(object),
        probe=_complex(model["probe.parts"]) * state.scale,
        positions=placement["positions"],
        origin=(int(top), int(left)),
        pixel_size=None if pixel is None else (float(pixel[0]), float(pixel[1])),
        r_factor=measured.get(state.epoch, float("nan")),
        initial_settings=settings_before(state.settings, state.changes),
        ended=utc(None if header is None else header.written / 1e9),
        scan=ScanIdentity(
            name=str(scan["name"]),
            patterns=int(scan["patterns"]),
            pattern_shape=(int(height), int(width)),
            counts=scan.get("counts"),
            path=str(scan.get("file") or ""),
            is_far_field=bool(scan.get("is_far_field", True)),
        ),
        software=Software.of(state.metadata),
        machines=Machines(backend=state.metadata.get("backend", "")),
    )


def _complex_object(model: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the object (…, y, x) from its parameters by name."""
    if "object.parts" in model:
        return _complex(model["object.parts"])
    return model["object.amplitude"] * np.exp(1j * model["object.phase"])


def _of_tiles(path: Path, state: ReconstructionState) -> NDArray[Any]:
    """Return the object (state, slice, y, x) from the files of all ranks; a large one is put together in a file."""
    check_parts(path, state)
    names = [name for name in ("object.parts", "object.amplitude", "object.phase") if name in state.model]
    pixel = _complex_object({name: state.model[name][:1, :1, :1, :1] for name in names})
    states, slices = state.model[names[0]].shape[:2]
    with large_array((states, slices, *state.tile[4:].tolist()), pixel.dtype, path.absolute().parent) as whole:
        for rank in range(state.parts):
            fields = [stored_rows(companion(path, rank), names=[f"model/{name}"]) for name in names]
            for rows in zip(*fields, strict=True):
                values = dict(zip(names, (one.values for one in rows), strict=True))
                whole[rows[0].place] = _complex_object(values)
    return whole


def _complex(parts: NDArray[Any]) -> NDArray[Any]:
    """Return the complex values of real and imaginary parts along the last axis."""
    return np.ascontiguousarray(parts).view(np.result_type(parts.dtype, np.complex64))[..., 0]
