"""Emulators of file writers: one file in SWMR mode, and Eiger's master file with data files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import h5py
import hdf5plugin
import numpy as np

from ptynb.acquisition.emulators.playback import Player, Recording, Sending
from ptynb.data.geometry import Geometry

Layout = Literal["growing", "fixed", "uid", "chunks"]
IN_A_CHUNK = 8
"""Patterns of a chunk in the layout "chunks"."""


class SwmrPlayer(Player):
    """A writer of one NeXus file in SWMR mode, with positions in it.

    layout: "growing": the dataset becomes longer with each pattern; "fixed": it has its size from the beginning; "uid":
    the same, with a dataset of unique ids, and chunks that are there from the beginning; "chunks": several patterns
    in a chunk.
    """

    def __init__(self, recording: Recording, path: Path, layout: Layout = "growing") -> None:
        self._recording, self._path, self._layout = recording, path, layout
        self._waiting: list[tuple[float, int]] = []
        self._file: h5py.File | None = None
        self.address = f"{path}?uid=entry/uid" if layout == "uid" else str(path)

    def start(self) -> None:
        """Create the file, and switch to SWMR mode."""
        count, window = len(self._recording), self._recording.window
        self._file = file = h5py.File(self._path, "w", libver="latest")
        entry = _group(file, "entry", "NXentry")
        data = _group(entry, "data", "NXdata")
        data.attrs["signal"] = "data"
        fixed = self._layout in ("fixed", "uid")
        together = IN_A_CHUNK if self._layout == "chunks" else 1
        self._data = data.create_dataset(
            "data",
            (count if fixed else 0, *window),
            self._recording.dtype,
            maxshape=(count if fixed else None, *window),
            chunks=(together, *window),
            **hdf5plugin.Bitshuffle(),
        )
        if self._layout == "uid":
            self._data[:] = 0
            self._uid = entry.create_dataset("uid", (count,), "u8", chunks=(count,))
        positions = entry.create_group("positions")
        self._axes = [positions.create_dataset(axis, (0,), "f8", maxshape=(None,), chunks=(256,)) for axis in "yx"]
        for axis in self._axes:
            axis.attrs["units"] = "m"
        _write_geometry(entry, self._recording)
        file.swmr_mode = True

    def frame(self, step: Sending) -> None:
        number = step.number
        if number < 0:
            return
        if self._layout in ("growing", "chunks") and number >= len(self._data):
            self._data.resize(number + 1, axis=0)
        if self._layout in ("growing", "fixed"):
            self._data.id.write_direct_chunk((number, 0, 0), self._recording.packed(number))
        else:
            self._data[number] = self._recording.counts(number)
        self._data.flush()
        if self._layout == "uid":
            self._uid[number] = number + 1
            self._uid.flush()
        self._waiting.append((time.monotonic() + self.late_positions, number))
        self._write_positions(time.monotonic())

    def stray(self, number: int) -> None:
        """Do nothing: a file has one series."""

    def end(self) -> None:
        """Write the last positions, and close the file."""
        while self._waiting:
            self._write_positions(time.monotonic())
            time.sleep(0.005)
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write_positions(self, now: float) -> None:
        due = [number for when, number in self._waiting if when <= now]
        if not due:
            return
        self._waiting = [(when, number) for when, number in self._waiting if when > now]
        last = max(due) + 1
        if last > len(self._axes[0]):
            first = len(self._axes[0])
            for axis, values in zip(self._axes, self._recording.positions[first:last].T, strict=True):
                axis.resize(last, axis=0)
                axis[first:last] = values
                axis.flush()


class EigerPlayer(Player):
    """A detector's file writer: a master file, and data files that appear one after the other, complete."""

    def __init__(self, recording: Recording, path: Path, in_a_file: int = 100) -> None:
        self._recording, self._in_a_file = recording, in_a_file
        self._prefix = path.name.removesuffix(".h5").removesuffix("_master")
        self._path = path.with_name(f"{self._prefix}_master.h5")
        self._held: dict[int, bytes] = {}
        self.address = str(self._path)

    def start(self) -> None:
        count = len(self._recording)
        part = self._path.with_suffix(".part")
        with h5py.File(part, "w") as file:
            entry = _group(file, "entry", "NXentry")
            data = _group(entry, "data", "NXdata")
            for number in range(-(-count // self._in_a_file)):
                data[f"data_{number + 1:06d}"] = h5py.ExternalLink(self._data_path(number).name, "entry/data/data")
            _write_geometry(entry, self._recording)
            specific = entry["instrument/detector"].create_group("detectorSpecific")
            specific["nimages"], specific["ntrigger"] = 1, count
        part.replace(self._path)

    def frame(self, step: Sending) -> None:
        """Hold a pattern, and write a data file once all of its patterns are there."""
        if step.number < 0:
            return
        self._held[step.number] = self._recording.packed(step.number)
        first = step.number // self._in_a_file * self._in_a_file
        numbers = range(first, min(first + self._in_a_file, len(self._recording)))
        if all(number in self._held for number in numbers):
            self._write(first // self._in_a_file, numbers)

    def stray(self, number: int) -> None:
        """Do nothing: files have one series."""

    def close(self) -> None:
        """Do nothing: each file was closed when it was written."""

    def end(self) -> None:
        """Write what is left, without what is missing behind the last pattern."""
        while self._held:
            first = min(self._held) // self._in_a_file * self._in_a_file
            last = max(number for number in self._held if number < first + self._in_a_file)
            self._write(first // self._in_a_file, range(first, last + 1))

    def _write(self, file_number: int, numbers: range) -> None:
        path, window = self._data_path(file_number), self._recording.window
        part = path.with_suffix(".part")
        with h5py.File(part, "w", libver="latest") as file:
            data = _group(_group(file, "entry", "NXentry"), "data", "NXdata").create_dataset(
                "data",
                (len(numbers), *window),
                self._recording.dtype,
                maxshape=(None, *window),
                chunks=(1, *window),
                **hdf5plugin.Bitshuffle(),
            )
            data.attrs["image_nr_low"], data.attrs["image_nr_high"] = numbers[0] + 1, numbers[-1] + 1
            for number in numbers:
                if number in self._held:
                    data.id.write_direct_chunk((number - numbers[0], 0, 0), self._held.pop(number))
        part.replace(path)

    def _data_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._prefix}_data_{number + 1:06d}.h5")


def _group(place: h5py.Group, name: str, kind: str) -> h5py.Group:
    group = place.create_group(name)
    group.attrs["NX_class"] = kind
    return group


def _write_geometry(entry: h5py.Group, recording: Recording) -> None:
    geometry = recording.scan.geometry
    instrument = _group(entry, "instrument", "NXinstrument")
    detector, beam = _group(instrument, "detector", "NXdetector"), _group(instrument, "beam", "NXbeam")
    if isinstance(geometry, Geometry):
        _length(detector, "detector_distance", geometry.distance, 1.0, "m")
        _length(detector, "y_pixel_size", geometry.detector_pixel[0], 1.0, "m")
        _length(detector, "x_pixel_size", geometry.detector_pixel[1], 1.0, "m")
        _length(beam, "incident_wavelength", geometry.wavelength, 1e10, "angstrom")


def _length(group: h5py.Group, name: str, value: float, scale: float, unit: Any) -> None:
    group[name] = np.float64(value * scale)
    group[name].attrs["units"] = unit
