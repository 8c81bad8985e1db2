"""A record whose beam is decided, and whose numbers that are not set are missing: the same for all formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptynb.data.geometry import Geometry
from ptynb.data.scan import AnyGeometry
from ptynb.exceptions import FileError
from ptynb.io.reading.reader_interface import FileRecord, Missing
from ptynb.settings.claimed_values import CLAIMS, beam_of, impossible, improbable, is_set
from ptynb.settings.load_options import LoadOptions

WIDEST = 2.0
"""Detector's width over its distance; beyond 60 degrees to each side an object pixel is less than half a wavelength."""


def settled(record: FileRecord, options: LoadOptions) -> FileRecord:
    """Return the record with the wavelength that its beam has, without numbers that are not set, and with remarks."""
    unset = [name for name in (*CLAIMS, "energy") if not all(is_set(value) for value in numbers(record, name))]
    notes = [
        f"{name} is {_shown(getattr(record, name))}{place_of(record, name)}, which is taken as missing."
        for name in unset
    ]
    without: dict[str, Any] = dict.fromkeys(unset)
    record = replace(record, **without)
    if options.beam is None:
        beam = beam_of(record.wavelength, record.energy, record.voltage, record.detector)
        question = None
        if beam.question:
            name = f"the wavelength ({beam.question}{place_of(record, 'energy')})"
            question = Missing(name, beam.give, ("voltage", "energy"))
        notes += [beam.remark] if beam.remark else []
        record = replace(record, wavelength=beam.wavelength, beam_question=question)
    notes += [
        remark for name, value in claimed(record, options) if (remark := improbable(name, value, _at(record, name)))
    ]
    return replace(record, notes=(*record.notes, *dict.fromkeys(notes)))


def check_claims(record: FileRecord, options: LoadOptions, path: Path) -> None:
    """Raise FileError for a number of a file that no experiment has, unless an option replaces it."""
    for name, value in claimed(record, options):
        problem = impossible(name, value, _at(record, name))
        if problem:
            raise problem.retold(FileError, f"{path} has {problem}")


def check_width(record: FileRecord, geometry: AnyGeometry | None, path: Path) -> None:
    """Raise FileError for a detector that is too wide for the distance in the file: one of the two is in another unit.

    In the near field a parallel beam may reach a detector of any width close behind the sample.
    """
    if not isinstance(geometry, Geometry) or record.frames is None or geometry.distance != record.distance:
        return
    width = max(side * size for side, size in zip(record.frames.shape[1:], geometry.detector_pixel, strict=True))
    if width > 2 * WIDEST * geometry.distance:
        raise FileError(
            f"{path} has a detector of {width:.3g} m at a distance of {geometry.distance:.3g} m"
            f"{place_of(record, 'distance')}; expected a width of at most {2 * WIDEST:g} distances, so one of them is "
            "in another unit: give distance= [m] or detector_pixel=(y, x) [m].",
            code="scan.implausible-metadata",
            fields=("distance", "detector_pixel"),
        )


def claimed(record: FileRecord, options: LoadOptions) -> Iterator[tuple[str, float]]:
    """Yield (name, value) of the numbers of a file that no option replaces, with a name of `CLAIMS`."""
    given = set(options.names)
    if options.beam is not None:
        given |= {"wavelength", "voltage"}
    if record.angular_pixel is not None and not given & {"distance", "detector_pixel"}:
        given |= {"distance", "detector_pixel"}  # not used
    if "angular_pixel" in given:
        given |= {"distance", "detector_pixel"}
    if given & {"positions", "raster"} and record.step is None:
        given.add("step")
    if not options.is_near_field:
        given.add("focus_to_sample")
    for name in CLAIMS:
        if name not in given:
            yield from ((name, value) for value in numbers(record, name))


def numbers(record: FileRecord, name: str) -> tuple[float, ...]:
    """Return the values of a field: none, one, or two (y, x)."""
    value: Any = getattr(record, name)
    return () if value is None else value if isinstance(value, tuple) else (value,)


def place_of(record: FileRecord, name: str) -> str:
    """Return " (at PLACE)" for a value whose place in the file is known."""
    place = _at(record, name)
    return f" (at {place})" if place else ""


def _at(record: FileRecord, name: str) -> str:
    others = {"wavelength": ("energy", "voltage"), "energy": ("wavelength",)}.get(name, ())
    return next((record.places[one] for one in (name, *others) if one in record.places), "")


def _shown(value: Any) -> str:
    return " x ".join(f"{one:g}" for one in value) if isinstance(value, tuple) else f"{value:g}"
