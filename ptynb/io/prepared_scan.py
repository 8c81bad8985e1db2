"""Preparation by steps as they are written in recipes and recorded in results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptynb import preparation
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import InvalidTypeError, InvalidValueError
from ptynb.io.array_file import read_array
from ptynb.preparation.recorded_steps import with_preparation
from ptynb.settings.recipe import PrepareStep, Recipe
from ptynb.text import quoted


def prepare(scan: Scan, steps: Sequence[Any]) -> Scan:
    """Prepare a scan by steps, as those of `Recipe.prepare`; the scan has the record of them in `preparation`.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    steps : sequence of PrepareStep, dict or str
        Functions of `ptynb.preparation` and their arguments: `{"flip": "y"}`, `{"crop": {"window": 128}}`,
        `"transpose"`. An array, such as a mask, is given as a list or as the name of its file (.npy or text; masks also
        HDF5).

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    SettingsError
        If there is no such step or argument.
    InvalidValueError, InvalidTypeError, ScanError
        If an argument is invalid; as raised by the function, with the number of the step.
    FileError
        If the file of an array is missing, or contains another one.

    Examples
    --------
    >>> scan = pt.prepare(pt.load("scan.cxi"), [{"flip": "y"}, {"crop": 128}, {"mask_pixels": "bad.npy"}])
    """
    check_scan(scan)
    for number, step in enumerate(Recipe(prepare=tuple(steps)).prepare, 1):
        scan = _prepared(scan, step, number)
    return scan


def _prepared(scan: Scan, step: PrepareStep, number: int) -> Scan:
    files = {name: Path(step.arguments[name]).expanduser().absolute() for name in step.files}
    arrays = {name: read_array(path, name) for name, path in files.items()}
    ranges = {name: slice(*bounds) for name, bounds in step.ranges.items()}
    unrecorded = [name for name, value in step.arguments.items() if isinstance(value, dict) and "array" in value]
    if unrecorded:
        raise InvalidValueError(
            f"Step {number} of the preparation, {step.function}, had {unrecorded[0]} as an array that was in no file; "
            "only its digest is recorded. Store it in a file, give its name, and prepare the scan anew.",
            code="scan.not-in-file",
        )
    function = getattr(preparation, step.function)
    try:
        changed: Scan = function(scan, **{**step.arguments, **arrays, **ranges})
    except TypeError as error:
        raise InvalidTypeError(
            f"Step {number} of the preparation, {step.function}, got {quoted(step.arguments)}: {error}.",
            code="argument.invalid-type",
        ) from None
    except ValueError as error:
        error.args = (f"Step {number} of the preparation, {step.function}: {error}", *error.args[1:])
        raise
    arguments = {**step.arguments, **{name: str(path) for name, path in files.items()}}
    return with_preparation(changed, (*scan.preparation, {step.function: arguments}))


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return recorded options of `ptynb.load` as its arguments: pairs are stored as lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
