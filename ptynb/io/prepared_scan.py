"""Preparation by steps as written in recipes and recorded in results, by which scans are loaded again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptynb import preparation
from ptynb.data.provenance import ScanIdentity
from ptynb.data.result import Result
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import FileError, InvalidTypeError, InvalidValueError, PtynbError
from ptynb.io.array_file import read_array
from ptynb.io.load import load
from ptynb.preparation.combination import combine
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


def loaded_again(then: ScanIdentity, path: Path, how: str = "reproduce(path, scan)") -> Scan:
    """Load and prepare a scan as recorded, and combine several in the same way.

    path: of the result or checkpoint. how: a call that takes the scan instead, for errors. Raises FileError.
    """
    if "scans" in then.combination:
        return _combined_again(then.combination, path, how)
    if "part_of" in then.combination:
        raise FileError(
            f"{path} is the part of a result that belongs to '{then.name}', one of the scans of "
            f"'{then.combination['part_of']}', which were reconstructed together; reproduce the whole result.",
            code="scan.combined",
        )
    if then.prepared and not then.preparation:
        raise FileError(
            f"{path} is of {then.path}, changed after it was loaded by other means than the functions of "
            f"ptynb.preparation, which is not in the record; load it, change it in the same way, and pass it: {how}.",
            code="scan.not-in-file",
        )
    if not then.path or then.arrays:
        why = f"opened with {' and '.join(then.arrays)} as arrays" if then.path else "which was in no file"
        raise FileError(
            f"{path} is of the scan '{then.name}', {why}; make that scan, and pass it: {how}.",
            code="scan.not-in-file",
        )
    file = Path(then.path)
    if not file.exists():
        raise FileError(
            f"{path} is of {file}, which does not exist any more; pass the scan: {how}.",
            code="file.not-found",
        )
    if then.size is not None and file.stat().st_size != then.size:
        raise FileError(
            f"{file} has {file.stat().st_size} bytes, and had {then.size} when {path} was made of it; "
            "expected the same file.",
            code="scan.other",
        )
    try:
        scan = load(file, **options_of(then.given))
    except TypeError as error:
        raise FileError(
            f"{path} has options of its scan that load does not have. {error}", code="file.damaged"
        ) from None
    try:
        return prepare(scan, then.preparation)
    except ValueError as error:
        code = error.code if isinstance(error, PtynbError) else "file.damaged"
        raise FileError(
            f"The preparation of the scan in {path} cannot be repeated: {error} Or prepare the scan in the same way, "
            f"and pass it: {how}.",
            code=code,
        ) from None


def _combined_again(combination: dict[str, Any], path: Path, how: str) -> Scan:
    try:
        identities = [ScanIdentity.from_plain(plain) for plain in combination["scans"]]
        share, gap, offsets = combination["share"], combination["gap"], combination["offsets"]
    except (KeyError, TypeError, AttributeError) as error:
        raise FileError(
            f"{path} does not say how its scan is made of several ({error}); copy the file again.", code="file.damaged"
        ) from None
    scans = [loaded_again(one, path, how) for one in identities]
    return combine(scans, share=share, gap=gap) if share == "probe" else combine(scans, share=share, shifts=offsets)


def check_same(scan: Scan, result: Result, path: Path, how: str = "reproduce(path, scan)") -> None:
    """Raise FileError if the metadata of the scan differ from those in the result. how: as for `loaded_again`."""
    then = result.scan
    patterns = then.patterns or len(result.positions)
    window = then.pattern_shape if then.patterns else scan.pattern_shape
    if (len(scan), scan.pattern_shape) != (patterns, window):
        raise FileError(
            f"{path} is the result of {patterns} patterns of {window[0]} x {window[1]} pixels, and this scan has "
            f"{len(scan)} of {scan.pattern_shape[0]} x {scan.pattern_shape[1]}; expected the same scan, prepared in "
            "the same way.",
            code="scan.other",
        )
    differs = ""
    if then.digest and scan.metadata_digest != then.digest:
        differs = f"positions, mask, geometry or guesses than '{scan.name}' has"
    elif then.sample_digest and scan.sample_digest != then.sample_digest:
        differs = f"patterns than '{scan.name}' has: another file, or one that was flipped, scaled or otherwise changed"
    if differs:
        raise FileError(
            f"{path} is the result of a scan with other {differs}; expected the same, prepared in the same way: {how}.",
            code="scan.other",
        )
