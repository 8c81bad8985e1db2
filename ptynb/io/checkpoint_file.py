"""Checkpoint files: all that a reconstruction needs to continue as if it had never stopped, in HDF5.

The first 512 bytes are a user block that HDF5 leaves alone: "ptynb state 2" and a line of JSON with `run` (which
reconstruction), `token` (which files belong together) and `written` [ns since 1970]. Then

/                 attributes: format = "ptynb state", version = 2 (1 before settings were renamed), rank
/record           JSON, as bytes: settings, begun (settings at the very start), scan, epoch, update, target, epochs,
                  changes, seconds, awake, power, numbers, batch, parts, run, token, about,
                  started, title, comments, r_factors, moments (what the pictures below are of)
/model/*          parameters and buffers by their names in the model; complex ones as real views
/scale            () the probe's unit [square root of counts]
/optimiser/P/N/K  what the optimiser keeps as K beside the parameter N of the part P
/algorithm/*      what else the algorithm goes on from, such as the history of L-BFGS
/loss_sums        (rank,) float64: each engine's sum of losses in the running epoch
/patterns         (pattern,) the patterns to which the rows belong
/moments/N/*      small pictures on the way: object and probe (y, x)
/rows/*           (pattern, …) what the algorithm keeps of each pattern, such as exit waves

Where there are rows, those of other engines are beside it in `state-00120.rank1.h5` and so on, with `parts` files in
all; they belong together by their token. Every dataset has a checksum. Nothing random has to be kept: the order of
patterns follows from the settings' seed and the epoch's number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import Frames
from ptynb.data.record import RunRecord, at, seconds_of, utc
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError, SettingsError
from ptynb.io.checkpoint_dir import default_folder as default_folder
from ptynb.io.hdf5_file import dataset, open_for_reading
from ptynb.io.reading.safe_reading import Checked
from ptynb.io.record_mapper import from_json, to_json
from ptynb.settings.renamed import TABLES, change_with_present_names, translated
from ptynb.settings.settings import Settings

FORMAT = "ptynb state"
VERSION = 1 + len(TABLES)
"""Each table of renamed settings raises it by one."""
HEADER_BYTES = 512
CHUNK_BYTES = 2**22
PREFIX = re.compile(r"^algorithm/(?=(optimiser|algorithm)/)")
"""The arrays of an algorithm have names of their own in a file."""
NAME = re.compile(r"state-(\d{5,})(?:-(\d{3,}))?(?:\.\d+)?\.h5")

Array = NDArray[Any]


@dataclass(frozen=True)
class Header:
    """What the first bytes of a file say: whose it is, which files belong together, and when it was written [ns]."""

    run: str
    token: str
    written: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ReconstructionState(RunRecord):
    """A reconstruction between two updates, as plain arrays.

    settings, begun: as plain values, now and at the very start. scan: see `identity`.
    epoch, update: completed; target: epoch at which the run ends. seconds: of the running epoch so far.
    loss_sums: float64 (rank,). active: by model component. model, algorithm: arrays by name, the latter under
    "optimiser/" and "algorithm/"; numbers: plain ones of the algorithm. scale, power: the probe's unit. batch: "
    "patterns of an update.
    rows: arrays (pattern, …) for `patterns`. parts: files that the rows of all engines are in. metadata: versions.
    started: when the reconstruction was opened first [s since 1970]. r_factors, history, title, comments: as in
    `Result`; states of earlier versions have none.
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


REQUIRED = ("settings", "update", "epochs", "changes")
"""Fields of the run's record that every version has."""


def identity(scan: Scan) -> dict[str, Any]:
    """What tells one scan from another: name, number of patterns, window, file, digests of positions and patterns."""
    file = _file_of(scan.frames)
    return {
        "name": scan.name,
        "patterns": len(scan),
        "window": list(scan.pattern_shape),
        "positions": hashlib.sha256(np.ascontiguousarray(scan.positions, dtype="<f8").tobytes()).hexdigest(),
        "sample": scan.sample_digest,
        "file": None if file is None else str(file),
    }


def _file_of(frames: Frames) -> Path | None:
    while True:
        path, source = getattr(frames, "path", None), getattr(frames, "source", None)
        if source is None:
            return path if isinstance(path, Path) else None
        frames = source


# Between a state and plain pieces


def packed(state: ReconstructionState) -> tuple[dict[str, Any], dict[str, Array]]:
    """The state as a record that JSON can hold, and arrays by their places in the file."""
    record, arrays = to_json(state)
    record["started"] = seconds_of(state.started)
    return record, {PREFIX.sub("", name): values for name, values in arrays.items()}


def unpacked(record: dict[str, Any], arrays: dict[str, Array]) -> ReconstructionState:
    """What `packed` took apart. Raises KeyError or TypeError where something is missing."""
    record = {**{name: record[name] for name in REQUIRED}, **record, "started": utc(record.get("started"))}
    own = ("optimiser/", "algorithm/")
    arrays = {f"algorithm/{name}" if name.startswith(own) else name: values for name, values in arrays.items()}
    return from_json(ReconstructionState, record, arrays)


# Writing


def save_state(state: ReconstructionState, path: str | Path) -> Path:
    """Writes the state; an existing file is replaced only once the new one is whole. Raises OSError."""
    path = Path(path).expanduser()
    put(path, image(state, 0, newest_written(path.parent)))
    return path


def image(state: ReconstructionState, rank: int = 0, after: int = 0) -> memoryview:
    """The bytes of the file, or of rank's companion of it, which has the rows only; later than `after` [ns].

    Made in memory, so that whoever else reads HDF5 meanwhile need not wait for a slow disk, and a full one is found out
    by writing plain bytes, not inside the library.
    """
    header = Header(state.run, state.token or secrets.token_hex(8), max(time.time_ns(), after + 1))
    record, arrays = packed(dataclasses.replace(state, token=header.token))
    if rank:
        arrays = {name: one for name, one in arrays.items() if name == "patterns" or name.startswith("rows/")}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", userblock_size=HEADER_BYTES, libver=("v110", "v110")) as file:
        file.attrs.update(format=FORMAT, version=VERSION, rank=rank)
        _write(file, "record", np.frombuffer(json.dumps(record).encode(), dtype=np.uint8))
        for name, values in arrays.items():
            _write(file, name, values)
    text = f"{FORMAT} {VERSION}\n{json.dumps(dataclasses.asdict(header))}\n".encode()
    assert len(text) <= HEADER_BYTES
    buffer.seek(0)
    buffer.write(text)
    return buffer.getbuffer()


def _write(file: h5py.File, name: str, values: Array) -> None:
    """With a checksum; one number alone can't have one, so it is stored as an array of one."""
    flat = np.ascontiguousarray(values).reshape(-1)
    step = max(1, CHUNK_BYTES // flat.itemsize)
    checked: dict[str, Any] = {"chunks": (min(len(flat), step),), "fletcher32": True} if len(flat) else {}
    stored = file.create_dataset(name, data=flat, **checked)
    stored.attrs["shape"] = np.array(values.shape, dtype=np.int64)


def put(path: Path, data: memoryview) -> None:
    """Writes these bytes beside `path`, and puts them in its place once they are on the disk; makes the folder."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with beside.open("wb", buffering=0) as file:
            done = 0
            while done < len(data):
                done += file.write(data[done : done + 2**24])
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


# Folders of states


def file_name(epoch: int, update: int, taken: Collection[str] = ()) -> str:
    """Of the state after so many epochs, and updates of the next one; numbered where that name is taken."""
    stem = f"state-{epoch:05d}-{update:03d}" if update else f"state-{epoch:05d}"
    numbered = (f"{stem}.h5" if number == 1 else f"{stem}.{number}.h5" for number in range(1, 10_000))
    return next(name for name in numbered if name not in taken)


def is_of(path: Path, epoch: int, update: int) -> bool:
    """Whether it is the name of a state of this moment, numbered or not."""
    return path.name.split(".")[0] == file_name(epoch, update).split(".")[0]


def companion(path: Path, rank: int) -> Path:
    """Where the rows of another rank are."""
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}.h5")


def states(folder: str | Path) -> list[Path]:
    """The state files in a folder, whole or not, in the order in which they were written."""
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if NAME.fullmatch(path.name)), key=lambda one: (_age(one), one))


def newest_written(folder: Path) -> int:
    """When the newest state in a folder was written [ns since 1970]; 0 where there is none."""
    return max((_age(path) for path in states(folder)), default=0)


def _age(path: Path) -> int:
    try:
        found = header_of(path)
        return path.stat().st_mtime_ns if found is None else found.written
    except OSError:
        return 0


def header_of(path: Path) -> Header | None:
    """What the first bytes of a state file say; None where it is not one. Raises OSError where it can't be read."""
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
    """Ranks whose rows are not (yet) beside this state."""
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


def load_state(path: str | Path) -> ReconstructionState:
    """The state in a file; its rows are those of rank 0 (see `load_rows`).

    Raises FileError where it is truncated, damaged, of another kind or without its companions; the sentence names the
    one written before it that is whole.
    """
    path = Path(path).expanduser()
    try:
        return _load(path)
    except FileError as error:
        before = _whole_before(path)
        advice = f" Use {before}, the one before it." if before else ""
        raise FileError(f"{error}{advice}", code=error.code) from None


def newest_state(folder: str | Path) -> Path:
    """The newest state in a folder, once it was read and found whole. Raises FileError as `load_state` does."""
    found = states(folder)
    if not found:
        raise FileError(
            f"There is no checkpoint (state-00120.h5 and the like) in {Path(folder)}.",
            code="checkpoint.not-found",
        )
    load_state(found[-1])
    return found[-1]


def _whole_before(path: Path) -> Path | None:
    known = states(path.parent)
    for candidate in reversed(known[: known.index(path)] if path in known else []):
        try:
            _load(candidate)
        except FileError:
            continue
        return candidate
    return None


def _load(path: Path) -> ReconstructionState:
    record, arrays, version = _read(path)
    try:
        state = _with_present_names(unpacked(record, arrays), version - 1)
    except (AttributeError, KeyError, TypeError) as error:
        raise FileError(
            f"{path} is not a whole state: {error} is missing or of another type.", code="file.damaged"
        ) from None
    except SettingsError as error:
        raise FileError(f"{path} is damaged ({error}) and cannot be used.", code="file.damaged") from None
    if missing := missing_parts(path, state.token, state.parts):
        raise FileError(
            f"{path} is not whole: the parts of ranks {missing} ({companion(path, missing[0]).name} and so on) are "
            "missing or of another moment; they have to be in the same folder.",
            code="checkpoint.incomplete",
        )
    return state


def load_rows(path: Path, state: ReconstructionState, patterns: NDArray[np.int64]) -> dict[str, Array]:
    """The rows of these patterns, wherever they are: in the state's own file or in its companions."""
    found = {name: np.empty((len(patterns), *rows.shape[1:]), rows.dtype) for name, rows in state.rows.items()}
    for rank in range(state.parts if found else 0):
        arrays = packed(state)[1] if rank == 0 else _read(companion(path, rank))[1]
        theirs = arrays["patterns"]
        _, here, there = np.intersect1d(patterns, theirs, return_indices=True)
        for name, rows in found.items():
            rows[here] = arrays[f"rows/{name}"][there]
    return found


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Array], int]:
    """The record and the arrays of one file, and its version."""
    with open_for_reading(path) as file:
        try:
            kind, version = str(file.attrs.get("format")), file.attrs.get("version")
            if kind != FORMAT:
                raise FileError(
                    f"{path} is not a checkpoint of ptynb; its format is {kind!r:.40}.", code="file.unknown-format"
                )
            if version not in range(1, VERSION + 1):
                raise FileError(
                    f"{path} is a checkpoint of version {version}; this ptynb reads 1 to {VERSION}. Update ptynb.",
                    code="file.unsupported-version",
                )
            arrays: dict[str, Array] = {}
            checked = Checked(file, path)

            def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
                if isinstance(item, h5py.Dataset):
                    stored = checked.dataset(name)
                    arrays[name] = checked.read(name, stored).reshape(stored.attrs["shape"])

            dataset(file, "record", path)
            file.visititems(take)
            return json.loads(arrays.pop("record").tobytes()), arrays, int(version)
        except FileError:
            raise
        except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise FileError(
                f"{path} is damaged ({' '.join(str(error).split())}) and cannot be used.", code="file.damaged"
            ) from None


def _with_present_names(state: ReconstructionState, known: int) -> ReconstructionState:
    """Settings, and the record of their changes, under the names of today. known: tables that the writer knew."""
    return dataclasses.replace(
        state,
        settings=translated(state.settings, Settings, known),
        begun=translated(state.begun, Settings, known),
        changes=tuple(change_with_present_names(change, Settings, known) for change in state.changes),
    )
