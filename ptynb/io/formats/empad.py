"""EMPAD: raw patterns of an Electron Microscope Pixel Array Detector, and the .xml beside them.

.raw: float32, little-endian, without a header; a pattern is 130 x 128 of them, of which the last two rows are not
pixels. .xml (any of its fields may be missing; the names are those of versions 0.5 to 1.2):

    raw_file/@filename                                  of the .raw, often with the path it had on another machine
    pix_y, pix_x                                        rows and columns of the scan; newer: in
    scan_parameters[@mode="acquire"]/scan_resolution_y, scan_resolution_x; or in the name "scan_x64_y48.raw"
    scan_parameters/series_count                        patterns of a series without a raster
    iom_measurements/full_scan_field_of_view/x, scale_factor     field of view of the LONGER side [m] times this factor
    iom_measurements/optics.get_full_scan_field_of_view (y, x) [m], of version 0.5
    iom_measurements/high_voltage                       [V]
    iom_measurements/calibrated_pixelsize               of a detector pixel [1e18 1/m]
    iom_measurements/nominal_camera_length              [m]

As RosettaSciIO reads them; the detector is M. W. Tate et al., Microsc. Microanal. 22, 237 (2016): pixels of 150 µm.

Orientation: patterns as stored, the scan line by line, its fast axis along columns. On most microscopes the two differ
by a rotation, and often by a mirror: `ptynb.inspect` shows it, `load(..., rotation=...)` and `ptynb.preparation`
(flip, transpose) correct it.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ptynb.data.electrons import electron_wavelength
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import LinkPolicy, reason
from ptynb.io.reading.microscope_scales import volts
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.stack_axes import placed
from ptynb.settings.load_options import LoadOptions

PIXELS = 128
ROWS = 130
"""Rows of a pattern in the file; the last two are not pixels."""
STRIDE = ROWS * PIXELS * 4
"""Bytes from one pattern to the next."""
SENSOR_PIXEL = 150e-6
"""Side of a detector pixel [m]."""
LONGEST = 2**24
"""Upper limit of the bytes of an .xml; typical are ten thousand."""


def recognises(head: Head) -> bool:
    """Return whether this is a .raw file, or an .xml file that contains XML."""
    if head.path.suffix.lower() == ".raw":
        return head.path.is_file()
    beginning = head.start.lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.path.suffix.lower() == ".xml" and beginning.startswith(b"<")


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of the .raw and .xml files."""
    policy, notes = LinkPolicy.around(path, options.links), list[str]()
    if path.suffix.lower() == ".raw":
        raw, xml = path, _xml_of(path, policy, notes)
    else:
        raw, xml = _raw_of(path, policy), path
    scan = _named_scan(raw.name) if xml is None else _described_scan(xml, options)
    count, rest = divmod(raw.stat().st_size, STRIDE)
    if rest or not count:
        raise FileError(
            f"{raw} has {raw.stat().st_size} bytes; expected a multiple of {STRIDE}, for patterns of {ROWS} x {PIXELS} "
            "float32 of an EMPAD. The file is incomplete, or of another detector.",
            code="file.damaged",
        )
    expected = scan.series if scan.raster is None else scan.raster[0] * scan.raster[1]
    if xml is not None and expected is not None and expected > count:
        raise FileError(
            f"{raw} has {count} patterns, and {xml.name} announces {expected}; the file is incomplete: copy it again, "
            "or load the .raw alone from another folder.",
            code="file.damaged",
        )
    frames = placed(raw, 0, (expected or count, PIXELS, PIXELS), np.dtype("<f4"), stride=STRIDE)
    wavelength = None if scan.voltage is None else electron_wavelength(scan.voltage)
    beam = options.beam or wavelength
    angle = None if scan.reciprocal is None or beam is None else scan.reciprocal * beam
    if expected is not None and expected < count:
        notes.append(f"{raw.name} has {count} patterns; the {count - expected} after the raster's are left out.")
    nominal = angle is None and scan.camera_length is not None
    if nominal:
        notes.append(
            "The detector's angle is that of the nominal camera length, which is often wrong by several percent; "
            "angular_pixel=... [rad] sets it."
        )
    return FileRecord(
        format=FORMAT.name,
        frames=frames,
        raster=scan.raster,
        step=scan.step,
        wavelength=wavelength,
        angular_pixel=None if angle is None else (angle, angle),
        distance=scan.camera_length if nominal else None,
        detector_pixel=(SENSOR_PIXEL, SENSOR_PIXEL) if nominal else None,
        places=scan.places | {"patterns": str(raw)},
        notes=tuple(notes),
    )


FORMAT = Format("EMPAD", recognises, read, (".raw", ".xml"))


@dataclass(frozen=True, kw_only=True)
class _Metadata:
    """Content of the .xml.

    raster: (rows, columns). series: patterns without a raster. step: (y, x) [m]. voltage: [V]. reciprocal: size
    of a detector pixel [1/m]. camera_length: [m]. places: path of each value in the file.
    """

    raster: tuple[int, int] | None = None
    series: int | None = None
    step: tuple[float, float] | None = None
    voltage: float | None = None
    reciprocal: float | None = None
    camera_length: float | None = None
    places: dict[str, str]


def _named_scan(name: str) -> _Metadata:
    """Return the raster (rows, columns) in a file name like "scan_x64_y48.raw"."""
    found = re.search(r"_x(\d{1,6})_y(\d{1,6})", name)
    if found is None:
        return _Metadata(places={})
    return _Metadata(raster=(int(found[2]), int(found[1])), places={"raster": "the file's name"})


def _tree(xml: Path) -> Element:
    """Return the root element. Raise FileError if it is no XML, too long, or declares a document type or entities."""
    if xml.stat().st_size > LONGEST:
        raise FileError(
            f"{xml} has {xml.stat().st_size} bytes; expected the .xml of an EMPAD, which has a few thousand.",
            code="file.damaged",
        )
    try:
        tree: Element = fromstring(xml.read_bytes(), forbid_dtd=True)
    except DefusedXmlException:
        raise FileError(
            f"{xml} declares a document type or entities, which the .xml of an EMPAD does not; remove the declaration.",
            code="file.damaged",
        ) from None
    except (ParseError, ValueError, LookupError) as error:
        raise FileError(
            f"{xml} is not XML ({reason(error)}); expected the .xml that an EMPAD writes beside the .raw.",
            code="file.damaged",
        ) from None
    return tree


def _raw_name(tree: Element) -> str:
    """Return the file name of the .raw; "" if missing. Its folder is ignored: it may be one of another machine."""
    element = tree.find(".//raw_file")
    name = "" if element is None else element.get("filename") or element.get("file_name") or ""
    last = PurePosixPath(name.replace("\\", "/")).name
    return "" if last in (".", "..") or "\0" in last else last


def _raw_of(xml: Path, policy: LinkPolicy) -> Path:
    tree = _tree(xml)
    if (tree.findtext(".//sensor/type") or "").strip() == "EMPAD2":
        raise FileError(
            f"{xml} is of an EMPAD-G2, whose raw data need the detector's own calibration; export the patterns as .npy "
            "and load that.",
            code="file.unsupported-content",
        )
    name = _raw_name(tree)
    if not name:
        raise FileError(
            f"{xml} names no raw file; expected the .xml of an EMPAD, with raw_file filename=...",
            code="file.incomplete",
        )
    raw = xml.parent / name
    policy.check(raw, f"{xml} stores its patterns")
    if not raw.is_file():
        raise FileError(
            f"{xml} names {name}, which is not beside it; put the .raw into {xml.parent}.", code="file.not-found"
        )
    return raw


def _xml_of(raw: Path, policy: LinkPolicy, notes: list[str]) -> Path | None:
    """Return the .xml that belongs to a .raw: of the same name, else one that refers to it; note skipped files."""
    beside = sorted(found for found in raw.parent.iterdir() if found.suffix.lower() == ".xml" and found.is_file())
    for candidate in beside:
        if candidate.stem == raw.stem:
            policy.check(candidate, f"{raw} stores its metadata")
            return candidate
    naming = []
    for candidate in beside:
        try:
            policy.check(candidate, f"{candidate.name} is not looked at: it is")
        except FileError as error:
            notes.append(str(error))
            continue
        with suppress(FileError):  # unrelated XML
            if _raw_name(_tree(candidate)) == raw.name:
                naming.append(candidate)
    if len(naming) > 1:
        raise FileError(
            f"{', '.join(found.name for found in naming)} in {raw.parent} all name {raw.name}; load one of them.",
            code="file.several-choices",
        )
    return naming[0] if naming else None


def _described_scan(xml: Path, options: LoadOptions) -> _Metadata:
    tree = _tree(xml)
    fields = _Fields(xml, tree)
    series = fields.whole("series", "scan_parameters/series_count")
    rows = fields.whole("raster", "pix_y", "scan_parameters[@mode='acquire']/scan_resolution_y")
    columns = fields.whole("raster", "pix_x", "scan_parameters[@mode='acquire']/scan_resolution_x")
    raster = None if rows is None or columns is None else (rows, columns)
    if raster is None and series is None:
        raster = _named_scan(_raw_name(tree)).raster
    voltage = fields.number("voltage", "iom_measurements/high_voltage")
    calibrated = fields.number("angular_pixel", "iom_measurements/calibrated_pixelsize")
    return _Metadata(
        raster=None if series is not None else raster,
        series=series,
        step=None if raster is None else _step(fields, raster),
        voltage=None if voltage is None or options.beam is not None else volts(voltage, str(xml)),
        reciprocal=None if not calibrated else calibrated * 1e18,
        camera_length=fields.number("distance", "iom_measurements/nominal_camera_length") or None,
        places=fields.places,
    )


def _step(fields: _Fields, raster: tuple[int, int]) -> tuple[float, float] | None:
    """Return the scan step (y, x) [m]. The newer field of view is that of the longer side, for both axes."""
    both = fields.text("step", "iom_measurements/optics.get_full_scan_field_of_view")
    if both is not None:
        sides = [float(number) for number in re.findall(r"[-+\d.]+(?:[eE][-+]?\d+)?", both) if _is_number(number)]
        if sides and not any(sides):
            return None  # not set
        if len(sides) != 2 or min(sides) <= 0:
            raise FileError(
                f"{fields.xml} has the field of view {both[:40]!r}; expected two lengths (y, x) [m].",
                code="file.unexpected-content",
            )
        return sides[0] / raster[0], sides[1] / raster[1]
    side = fields.number("step", "iom_measurements/full_scan_field_of_view/x")
    scale = fields.number("step", "iom_measurements/full_scan_field_of_view/scale_factor")
    if side is None or scale is None or side <= 0 or scale <= 0:
        return None
    step = side / scale / max(raster)
    return step, step


@dataclass(frozen=True)
class _Fields:
    """Fields of an .xml, with the path of each one that was read."""

    xml: Path
    tree: Element
    places: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, *ways: str) -> str | None:
        for way in ways:
            text = (self.tree.findtext(way) or "").strip()
            if text:
                self.places[name] = f"{self.xml.name}: {way}"
                return text
        return None

    def number(self, name: str, *ways: str) -> float | None:
        text = self.text(name, *ways)
        if text is not None and not _is_number(text):
            raise FileError(
                f"{self.places[name]} is {text[:40]!r}; expected a finite number ({self.xml}).",
                code="file.unexpected-content",
            )
        return None if text is None else float(text)

    def whole(self, name: str, *ways: str) -> int | None:
        number = self.number(name, *ways)
        if number is not None and (number != int(number) or not 1 <= number <= 2**31):
            raise FileError(
                f"{self.places[name]} is {number:g}; expected a whole number of at least 1 ({self.xml}).",
                code="file.unexpected-content",
            )
        return None if number is None else int(number)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
