"""Compression filters that are not part of HDF5: bitshuffle, LZ4, Blosc, Zstandard, as used by detectors."""

from __future__ import annotations

import contextlib
import importlib

import h5py

NAMES = {
    32000: "LZF",
    32001: "Blosc",
    32004: "LZ4",
    32008: "bitshuffle",
    32013: "ZFP",
    32015: "Zstandard",
    32026: "Blosc2",
}
"""Names of filters by their registered numbers (https://github.com/HDFGroup/hdf5_plugins)."""


def require_filters(dataset: h5py.Dataset) -> None:
    """Load the filters of a dataset. Raises OSError with the package to install.

    hdf5plugin contains the filters; it is imported for the first dataset that needs it.
    """
    properties = dataset.id.get_create_plist()
    for index in range(properties.get_nfilters()):
        number, _, _, label = properties.get_filter(index)
        if h5py.h5z.filter_avail(number):
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module("hdf5plugin")
        if not h5py.h5z.filter_avail(number):
            name = NAMES.get(number) or label.decode("utf-8", "replace").split(";")[0].strip() or "an unknown filter"
            raise OSError(
                f"{dataset.name} is compressed with {name} (HDF5 filter {number}), which is not installed; "
                "pip install hdf5plugin, or write the data without it"
            )
