"""Result of a run, from the data of an engine or from a checkpoint."""

from __future__ import annotations

import dataclasses
import math
import pickle
import platform
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from ptynb.data.provenance import Machines, Software
from ptynb.data.record import RunRecord, utc
from ptynb.data.result import Result, squeezed
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.checkpoint_dir import default_folder
from ptynb.io.checkpoint_file import load_model_state
from ptynb.io.checkpoint_result import checkpoint_result
from ptynb.io.reading.large_array import mapped_pieces
from ptynb.io.scan_identity import identity_of
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.losses import make_loss
from ptynb.physics.model_builder import check_together, components_of_plugins, corner_shift, make_model
from ptynb.preparation.crop_and_pad import in_window
from ptynb.private_folder import private_folder
from ptynb.session.run_spec import RunSpec
from ptynb.settings import Settings
from ptynb.settings.change_replay import settings_before
from ptynb.settings.recipe import StagePlan
from ptynb.text import counted


def make_result(scan: Scan, data: Result, machines: Machines, failure: Exception | None) -> Result:
    """Return the complete result of a run from the data of an engine.

    machines: engines and backend of the run. failure: the error that ended the run, if any.
    """
    message = "" if failure is None else str(failure)
    metadata = {
        **{name: data.metadata[name] for name in ("ptynb", "torch", "python")},
        "engines": machines.kind,
        "backend": machines.backend,
        "batch": machines.batch,
        "frames": machines.frames,
        "failure": message,
        "scan": scan.name,
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    return dataclasses.replace(
        data,
        pixel_size=in_stage(scan, data).pixel_size,
        initial_settings=settings_before(data.settings, data.changes),
        ended=utc(time.time()),
        scan=identity_of(scan, data.scan.counts),
        software=Software.of(data.metadata, f"{platform.system()} {platform.release()}, {platform.machine()}"),
        machines=machines,
        failure=message,
        metadata=metadata,
    )


@contextmanager
def object_file(spec: RunSpec, checkpoint_folder: Callable[[], str | None]) -> Iterator[str]:
    """Yield the path of an empty file beside the checkpoints, into which rank 0 can write a large object in tiles.

    It is removed afterwards: its content exists as long as it is mapped. "": the object is not in tiles, or there are
    no checkpoints, or files in their folder cannot be made from here.
    """
    if spec.settings.object.layout == "whole" or spec.checkpointing is None:
        yield ""
        return
    known = checkpoint_folder()
    chosen = (spec.checkpointing.folder or default_folder()).expanduser().absolute()
    folder = private_folder(chosen) if known is None else Path(known)
    file = folder / f".result.{secrets.token_hex(4)}.part"
    try:
        file.touch(mode=0o600, exist_ok=False)
    except OSError:  # not seen, or not writable, from here
        yield ""
        return
    try:
        yield str(file)
    finally:
        file.unlink(missing_ok=True)


def with_object(data: Result | FileError | None, file: str) -> Result | None:
    """Return the data of an engine with the object from this file, if it was written there; None if it was lost.

    Raise FileError if the data are this error.
    """
    if isinstance(data, FileError):
        raise data
    if data is None or data.object.size:
        return data
    return dataclasses.replace(data, object=squeezed(mapped_pieces(Path(file)))) if file else None


def result_of(path: Path, spec: RunSpec) -> Result:
    """Return the result of a run from a checkpoint, without engines or patterns; its R-factor is NaN."""
    state = load_model_state(path)
    shown = checkpoint_result(path, state)
    settings, seen = Settings(**state.begun), in_stage(spec.scan, state)
    check_together(seen, settings)
    mean_of_all = state.scan["counts"] / (len(seen) * math.prod(seen.pattern_shape))
    mean_count = state.scan.get("mean_count", mean_of_all)  # if patterns came during the run: of the first ones
    # No pixel of the object has an effect on the other parameters: one is enough.
    arrays = {name: one[:, :, :1, :1] if name.startswith("object.") else one for name, one in state.model.items()}
    object, probe = torch.from_numpy(np.array(shown.object[..., :1, :1], ndmin=4)), torch.from_numpy(shown.probe)
    custom = [component for component in pickle.loads(spec.extensions) if isinstance(component, ModelComponent)]
    loss = make_loss("amplitude", mean_count)  # any: none is evaluated
    model = make_model(
        seen,
        settings,
        object,
        probe,
        loss,
        mean_count=mean_count,
        extensions=[*components_of_plugins(seen, settings), *custom],
    )
    model.probe.set_scale(torch.from_numpy(state.scale))
    model.set_arrays(arrays)
    if state.admissions is not None:
        corners = state.admissions.positions - np.array(shown.origin) - np.array(corner_shift(seen, settings))
        model.place(torch.from_numpy(state.admissions.patterns), torch.from_numpy(corners))
    for name, component in model.components.items():
        component.active = state.active[name]
    about = state.metadata
    engines, threads = (int(about[name]) if about.get(name, "").isdecimal() else 0 for name in ("engines", "threads"))
    kind = f"{counted(engines, 'engine')} on {about.get('device', '')}"
    return dataclasses.replace(
        shown,
        parameters={name: values.numpy() for name, values in model.optimised_arrays().items()},
        r_factor=float("nan"),
        scan=identity_of(spec.scan, state.scan["counts"]),
        machines=Machines(engines, threads, (), kind, about.get("backend", ""), extensions=spec.extension_names),
    )


def with_guesses_of(result: Result, scan: Scan) -> Scan:
    """Return the scan with object (of several modes the first), probe and positions of the result as its guesses."""
    object = result.object[0] if result.object.ndim == 4 else result.object
    return dataclasses.replace(scan, object=object, probe=result.probe, positions=result.positions, ground_truth=None)


def in_stage(scan: Scan, record: RunRecord) -> Scan:
    """Return the scan with its patterns as in the present stage of a run."""
    return in_window(scan, StagePlan.of(record.stages, record.stage).pattern_size)
