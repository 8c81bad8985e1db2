"""Result: the final state of a reconstruction, with the record of the run."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.admissions import Admissions as Admissions
from ptynb.data.provenance import Machines, ScanIdentity, Software
from ptynb.data.record import Array, RunRecord, at
from ptynb.data.record import Change as Change
from ptynb.data.record import Epoch as Epoch
from ptynb.data.record import RunSpan as RunSpan
from ptynb.data.record import Thumbnail as Thumbnail
from ptynb.data.standard_error import ErrorMap


@dataclass(frozen=True, eq=False)
class Result(RunRecord):
    """The result of a reconstruction, with the record of the run.

    Parameters
    ----------
    object : ndarray
        complex (y, x); of a thick object (slice, y, x); with several object modes (mode, slice, y, x). Of more than
        256 MB it may be a read-only `numpy.memmap`, of which only what is used is read: from a run with the object in
        tiles that writes checkpoints, and from a file.
    probe : ndarray
        complex (mode, y, x) [square root of counts].
    positions : ndarray
        float64 (pattern, yx): top-left corners of the probe windows [object pixels].
    origin : tuple of int
        (y, x) of the object's first pixel in the coordinates of the scan [object pixels].
    title : str, optional
        One line, set by the user.
    comments : str, optional
        Text in Markdown, set by the user.
    epochs : tuple of Epoch, optional
        All epochs completed.
    update : int, optional
        Completed updates of an epoch that is not complete.
    r_factors : tuple of (int, float), optional
        (epochs completed, amplitude R-factor), if measured during the run.
    changes : tuple of Change, optional
        Changes during the run.
    runs : tuple of (int, int, int, int, float), optional
        Runs, and changes of their last epoch: the epochs and updates completed then, the epochs completed at the
        beginning of the run, its last epoch, and the time [s since 1970, UTC].
    settings : dict, optional
        Settings at the end, as plain values.
    stages : tuple of dict, optional
        Stages of the run, as plain values; (): one stage.
    stage : int, optional
        Index of the stage in which the result was taken.
    metadata : dict of str, optional
        Facts as texts, by name.
    started : str, optional
        When the reconstruction was first opened, ISO 8601 in UTC; empty: unknown.
    history : tuple of Thumbnail, optional
        Object and probe after some epochs, the earliest first.
    admissions : Admissions, optional
        Which patterns came when, of a scan that was measured during the run; None for other scans. Those that never
        came have their planned position, and are in no figure.
    plugins : tuple of Plugin, optional
        Plug-ins of other packages that were used, with their versions.
    r_factor : float
        Amplitude R-factor sum |sqrt(I) - sqrt(model)| / sum sqrt(I) of the final state over all patterns; NaN: not
        measured.
    scan_r_factors : tuple of float, optional
        The same over the patterns of each of several scans that were reconstructed together; None: one scan, or not
        measured.
    pixel_size : tuple of float, optional
        (y, x) of an object pixel [m]; None if the geometry is unknown.
    parameters : dict of ndarray, optional
        Other parameters by "component/name": "weights/weights", "background/background" (counts, with the zero
        frequency at index n // 2), "slices/thickness", "descan/shifts" (detector pixels), "aberrations/C10" and
        others (m; of those that are not round C_nma and C_nmb); "positions/start" are the initial ones if they are
        optimised.
    initial_settings : dict, optional
        Settings at the start, as plain values.
    ended : str, optional
        When the result was made, ISO 8601 in UTC; empty: unknown.
    scan : ScanIdentity, optional
        The data.
    software : Software, optional
        Versions.
    machines : Machines, optional
        Engines and devices.
    failure : str, optional
        Message of the error that ended the run; empty: none.
    error_map : ErrorMap, optional
        Standard error of the object from halves of the scan, if it was computed (`ptynb.error_map`).
    """

    object: Array
    probe: Array
    positions: Array
    origin: tuple[int, int] = field(metadata=at("object@origin"))
    _: KW_ONLY
    r_factor: float = field(metadata=at("@r_factor"))
    scan_r_factors: tuple[float, ...] | None = None
    pixel_size: tuple[float, float] | None = field(default=None, metadata=at("object@pixel_size"))
    parameters: dict[str, Array] = field(default_factory=dict, metadata=at("optimised"))
    initial_settings: dict[str, Any] = field(default_factory=dict, metadata=at("settings/at_start", required=True))
    ended: str = field(default="", metadata=at("entry/end_time", required=True))
    scan: ScanIdentity = field(default_factory=ScanIdentity, metadata=at("scan", required=True))
    software: Software = field(default_factory=Software, metadata=at("software", required=True))
    machines: Machines = field(default_factory=Machines, metadata=at("machines", required=True))
    failure: str = field(default="", metadata=at("entry/failure", required=True))
    error_map: ErrorMap | None = None

    def with_error_map(self, errors: ErrorMap | None) -> Result:
        """Return the result with a map of the object's standard error, for its file and its report.

        Parameters
        ----------
        errors : ErrorMap, optional
            Map from `ptynb.error_map`; None removes it.

        Returns
        -------
        Result
            The result with the map.
        """
        return dataclasses.replace(self, error_map=errors)

    def split(self) -> tuple[Result, ...]:
        """Return a result for each of the scans that the reconstructed one is made of.

        Scans with a common probe have the part of the object that they show, those with a common object their own
        probe modes and the whole object. Positions and other values of each pattern are those of the scan, and so is
        the R-factor of the final state; NaN if it was not measured (files of earlier versions). `losses`, and
        `r_factors` that were measured during the run, are of all scans together; parts have none of the latter.

        Returns
        -------
        tuple of Result
            Results in the order of the scans; this one alone if it is of one scan.
        """
        if "scans" not in self.scan.combination:
            return (self,)
        return tuple(_of_scan(self, number) for number in range(len(self.scan.combination["scans"])))

    @property
    def slices(self) -> Array:
        """The slices (slice, y, x) of the first object mode; one for a thin object."""
        object = self.object[0] if self.object.ndim == 4 else self.object
        return object.reshape(-1, *object.shape[-2:])

    @property
    def projection(self) -> Array:
        """The projection of the object (y, x): the product of the slices of its first mode; a view of a single one."""
        slices = self.slices
        return slices[0] if len(slices) == 1 else slices.prod(0)

    @property
    def aberrations(self) -> dict[str, float | tuple[float, float]]:
        """How the aberrations of the probe have changed since the start, by Krivanek's names; empty: none were refined.

        Round ones [m], others (magnitude [m], azimuth [rad]); to be added to those of a probe that began as a lens's.
        """
        found = dict[str, float | tuple[float, float]]()
        for name, values in self.parameters.items():
            if name.startswith("aberrations/"):
                term, fold = name.removeprefix("aberrations/"), int(name[-1])
                if fold:
                    along, across = values.tolist()
                    found[term] = math.hypot(along, across), math.atan2(across, along) / fold
                else:
                    found[term] = float(values)
        return found

    @property
    def losses(self) -> NDArray[np.float64]:
        """The loss of each epoch."""
        return np.array([epoch.loss for epoch in self.epochs], dtype=np.float64)

    @property
    def seed(self) -> int | None:
        """Seed of all random numbers: the order of patterns, and new modes; None if the settings do not contain it."""
        value = self.settings.get("seed")
        return value if isinstance(value, int) else None

    def __repr__(self) -> str:
        loss = f", loss {self.epochs[-1].loss:.5g}" if self.epochs else ""
        return (
            f"<Result: object {' x '.join(str(side) for side in self.object.shape)}, {len(self.probe)} probe modes, "
            f"{len(self.epochs)} epochs{loss}, R-factor {self.r_factor:.4f}>"
        )


OF_PATTERNS = (
    "positions/start",
    "weights/weights",
    "variations/coefficients",
    "descan/shifts",
    "tilt/angles",
)
"""Parameters with a row for each pattern."""


def _of_scan(result: Result, number: int) -> Result:
    """Return the part of a result that belongs to one of its scans."""
    combined = result.scan.combination
    scans = [ScanIdentity.from_plain(plain) for plain in combined["scans"]]
    first = sum(scan.patterns for scan in scans[:number])
    rows = slice(first, first + scans[number].patterns)
    frames = np.array(combined["frames"])
    corner, object, probe, origins = np.zeros(2, dtype=np.int64), result.object, result.probe, np.array(result.origin)
    if combined["share"] == "probe":
        before = frames[:, 0].min(0) - origins
        behind = origins + result.object.shape[-2:] - frames[:, 1].max(0)
        corner = np.maximum(frames[number, 0] - before - origins, 0)
        end = np.minimum(frames[number, 1] + behind - origins, result.object.shape[-2:])
        object = result.object[..., corner[0] : end[0], corner[1] : end[1]].copy()
    else:
        probe = np.split(result.probe, len(scans))[number]
    own: dict[str, Array] = {}
    for name, values in result.parameters.items():
        if name == "offset/shift" and values.ndim == 2:
            own[name] = values[number]
        elif name in OF_PATTERNS and len(values) == len(result.positions):
            own[name] = values[rows] - corner if name == "positions/start" else values[rows]
        else:
            own[name] = values
    origin = origins + corner - np.rint(combined["offsets"][number]).astype(np.int64)
    place = {"part_of": result.scan.name, "number": number}
    return dataclasses.replace(
        result,
        object=object,
        probe=probe,
        positions=result.positions[rows] - corner,
        origin=(int(origin[0]), int(origin[1])),
        parameters=own,
        r_factor=result.scan_r_factors[number] if result.scan_r_factors else float("nan"),
        scan_r_factors=None,
        r_factors=(),
        scan=dataclasses.replace(scans[number], combination=place),
        metadata={**result.metadata, "scan": scans[number].name},
    )


def squeezed(object: Any) -> Any:
    """Return an object without leading axes of length 1: (state, slice, y, x) -> (slice, y, x) -> (y, x).

    object: an array or a tensor with all four axes.
    """
    if len(object) > 1:
        return object
    return object[0, 0] if len(object[0]) == 1 else object[0]
