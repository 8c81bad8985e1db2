"""The result made of the state that an engine kept."""

from __future__ import annotations

import importlib.metadata
import pickle
import platform
import time
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
import torch

from ptynb.data.provenance import Machines, Software
from ptynb.data.record import utc
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Result, ResultData
from ptynb.io.scan_identity import identity_of
from ptynb.settings.change_replay import settings_before


def make_result(scan: Scan, kept: ResultData, machines: Machines, failure: Exception | None) -> Result:
    """The result of a scan from the state that an engine kept.

    machines: what reconstructed. failure: what ended it, if something did.
    """
    software = present_software()
    return Result(
        object=kept.object,
        probe=kept.probe,
        positions=kept.positions,
        origin=kept.origin,
        parameters=kept.parameters,
        epochs=kept.epochs,
        r_factor=kept.r_factor,
        settings=kept.settings,
        changes=kept.changes,
        pixel_size=scan.pixel_size,
        r_factors=kept.r_factors,
        initial_settings=settings_before(kept.settings, kept.changes),
        update=kept.update,
        started=utc(kept.started),
        ended=utc(time.time()),
        history=kept.history,
        title=kept.title,
        comments=kept.comments,
        scan=identity_of(scan, kept.counts),
        software=software,
        machines=machines,
        failure="" if failure is None else str(failure),
        metadata={
            "scan": scan.name,
            "ptynb": software.ptynb,
            "torch": software.torch,
            "python": software.python,
            "engines": machines.kind,
            "backend": machines.backend,
            "batch": machines.batch,
            "frames": kept.frames,
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "failure": "" if failure is None else str(failure),
        },
    )


def present_software() -> Software:
    """The versions of this process."""
    return Software(
        ptynb=importlib.metadata.version("ptynb"),
        torch=torch.__version__,
        numpy=np.__version__,
        h5py=h5py.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
    )


def names_of(extensions: bytes | Sequence[Any]) -> tuple[str, ...]:
    """The classes of the user's own pieces and constraints; bytes: as an opening holds them, made by this program."""
    found = pickle.loads(extensions) if isinstance(extensions, bytes) else extensions
    return tuple(type(one).__qualname__ for one in found)
