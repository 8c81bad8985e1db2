"""Checkpoint files: the complete state of a reconstruction in HDF5; a restored run continues as if uninterrupted.

The first 512 bytes are a user block that HDF5 ignores: "ptynb state 2" and a line of JSON with `run` (identifier of the
reconstruction), `token` (shared by all files of one checkpoint) and `written` [ns since 1970]. Contents of the file:

/                 attributes: format = "ptynb state", version = 2, rank
/record           JSON, as bytes: settings, begun (settings at the start), scan, epoch, update, target, epochs,
                  changes, seconds, awake, power, numbers, batch, parts, run, token, about,
                  started, title, comments, r_factors, moments (metadata of the snapshots below)
/model/*          parameters and buffers by their names in the model; complex ones as real views
/scale            () the probe's unit [square root of counts]
/optimiser/P/N/K  entry K of the optimizer state of the parameter N of the component P
/algorithm/*      other state of the algorithm, such as the history of L-BFGS
/loss_sums        (rank,) float64: each engine's sum of losses in the current epoch
/patterns         (pattern,) indices of the patterns to which the rows belong
/moments/N/*      downsampled snapshots taken during the run: object and probe (y, x)
/order/*          order of the patterns in an epoch in which further ones may come
/admissions/*     which patterns came when, if they came during the run (`ptynb.data.admissions`)
/epoch_start/*    object, probe (rows that are compared) and positions at the start of an epoch that is not complete
/placement/*      positions (pattern, yx) and origin (yx) [object pixels], pixel_size (yx) [m] if known: what is needed
                  to show object and probe without the scan
/rows/*           (pattern, …) state of the algorithm for each pattern, such as exit waves

/tile             (top, bottom, left, right) of the engine's own pixels of an object in tiles, and size (y, x) of the
                  whole; arrays of the object (model, optimiser, algorithm) are those pixels. Version 3; else version 2

The rows and tiles of other engines, if any, are in `state-00120.rank1.h5` and so on in the same folder: `parts` files
in total, identified by their common token. Every dataset has a checksum. No random state is stored: the order of
patterns follows from the seed in the settings and the number of the epoch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames
from ptynb.data.record import RunRecord, at, seconds_of, utc
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.checkpoint_dir import default_folder as default_folder
from ptynb.io.hdf5_file import dataset, in_one_line, open_for_reading
from ptynb.io.reading.reading_errors import reading
from ptynb.io.reading.safe_reading import Checked
from ptynb.io.record_mapper import from_json, to_json
from ptynb.io.scan_identity import plain_combination
from ptynb.private_folder import private_folder
from ptynb.systems import replace_file

FORMAT = "ptynb state"
VERSION, WITH_TILES = 2, 3
"""Versions of files, and of those with tiles of the object, which earlier readers would take for all of it."""
HEADER_BYTES = 512
CHUNK_BYTES = 2**22
PREFIX = re.compile(r"^algorithm/(?=(optimiser|algorithm)/)")
"""Prefix of field names that is omitted in files: optimizer and algorithm arrays are top-level groups there."""
STEM = r"state-(\d{5,})(?:-(\d{3,}))?(?:\.(\d+))?"
NAME, PART = re.compile(rf"{STEM}\.h5"), re.compile(rf"{STEM}(?:\.rank\d+)?\.h5")

Array = NDArray[Any]


@dataclass(frozen=True)
class Header:
    """Header in the user block of a file.

    run: identifier of the reconstruction. token: shared by all files of one checkpoint. written: [ns since 1970].
    """

    run: str
    token: str
    written: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ReconstructionState(RunRecord):
    """State of a reconstruction between two updates, as plain arrays.

    settings, begun: plain values, current and at the start. scan: see `identity`.
    epoch, update: completed; target: epoch at which the run ends. seconds: elapsed in the current epoch.
    loss_sums: float64 (rank,). active: by model component. model, algorithm: arrays by name, the latter under
    "optimiser/" and "algorithm/"; numbers: scalars of the algorithm. scale, power: the probe's unit.
    batch: patterns per update. rows: arrays (pattern, …) for `patterns`. parts: number of files with the rows of all
    engines. epoch_start: arrays of `engine.run_progress` at the start of an epoch that is not complete, else empty.
    updates_done: updates completed in all epochs. order: of the patterns of an epoch in which further ones may come, by
    `LiveSampler.state`; else empty.
    placement: positions, origin and pixel size of the object, see above. tile: if each engine has a tile of the object,
    (top, bottom, left, right) of the one that arrays of the object are of (`of_object`), and the size (y, x) of the
    object; else empty.
    metadata: versions. started: time at which the reconstruction was first opened [s since 1970].
    """

    begun: dict[str, Any]
    scan: dict[str, Any]
    epoch: int
    target: int
    seconds: float
    active: dict[str, bool] = dataclasses.field(metadata=at(checkpoint="awake"))
    power: float
    numbers: dict[str, float]
    batch: int
    loss_sums: NDArray[np.float64]
    scale: Array
    model: dict[str, Array]
    algorithm: dict[str, Array]
    patterns: NDArray[np.int64]
    rows: dict[str, Array]
    parts: int = 1
    run: str = ""
    token: str = ""
    epoch_start: dict[str, Array] = dataclasses.field(default_factory=dict)
    updates_done: int = 0
    order: dict[str, NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    placement: dict[str, Array] = dataclasses.field(default_factory=dict)
    tile: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, dtype=np.int64))


REQUIRED = ("settings", "update", "epochs", "changes")
"""Fields of the run's record without which a file is incomplete."""


def identity(scan: Scan) -> dict[str, Any]:
    """Return the identity of a scan: name, number of patterns, window, digests of positions and patterns, combination.

    opened: how `load` opened it: the file, the options besides it, and the names of those that were arrays.
    preparation: its recorded steps of preparation, if there are any.
    """
    file = _file_of(scan.frames)
    # The motion belongs to the positions.
    places = [scan.positions] if scan.motion is None else [scan.positions, scan.motion]
    return {
        "name": scan.name,
        "patterns": len(scan),
        "window": list(scan.pattern_shape),
        "positions": hashlib.sha256(np.ascontiguousarray(places, dtype="<f8").tobytes()).hexdigest(),
        "sample": scan.sample_digest,
        "file": None if file is None or scan.combination is not None else str(file),
        "is_far_field": scan.is_far_field,
        "opened": {}
        if scan.loaded is None
        else {"path": scan.loaded.path, "given": scan.loaded.given, "arrays": list(scan.loaded.arrays)},
        **({"preparation": [*scan.preparation]} if scan.preparation else {}),
        "combination": {} if scan.combination is None else plain_combination(scan),
    }


def _file_of(frames: Frames) -> Path | None:
    while True:
        path, source = getattr(frames, "path", None), getattr(frames, "source", None)
        if source is None:
            return path if isinstance(path, Path) else None
        frames = source


# Conversion to JSON and arrays


def packed(state: ReconstructionState) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a state as a JSON-serializable record, and its arrays by their paths in the file."""
    record, arrays = to_json(state)
    record["started"] = seconds_of(state.started)
    return record, {PREFIX.sub("", name): values for name, values in arrays.items()}


def unpacked(record: dict[str, Any], arrays: dict[str, Array]) -> ReconstructionState:
    """Return the state from the output of `packed`. Raise KeyError or TypeError if a value is missing."""
    record = {**{name: record[name] for name in REQUIRED}, **record, "started": utc(record.get("started"))}
    own = ("optimiser/", "algorithm/")
    arrays = {f"algorithm/{name}" if name.startswith(own) else name: values for name, values in arrays.items()}
    return from_json(ReconstructionState, record, arrays)


# Writing


def save_state(state: ReconstructionState, path: str | Path) -> Path:
    """Write a state to a file; an existing file is replaced once the new one is complete. Raise OSError."""
    path = Path(path).expanduser()
    put(path, image(state, 0, newest_written(path.parent)))
    return path


def image(state: ReconstructionState, rank: int = 0, after: int = 0) -> memoryview:
    """Return the bytes of the main file (rank 0), or of the file of another rank, which contains its rows only.

    The time stamp in the header is later than `after` [ns]. The file is created in memory: other threads that use HDF5
    do not wait for a slow disk, and a full disk raises an error in a plain write instead of inside the library.
    """
    header = Header(state.run, state.token or secrets.token_hex(8), max(time.time_ns(), after + 1))
    record, arrays = packed(dataclasses.replace(state, token=header.token))
    if rank:
        arrays = {
            name: one
            for name, one in arrays.items()
            if name in ("patterns", "tile") or name.startswith("rows/") or (state.tile.size and of_object(name))
        }
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=HEADER_BYTES, libver=("v110", "v110")) as file:
        file.attrs.update(format=FORMAT, version=WITH_TILES if state.tile.size else VERSION, rank=rank)
        _write(file, "record", np.frombuffer(json.dumps(record).encode(), dtype=np.uint8))
        for name, values in arrays.items():
            _write(file, name, values)
    text = f"{FORMAT} {VERSION}\n{json.dumps(dataclasses.asdict(header))}\n".encode()
    assert len(text) <= HEADER_BYTES
    buffer.seek(0)
    buffer.write(text)
    return buffer.getbuffer()


def of_object(name: str, axes: int = 2) -> bool:
    """Return whether an array of this name in a file, with so many axes, has a value for each pixel of the object."""
    return axes > 1 and (name.startswith(("model/object.", "optimiser/object/")) or name == "algorithm/illumination")


def _write(file: h5py.File, name: str, values: Array) -> None:
    """Write a flattened dataset with a checksum; scalars do not support one and become arrays of length 1."""
    flat = np.ascontiguousarray(values).reshape(-1)
    step = max(1, CHUNK_BYTES // flat.itemsize)
    checked: dict[str, Any] = {"chunks": (min(len(flat), step),), "fletcher32": True} if len(flat) else {}
    stored = file.create_dataset(name, data=flat, **checked)
    stored.attrs["shape"] = np.array(values.shape, dtype=np.int64)


def put(path: Path, data: memoryview) -> None:
    """Write bytes to a temporary file and rename it to `path` once it is on the disk; create the folder if needed."""
    private_folder(path.parent)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        # Where others can enter the folder they may read the file, and not write to it.
        with open(beside, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o644)) as file:
            done = 0
            while done < len(data):
                done += file.write(data[done : done + 2**24])
            os.fsync(file.fileno())
        replace_file(beside, path)
    finally:
        beside.unlink(missing_ok=True)


# Folders of checkpoints


def file_name(epoch: int, update: int, taken: Collection[str] = ()) -> str:
    """Return the file name of a state after `epoch` epochs and `update` updates; numbered if the name is taken."""
    stem = f"state-{epoch:05d}-{update:03d}" if update else f"state-{epoch:05d}"
    numbered = (f"{stem}.h5" if number == 1 else f"{stem}.{number}.h5" for number in range(1, 10_000))
    return next(name for name in numbered if name not in taken)


def progress_of(path: Path) -> tuple[int, int, int]:
    """Return (epoch, update, number) from the file name of a state, or of a part of one; of other names (-1, 0, 1).

    Numbers are longer than the padding of the names after epoch 99,999 and update 999: compare these, not the names.
    """
    found = PART.fullmatch(path.name)
    epoch, update, number = found.groups() if found else ("-1", None, None)
    return int(epoch), int(update or 0), int(number or 1)


def is_of(path: Path, epoch: int, update: int) -> bool:
    """Return whether this is a file name of a state at this epoch and update, numbered or not."""
    return progress_of(path)[:2] == (epoch, update)


def precedes(path: Path, epoch: int, update: int) -> bool:
    """Return whether this is a file name of a state before this epoch and update, numbered or not."""
    return progress_of(path)[:2] < (epoch, update)


def companion(path: Path, rank: int) -> Path:
    """Return the path of the file with the rows of a rank."""
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}.h5")


def states(folder: str | Path) -> list[Path]:
    """Return the checkpoint files in a folder, complete or not, in the order in which they were written."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if NAME.fullmatch(path.name))
    return sorted(found, key=lambda path: (_age(path), progress_of(path)))


def newest_written(folder: Path) -> int:
    """Return the time at which the newest checkpoint in a folder was written [ns since 1970]; 0 if there is none."""
    return max((_age(path) for path in states(folder)), default=0)


def _age(path: Path) -> int:
    try:
        found = header_of(path)
        return path.stat().st_mtime_ns if found is None else found.written
    except OSError:
        return 0


def header_of(path: Path) -> Header | None:
    """Return the header of a file; None if it is no checkpoint. Raise OSError if it cannot be read."""
    with path.open("rb", buffering=0) as file:
        text = file.read(HEADER_BYTES) or b""
    if not text.startswith(f"{FORMAT} ".encode()):
        return None
    try:
        header = Header(**json.loads(text.split(b"\n")[1]))
    except (ValueError, TypeError, IndexError, RecursionError):
        return None
    right = isinstance(header.run, str) and isinstance(header.token, str) and isinstance(header.written, int)
    return header if right else None


def missing_parts(path: Path, token: str, parts: int) -> list[int]:
    """Return the ranks whose row files are missing, or do not have this token."""
    missing = []
    for rank in range(1, parts):
        try:
            found = header_of(companion(path, rank))
        except OSError:
            found = None
        if found is None or found.token != token:
            missing.append(rank)
    return missing


# Reading


def load_state(path: str | Path, *, with_object: bool = True) -> ReconstructionState:
    """Return the state in a file, with the rows of rank 0 (see `load_rows`).

    with_object: whether with the arrays of the object that are in this file (see `load_object` for those of all).

    Raise FileError if the file is truncated, damaged, of another kind, or lacks row files; the message names the newest
    complete checkpoint written before it.
    """
    path = Path(path).expanduser()
    with naming_the_one_before(path):
        return _load(path, lambda name, axes: with_object or not of_object(name, axes))


@contextmanager
def naming_the_one_before(path: Path) -> Iterator[None]:
    """Context in which errors of a checkpoint file name the newest complete one that was written before it."""
    try:
        yield
    except FileError as error:
        before = _newest_valid_before(path)
        advice = f" Use {before}, the one before it." if before else ""
        raise error.retold(FileError, f"{error}{advice}") from None


def load_model_state(path: str | Path) -> ReconstructionState:
    """Return the state in a file without what only a continued run needs: the algorithm's arrays and its rows.

    Raise FileError if the file is truncated, damaged or of another kind.
    """
    without = ("optimiser/", "algorithm/", "rows/", "epoch_start/")
    return _parsed(Path(path).expanduser(), lambda name, axes: not name.startswith(without))


def newest_state(folder: str | Path) -> Path:
    """Return the path of the newest checkpoint in a folder. Raise FileError as `load_state` if it is not valid."""
    found = states(folder)
    if not found:
        raise FileError(
            f"There is no checkpoint (state-00120.h5 and the like) in {Path(folder)}.",
            code="checkpoint.not-found",
        )
    load_state(found[-1])
    return found[-1]


def _newest_valid_before(path: Path) -> Path | None:
    known = states(path.parent)
    for candidate in reversed(known[: known.index(path)] if path in known else []):
        try:
            _load(candidate)
        except FileError:
            continue
        return candidate
    return None


def _everything(name: str, axes: int) -> bool:
    return True


def _parsed(path: Path, wanted: Callable[[str, int], bool]) -> ReconstructionState:
    record, arrays = _read(path, wanted)
    with reading(path):
        try:
            return unpacked(record, arrays)
        except KeyError as error:
            raise FileError(f"{path} is not a whole state: {error} is missing.", code="file.incomplete") from None


def _load(path: Path, wanted: Callable[[str, int], bool] = _everything) -> ReconstructionState:
    state = _parsed(path, wanted)
    check_parts(path, state)
    return state


def check_parts(path: Path, state: ReconstructionState) -> None:
    """Raise FileError if files of other ranks of a checkpoint are missing."""
    if missing := missing_parts(path, state.token, state.parts):
        raise FileError(
            f"{path} is not whole: the parts of ranks {missing} ({companion(path, missing[0]).name} and so on) are "
            "missing or of another moment; they have to be in the same folder.",
            code="checkpoint.incomplete",
        )


def load_rows(path: Path, state: ReconstructionState, patterns: NDArray[np.int64]) -> dict[str, Array]:
    """Return the rows of these patterns from the files of all ranks."""
    found = {name: np.empty((len(patterns), *rows.shape[1:]), rows.dtype) for name, rows in state.rows.items()}
    for rank in range(state.parts if found else 0):
        arrays = packed(state)[1] if rank == 0 else _read(companion(path, rank))[1]
        theirs = arrays["patterns"]
        _, here, there = np.intersect1d(patterns, theirs, return_indices=True)
        for name, rows in found.items():
            rows[here] = arrays[f"rows/{name}"][there]
    return found


def shape_of(source: Checked, name: str, stored: h5py.Dataset) -> tuple[int, ...]:
    """Return the shape of an array, which is stored flattened. Raise FileError if it has another number of values."""
    sides = source.attribute(stored, "shape")
    with suppress(TypeError, ValueError):
        shape = tuple(int(side) for side in sides)
        if min(shape, default=0) >= 0 and stored.shape == (math.prod(shape),):
            return shape
    raise FileError(
        f"{source.path} is damaged: it has {stored.size} values of {name}; expected the shape {in_one_line(sides)}.",
        code="file.damaged",
    )


def _read(path: Path, wanted: Callable[[str, int], bool] = _everything) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the record and the arrays of one file. wanted: whether to read an array, by name and number of axes."""
    with reading(path), open_for_reading(path) as file:
        kind, version = str(file.attrs.get("format")), in_one_line(file.attrs.get("version"))
        if kind != FORMAT:
            raise FileError(
                f"{path} is not a checkpoint of ptynb; its format is {kind!r:.40}.", code="file.unknown-format"
            )
        if version not in (str(VERSION), str(WITH_TILES)):
            raise FileError(
                f"{path} is a checkpoint of version {version}; this ptynb reads {VERSION} and {WITH_TILES}. Read it "
                "with the ptynb that wrote it.",
                code="file.unsupported-version",
            )
        arrays: dict[str, Array] = {}
        checked = Checked(file, path)

        def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
            if isinstance(item, h5py.Dataset):
                stored = checked.dataset(name)
                shape = shape_of(checked, name, stored)
                if name == "record" or wanted(name, len(shape)):
                    arrays[name] = checked.read(name, stored).reshape(shape)

        dataset(file, "record", path)
        file.visititems(take)
        return json.loads(arrays.pop("record").tobytes()), arrays
