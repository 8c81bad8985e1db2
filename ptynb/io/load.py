"""`load`: from a path to a scan, by the file's content."""

from __future__ import annotations

from pathlib import Path

from ptynb.geometry import wavelength_from_energy
from ptynb.io.cxi import is_cxi, read_cxi
from ptynb.io.hdf5 import FileError, open_for_reading
from ptynb.io.native import is_native, read_scan
from ptynb.io.result import is_result
from ptynb.scan import Scan


def load(
    path: str | Path,
    *,
    wavelength: float | None = None,
    energy: float | None = None,
    distance: float | None = None,
    detector_pixel: tuple[float, float] | None = None,
    clip_negative: bool = False,
) -> Scan:
    """Opens a scan: CXI, or ptynb's own HDF5. Reads the metadata now and the patterns when they are needed.

    What the file lacks or has wrong can be given: wavelength [m] or energy [eV], distance [m], detector_pixel
    (y, x) [m].
    clip_negative: negative counts become 0 (else they are an error).

    Raises FileError or ScanError, both ValueErrors, that say what was found, what was expected and what to do. The
    first and the last pattern are looked at now, the others when an engine reads them.
    """
    path = Path(path).expanduser()
    if wavelength is not None and energy is not None:
        raise FileError(f"Both wavelength={wavelength} m and energy={energy} eV were given; give one.")
    if energy is not None:
        wavelength = wavelength_from_energy(energy)
    given = {"wavelength or energy": wavelength, "distance": distance, "detector_pixel": detector_pixel}
    with open_for_reading(path) as file:
        native, cxi, result = is_native(file), is_cxi(file), is_result(file)
        groups = ", ".join(sorted(file)) or "nothing"
    if native:
        extra = [name for name, value in given.items() if value is not None]
        if extra or clip_negative:
            raise FileError(
                f"{path} is a ptynb scan and knows its own geometry; leave out {', '.join(extra) or 'clip_negative'}."
            )
        scan = read_scan(path)
    elif cxi:
        scan = read_cxi(
            path,
            wavelength=wavelength,
            distance=distance,
            detector_pixel=detector_pixel,
            clip_negative=clip_negative,
        )
    elif result:
        raise FileError(f"{path} is a result of ptynb, not a scan; open it with load_result.")
    else:
        raise FileError(
            f"{path} is HDF5 but neither CXI nor a ptynb scan (it holds {groups}); "
            "read the arrays with h5py and use Scan.from_arrays."
        )
    for index in {0, len(scan) - 1}:
        scan.counts(index, index + 1)
    return scan
