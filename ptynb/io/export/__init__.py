"""Export of results to CXI, TIFF, OME-TIFF, PNG and npz; the suffix of the path selects the format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ptynb import plugins
from ptynb.data.result import Result
from ptynb.exceptions import FileError
from ptynb.io.export.cxi_export import write_cxi
from ptynb.io.export.image_export import ExportedArrays, Of, What, write_png, write_tiff
from ptynb.io.export.npz_export import write_npz
from ptynb.io.export.pictures_export import NamedPictures, write_pictures_hdf5, write_pictures_npz
from ptynb.io.export.pyramid_export import ENDINGS as PYRAMIDS
from ptynb.io.export.pyramid_export import write_pyramid
from ptynb.io.new_files import replacing_file, require_folder
from ptynb.io.result_file import load_result, save_result
from ptynb.plugins import Plugin

ENDINGS = (".cxi", ".tif", ".tiff", ".png", ".npz", ".h5")


@dataclass(frozen=True)
class Exporter:
    """A format of `export` that a plug-in adds.

    Parameters
    ----------
    title : str
        What is written.
    endings : tuple of str
        Ends of the names of files in this format, in small letters, such as ".csv".
    write : callable
        Function of the `Result` and the path of a new file, which it writes.
    """

    title: str
    endings: tuple[str, ...]
    write: Callable[[Result, Path], None]


def exporters() -> dict[Plugin, Exporter]:
    """Return the formats of plug-ins; what cannot be used of them is a notice."""
    found = {}
    for plugin in plugins.of_kind("exporters"):
        with plugins.isolated():
            found[plugin] = plugins.instance(plugin, Exporter)
    return found


def _exporter_of(path: Path) -> tuple[Plugin, Exporter] | None:
    name = path.name.lower()
    return next((pair for pair in exporters().items() if name.endswith(pair[1].endings)), None)


def export(
    result: Result | NamedPictures | str | Path,
    path: str | Path,
    *,
    of: Of = "object",
    what: What | None = None,
    slice: int | None = None,
    bits: Literal[8, 16] = 8,
    colours: str = "gray",
) -> Path:
    """Write a result in the format of another program.

    An existing file is replaced when the new one is complete.

    Parameters
    ----------
    result : Result, DirectImages, str or Path
        Result, path of a result file, or pictures of `direct`, for which the suffix is `.h5` or `.npz`.
    path : str or Path
        File to write. Its suffix selects the format: `.cxi`: object, probe, positions and geometry in HDF5; `.tif`:
        32-bit floats with the pixel size, for ImageJ and others; `.ome.tif`: the same in tiles, with a pyramid of
        levels, each of means over 2 x 2 pixels of the one before, for objects that are larger than memory; `.png`: an
        image; `.npz`: all arrays, for numpy; `.h5`: the result file of ptynb. Plug-ins add others.
    of : {"object", "probe"}
        What to write to a TIFF or PNG.
    what : {"amplitude", "phase", "complex"}, optional
        Amplitude, phase [rad], or (PNG only) phase as hue and amplitude as brightness. Default: both in a TIFF, the
        phase in a PNG.
    slice : int, optional
        Slice of the object or mode of the probe, from 0. Default: all of them in a TIFF; in a PNG the product of the
        slices, or the first mode.
    bits : {8, 16}
        Bits per channel of a PNG; 16 support grey only.
    colours : str
        Colour map of matplotlib, for a PNG.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    FileError
        The suffix is unknown ("file.unknown-format"), the folder is missing ("file.not-writable"), or the result file
        cannot be read.
    InvalidValueError
        An argument is invalid, or not supported by the format.
    """
    path = Path(path).expanduser()
    ending = path.suffix.lower()
    by_plugin = None if ending in ENDINGS else _exporter_of(path)
    if ending not in ENDINGS and by_plugin is None:
        known = [*ENDINGS, *(one for exporter in exporters().values() for one in exporter.endings)]
        raise FileError(
            f"{path.name} has the ending {ending!r}; expected one of {', '.join(known)}.", code="file.unknown-format"
        )
    require_folder(path)
    if isinstance(result, NamedPictures):
        return _export_pictures(result, path, ending)
    found = result if isinstance(result, Result) else load_result(result)
    if by_plugin is not None:
        plugin, exporter = by_plugin
        with replacing_file(path) as part, plugins.guarded(plugin, f"cannot write {path.name}"):
            exporter.write(found, part)
        return path
    selected = ExportedArrays(of, what, slice)
    if ending == ".h5":
        return save_result(found, path)
    if ending == ".cxi":
        write_cxi(found, path)
        return path
    with replacing_file(path) as part:
        if ending == ".png":
            write_png(found, selected, part, bits, colours)
        elif ending == ".npz":
            write_npz(found, part)
        elif path.name.lower().endswith(PYRAMIDS):
            write_pyramid(found, selected, part)
        else:
            write_tiff(found, selected, part)
    return path


def _export_pictures(found: NamedPictures, path: Path, ending: str) -> Path:
    if ending == ".h5":
        write_pictures_hdf5(found, path)
    elif ending == ".npz":
        with replacing_file(path) as part:
            write_pictures_npz(found, part)
    else:
        raise FileError(
            f"{path.name} has the ending {ending!r}; expected .h5 or .npz for pictures of a scan, or "
            "pt.figure(found).savefig(...) for an image of them.",
            code="file.unknown-format",
        )
    return path
