"""Export of a result as .npz: arrays without pickled objects, all other values as JSON text."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.data.provenance import ScanIdentity
from ptynb.data.result import Result
from ptynb.io.record_mapper import fields


def write_npz(result: Result, path: Path) -> None:
    """Write `object`, `probe`, `positions`, `origin`, `pixel_size` [m] (NaN where unknown), `losses`, `epochs`,
    `r_factor`, `r_factors`, `parameters` under "optimised/part/name", and `record`: the rest in JSON."""
    arrays: dict[str, Any] = {
        "object": result.object,
        "probe": result.probe,
        "positions": result.positions,
        "origin": np.array(result.origin),
        "pixel_size": np.array(result.pixel_size or (np.nan, np.nan)),
        "losses": result.losses,
        "epochs": np.array([epoch.number for epoch in result.epochs], dtype=np.int64),
        "r_factor": np.array(result.r_factor),
        "r_factors": np.array(result.r_factors, dtype=np.float64).reshape(-1, 2),
        **{f"optimised/{name}": values for name, values in result.parameters.items()},
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays, record=np.array(json.dumps(record_of(result))))


def record_of(result: Result) -> dict[str, Any]:
    """Return what a result has besides its arrays, as plain values."""
    return {
        "settings": result.settings,
        "began_with": result.initial_settings,
        "changes": [dataclasses.asdict(change) for change in result.changes],
        "scan": {place.path: getattr(result.scan, place.name) for place in fields(ScanIdentity)},
        "software": dataclasses.asdict(result.software),
        "machines": dataclasses.asdict(result.machines),
        "started": result.started,
        "ended": result.ended,
        "title": result.title,
        "comments": result.comments,
    }
