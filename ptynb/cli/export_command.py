"""`ptynb export`: a result file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    export = commands.add_parser(
        "export", help="export a result as CXI, NeXus, TIFF, OME-TIFF, PNG or npz, or to a Tiled server"
    )
    export.add_argument("result", type=Path, metavar="RESULT", help="result file (.h5)")
    export.add_argument(
        "out",
        nargs="+",
        metavar="OUT",
        help="output files; .cxi, .nxs (NXcxi_ptycho, with the patterns), .tif, .ome.tif (tiles and pyramid), .png or "
        ".npz selects the format; https://SERVER/FOLDER/NAME: a new container of a Tiled server (key: TILED_API_KEY)",
    )
    export.add_argument(
        "--of", choices=["object", "probe"], default="object", help="content of TIFF and PNG (default object)"
    )
    export.add_argument(
        "--what",
        choices=["amplitude", "phase", "complex"],
        help="quantity of TIFF (default: amplitude and phase) and PNG (default: phase; complex: PNG only)",
    )
    export.add_argument("--slice", type=int, metavar="N", help="slice of the object, or mode of the probe, from 0")
    export.add_argument("--bits", type=int, choices=[8, 16], default=8, help="bits of a PNG (default 8)")
    export.add_argument(
        "--colours", default="gray", metavar="MAP", help="colour map of a PNG, of matplotlib (default gray)"
    )
    export.add_argument(
        "--scan",
        type=Path,
        metavar="FILE",
        help="file of the scan, whose patterns an .nxs contains (default: where it was when it was reconstructed)",
    )
    export.set_defaults(run=_export)


def _export(chosen: argparse.Namespace) -> int:
    from ptynb.io.export import export
    from ptynb.io.result_file import load_result

    result = load_result(chosen.result)
    for path in chosen.out:
        written = export(
            result,
            path,
            of=chosen.of,
            what=chosen.what,
            slice=chosen.slice,
            bits=chosen.bits,
            colours=chosen.colours,
            scan=chosen.scan,
        )
        print(written)
    return 0
