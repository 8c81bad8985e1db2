# ruff: noqa: E501
"""What `ptynb` reads of small public test files of other packages: `python -m tests.io.public_files FOLDER`.

Nothing is downloaded, and no file is part of the project. FOLDER has copies of repositories of GitHub, as OWNER+NAME;
archives (.zip) are unpacked beside themselves, into a folder of their name. Prints what differs; its status is 1 if
something does, or if no file is there. Files that are no scans (images, spectra) have the code of their error.
"""

import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.exceptions import PtynbError
from ptynb.io.load import find
from ptynb.settings.load_options import LoadOptions

ROSETTASCIIO = "hyperspy+rosettasciio/rsciio/tests/data"
# path, format or code of the error, shape of the patterns, raster, wavelength [m]
FILES: tuple[tuple[str, str, Any, Any, Any], ...] = (
    ('blockfile/test1.blo', 'BLO', (6, 144, 144), (3, 2), 2.508e-12),
    ('blockfile/test2.blo', 'BLO', (6, 5, 5), (2, 3), 2.508e-12),
    ('emd/FFTComplexEven.emd', 'file.incomplete', None, None, None),
    ('emd/FFTComplexOdd.emd', 'file.incomplete', None, None, None),
    ('emd/Si100_1x1x3-zStart5.43.emd', 'file.several-choices', None, None, None),
    ('emd/Si100_1x1x3-zStart6.7875.emd', 'file.several-choices', None, None, None),
    ('emd/Si100_2D_3D_DPC_potential_2slices.emd', 'file.several-choices', None, None, None),
    ('emd/Si100_2x1x1_3D.emd', 'file.incomplete', None, None, None),
    ('emd/Si100_3D.emd', 'HDF5', (22, 22, 37), None, None),
    ('emd/Si100_4D.emd', 'file.several-choices', None, None, None),
    ('emd/example_axis_len_1.emd', 'EMD (py4DSTEM)', (5, 1, 5), None, None),
    ('emd/example_bytes_string_metadata.emd', 'file.incomplete', None, None, None),
    ('emd/example_image.emd', 'file.incomplete', None, None, None),
    ('emd/example_metadata.emd', 'file.incomplete', None, None, None),
    ('emd/example_object_dtype_data.emd', 'file.incomplete', None, None, None),
    ('emd/example_signal.emd', 'EMD (py4DSTEM)', (3, 3, 3), None, None),
    ('emd/example_spectrum.emd', 'file.incomplete', None, None, None),
    ('emd/fei_example_complex_fft.emd', 'file.incomplete', None, None, None),
    ('emd/fei_example_dpc_titles.emd', 'file.incomplete', None, None, None),
    ('emd/fei_example_tem_stack.emd', 'EMD (Velox)', (2, 3, 3), None, 1.969e-12),
    ('emd/py4DSTEM_size2x3x4x5.h5', 'EMD (py4DSTEM)', (6, 4, 5), (2, 3), None),
    ('mrc/20241021_00405_0_Virt 0_sum.mrc', 'file.incomplete', None, None, None),
    ('mrc/20241021_00405_1_Virt 1_sum.mrc', 'file.incomplete', None, None, None),
    ('mrc/20241021_00405_ext1_Ext 1.mrc', 'file.incomplete', None, None, None),
    ('mrc/20241021_00405_final.mrc', 'file.incomplete', None, None, None),
    ('mrc/20241021_00405_movie.mrc', 'MRC', (32, 4, 8), (4, 8), 1.969e-12),
    ('mrc/Custom_movie.mrc', 'MRC', (30, 16, 16), None, 1.969e-12),
    ('mrc/HAADFscan.mrc', 'file.incomplete', None, None, None),
    ('mrc/ROI_Random_Scan_Sum.mrc', 'file.incomplete', None, None, None),
    ('mrc/ROI_Random_Scan_movie.mrc', 'MRC', (348, 16, 16), None, 1.969e-12),
    ('quantumdetector/Merlin_Single_Quad/Quad_1_Frame_CounterDepth_12_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_1_Frame_CounterDepth_1_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_1_Frame_CounterDepth_1_Rows_256RAW.mib', 'MIB, raw data', (1, 512, 512), None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_1_Frame_CounterDepth_24_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_1_Frame_CounterDepth_6_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_9_Frame_CounterDepth_12_Rows_256.mib', 'MIB', (9, 512, 512), None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_9_Frame_CounterDepth_1_Rows_256.mib', 'MIB', (9, 512, 512), None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_9_Frame_CounterDepth_1_Rows_256RAW.mib', 'MIB, raw data', (9, 512, 512), None, None),
    ('quantumdetector/Merlin_Single_Quad/Quad_9_Frame_CounterDepth_24_Rows_256.mib', 'MIB', (9, 512, 512), (3, 3), None),
    ('quantumdetector/Merlin_Single_Quad/Quad_9_Frame_CounterDepth_6_Rows_256.mib', 'MIB', (9, 512, 512), None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_1_Frame_CounterDepth_12_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_1_Frame_CounterDepth_1_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_1_Frame_CounterDepth_1_Rows_256RAW.mib', 'MIB, raw data', (1, 256, 256), None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_1_Frame_CounterDepth_24_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_1_Frame_CounterDepth_6_Rows_256.mib', 'file.incomplete', None, None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_9_Frame_CounterDepth_12_Rows_256.mib', 'MIB', (9, 256, 256), None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_9_Frame_CounterDepth_1_Rows_256.mib', 'MIB', (9, 256, 256), None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_9_Frame_CounterDepth_1_Rows_256RAW.mib', 'MIB, raw data', (9, 256, 256), None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_9_Frame_CounterDepth_24_Rows_256.mib', 'MIB', (9, 256, 256), None, None),
    ('quantumdetector/Merlin_Single_Quad/Single_9_Frame_CounterDepth_6_Rows_256.mib', 'MIB', (9, 256, 256), None, None),
    ('quantumdetector/Merlin_navigation4x2_ROI/001_4x2_6bit.mib', 'MIB', (8, 256, 256), (2, 4), None),
    ('quantumdetector/Merlin_navigation4x2_ROI/002_4x2_6bit_roi128.mib', 'MIB', (8, 128, 256), (2, 4), None),
    ('quantumdetector/Merlin_navigation4x2_signalNx256_ROI/002_merlin_test_roi_sig256x128_nav4x2_hot_pixel_52x_39y.mib', 'MIB', (8, 128, 256), (2, 4), None),
    ('quantumdetector/Merlin_navigation4x2_signalNx256_ROI/003_merlin_test_roi_sig256x64_nav4x2_hot_pixel_52x_39y.mib', 'MIB', (8, 64, 256), (2, 4), None),
    ('tvips/test_tvips_2233_000.tvips', 'TVIPS', (4, 3, 3), None, 2.508e-12),
    ('tvips/test_tvips_2345_000.tvips', 'TVIPS', (6, 4, 5), None, 2.508e-12),
    ('tvips/test_tvips_2345_split_000.tvips', 'TVIPS', (6, 4, 5), None, 2.508e-12),
    ('tvips/test_tvips_2345_split_001.tvips', 'file.unknown-format', None, None, None),
    ('tvips/test_tvips_2345_split_002.tvips', 'file.unknown-format', None, None, None),
)  # fmt: skip
MERLIN = f"{ROSETTASCIIO}/quantumdetector/Merlin_Single_Quad"
"""Raw data and what Merlin made of it, of the same noise source: the mean patterns have to agree."""
DEPTH = f"{ROSETTASCIIO}/emd/Si100_4D.emd"


def problems(folder: Path) -> tuple[int, list[str]]:
    """Return the number of files that are there, and what differs."""
    for archive in folder.glob(f"{ROSETTASCIIO}/*/Merlin*.zip"):
        if not archive.with_suffix("").is_dir():
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(archive.with_suffix(""))
    told, count = list[str](), 0
    for name, *expected in FILES:
        path = folder / ROSETTASCIIO / name
        if not path.is_file():
            continue
        count += 1
        if read(path) != expected:
            told.append(f"{name}: {read(path)}; expected {expected}")
    for chips in ("Single", "Quad"):
        raw, processed = (folder / MERLIN / f"{chips}_9_Frame_CounterDepth_1_Rows_256{end}.mib" for end in ("RAW", ""))
        if raw.is_file() and processed.is_file():
            means = [np.ravel(find(one, LoadOptions()).frames.read(0, 9).mean(0)) for one in (raw, processed)]
            if np.corrcoef(*means)[0, 1] < 0.99:
                told.append(f"{raw.name} and {processed.name} differ in their orientation")
    if (folder / DEPTH).is_file():
        place = "4DSTEM_simulation/data/datacubes/CBED_array_depth0001/datacube"
        record = find(folder / DEPTH, LoadOptions(patterns=place))
        if record.raster != (11, 11) or not np.allclose(record.step, 5e-10):
            told.append(f"{DEPTH}: raster {record.raster}, step {record.step}; expected 11 x 11, 0.5 nm")
    return count, told


def read(path: Path) -> list[Any]:
    """Return what is read of a file, as in `FILES`."""
    try:
        record = find(path, LoadOptions())
    except PtynbError as error:
        return [error.code, None, None, None]
    assert record.frames is not None
    wavelength = None if record.wavelength is None else float(f"{record.wavelength:.4g}")
    return [record.format, record.frames.shape, record.raster, wavelength]


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        number, different = problems(Path(sys.argv[1]))
    print("\n".join([*different, f"{number} of {len(FILES)} files are there; {len(different)} differ."]))
    sys.exit(bool(different) or not number)
