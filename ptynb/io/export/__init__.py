"""Export of results to CXI, NeXus, TIFF, OME-TIFF, PNG and npz by the suffix of the path, and to Tiled servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ptynb import plugins
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError, InvalidValueError
from ptynb.io.export.cxi_export import write_cxi
from ptynb.io.export.image_export import ExportedArrays, Of, What, write_png, write_tiff
from ptynb.io.export.nexus_export import check_nexus, write_nexus
from ptynb.io.export.npz_export import write_npz
from ptynb.io.export.pictures_export import NamedPictures, write_pictures_hdf5, write_pictures_npz
from ptynb.io.export.pyramid_export import ENDINGS as PYRAMIDS
from ptynb.io.export.pyramid_export import write_pyramid
from ptynb.io.export.tiled_export import is_address, write_tiled
from ptynb.io.new_files import replacing_file, require_folder
from ptynb.io.prepared_scan import check_same, loaded_again
from ptynb.io.result_file import load_result, save_result
from ptynb.plugins import Plugin
from ptynb.text import quoted

ENDINGS = (".cxi", ".nxs", ".tif", ".tiff", ".png", ".npz", ".h5")

SCAN_GIVEN = "export(result, path, scan=scan), or ptynb export --scan FILE"
"""How the scan is given, for errors."""


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

    def __post_init__(self) -> None:
        given: Any = self.endings  # a list, say: no type is checked in a plug-in
        right = isinstance(given, tuple) and given and all(isinstance(one, str) and one[:1] == "." for one in given)
        if not right:
            raise InvalidValueError(
                f"endings is {quoted(given)}; expected a tuple of texts that begin with a point, such as ('.csv',).",
                code="argument.invalid-value",
                fields=("endings",),
            )


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
    scan: Scan | str | Path | None = None,
) -> Path | str:
    """Write a result in the format of another program, or to a Tiled server.

    An existing file is replaced when the new one is complete; what a server has is not replaced.

    Parameters
    ----------
    result : Result, DirectImages, str or Path
        Result, path of a result file, or pictures of `direct`, for which the suffix is `.h5` or `.npz`.
    path : str or Path
        File to write. Its suffix selects the format: `.cxi`: object, probe, positions and geometry in HDF5; `.nxs`:
        NeXus by the definition NXcxi_ptycho, with the patterns of the scan, and settings and record; `.tif`: 32-bit
        floats with the pixel size, for ImageJ and others; `.ome.tif`: the same in tiles, with a pyramid of
        levels, each of means over 2 x 2 pixels of the one before, for objects that are larger than memory; `.png`: an
        image; `.npz`: all arrays, for numpy; `.h5`: the result file of ptynb. Plug-ins add others. Or the address of a
        new container of a Tiled server, "https://SERVER/FOLDER/NAME", for which the environment variable TILED_API_KEY
        has the key: arrays, a table of the epochs, and the record as metadata. On this machine also http.
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
    scan : Scan, str or Path, optional
        Scan whose patterns an `.nxs` contains, or the file that it is now in, which is loaded and prepared as recorded
        in the result. Default: it is loaded from where it was.

    Returns
    -------
    Path or str
        The path of the file, or the address of the container.

    Raises
    ------
    FileError
        The suffix is unknown ("file.unknown-format"), the folder is missing ("file.not-writable"), the result file
        cannot be read, or of an `.nxs` the scan cannot be loaded again ("file.not-found", "scan.not-in-file",
        "scan.other"). Of a server: its client is not installed ("package.not-installed"), the container exists
        ("export.exists"), or the server refuses ("export.server-failed").
    ScanError
        An `.nxs` has no place for a scan like this one ("file.unsupported-content").
    InvalidValueError
        An argument is invalid, or not supported by the format.
    """
    if isinstance(path, str) and is_address(path):
        if isinstance(result, NamedPictures):
            raise InvalidValueError(
                "Pictures of a scan are not written to a server; expected a result.", code="argument.invalid-value"
            )
        return write_tiled(result if isinstance(result, Result) else load_result(result), path)
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
    if ending == ".nxs":
        name = Path("the result" if isinstance(result, Result) else result)
        given = scan if isinstance(scan, Scan) else _scan_of(found, name, scan)
        check_same(given, found, name, SCAN_GIVEN)
        check_nexus(found, given)
        write_nexus(found, given, path)
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


def _scan_of(result: Result, name: Path, moved: str | Path | None) -> Scan:
    """Load the scan of a result again, from a file that was moved or from where it was. Raise FileError."""
    then = result.scan
    if moved is not None:
        then = dataclasses.replace(then, path=str(Path(moved).expanduser().absolute()))
    return loaded_again(then, name, SCAN_GIVEN)


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
