"""Result of a run, from the data of an engine or from a checkpoint."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import pickle
import platform
import time

import h5py
import numpy as np
import torch
from torch import Tensor

from ptynb.data.provenance import Machines, ScanIdentity, Software
from ptynb.data.record import RunRecord, fields_of, utc
from ptynb.data.result import Result, squeezed
from ptynb.data.scan import Scan
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.io.scan_identity import identity_of
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.losses import make_loss
from ptynb.physics.model_builder import check_together, corner_shift, make_model, object_frame
from ptynb.preparation.pattern_window import in_window
from ptynb.settings import Settings
from ptynb.settings.change_replay import settings_before
from ptynb.settings.recipe import StagePlan
from ptynb.text import counted


def make_result(scan: Scan, data: Result, machines: Machines, failure: Exception | None) -> Result:
    """Return the complete result of a run from the data of an engine.

    machines: engines and backend of the run. failure: the error that ended the run, if any.
    """
    software = present_software()
    message = "" if failure is None else str(failure)
    metadata = {
        "ptynb": software.ptynb,
        "torch": software.torch,
        "python": software.python,
        "engines": machines.kind,
        "backend": machines.backend,
        "batch": machines.batch,
        "frames": machines.frames,
        "failure": message,
    }
    return _completed(scan, data, machines, software, metadata, message)


@torch.no_grad()
def result_of(state: ReconstructionState, scan: Scan, extensions: bytes) -> Result:
    """Return the result of a run from a checkpoint, without engines or patterns; its R-factor is NaN.

    extensions: the user's components and constraints of the run, pickled (cloudpickle).
    """
    settings = Settings(**state.begun)
    whole, scan = scan, in_stage(scan, state)
    check_together(scan, settings)
    tensors = {name: torch.from_numpy(values) for name, values in state.model.items()}
    object = (
        torch.view_as_complex(tensors["object.parts"].contiguous())
        if "object.parts" in tensors
        else torch.polar(tensors["object.amplitude"], tensors["object.phase"])
    )
    probe = torch.view_as_complex(tensors["probe.parts"].contiguous()) * torch.from_numpy(state.scale)
    mean_of_all = state.scan["counts"] / (len(scan) * math.prod(scan.pattern_shape))
    mean_count = state.scan.get("mean_count", mean_of_all)  # if patterns came during the run: of the first ones
    custom = [component for component in pickle.loads(extensions) if isinstance(component, ModelComponent)]
    loss = make_loss("amplitude", mean_count)  # any: none is evaluated
    model = make_model(scan, settings, object, probe, loss, mean_count=mean_count, extensions=custom)
    model.probe.set_scale(torch.from_numpy(state.scale))
    model.load_state_dict(tensors)
    if state.admissions is not None:
        origin, shift = object_frame(scan, settings).origin, corner_shift(scan, settings)
        corners = state.admissions.positions - np.array(origin) - np.array(shift)
        model.place(torch.from_numpy(state.admissions.patterns), torch.from_numpy(corners))
    optimised: dict[str, Tensor] = model.start_arrays()
    for name, component in model.parts.items():
        component.active = state.active[name]
        if component.active:
            optimised |= {f"{name}/{key}": values for key, values in component.arrays().items()}
    data = Result(
        **fields_of(RunRecord, state),
        object=squeezed(object).numpy(),
        probe=model.probe.values.numpy(),
        positions=model.all_positions().numpy(),
        parameters={name: values.numpy() for name, values in optimised.items()},
        origin=object_frame(scan, settings).origin,
        r_factor=float("nan"),
        scan=ScanIdentity(counts=state.scan["counts"]),
    )
    software = Software(
        **{name: state.metadata.get(name, "") for name in ("ptynb", "torch", "numpy", "h5py", "python")}
    )
    return _completed(whole, data, _machines(state, extensions), software, state.metadata, "")


def with_guesses_of(result: Result, scan: Scan) -> Scan:
    """Return the scan with object (of several modes the first), probe and positions of the result as its guesses."""
    object = result.object[0] if result.object.ndim == 4 else result.object
    return dataclasses.replace(scan, object=object, probe=result.probe, positions=result.positions, ground_truth=None)


def in_stage(scan: Scan, record: RunRecord) -> Scan:
    """Return the scan with its patterns as in the present stage of a run."""
    return in_window(scan, StagePlan.of(record.stages, record.stage).pattern_size)


def _completed(
    scan: Scan, data: Result, machines: Machines, software: Software, metadata: dict[str, str], failure: str
) -> Result:
    """Return the result with metadata of scan, settings, software and machines."""
    written = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return dataclasses.replace(
        data,
        pixel_size=in_stage(scan, data).pixel_size,
        initial_settings=settings_before(data.settings, data.changes),
        ended=utc(time.time()),
        scan=identity_of(scan, data.scan.counts),
        software=software,
        machines=machines,
        failure=failure,
        metadata={**metadata, "scan": scan.name, "written": written},
    )


def _machines(state: ReconstructionState, extensions: bytes) -> Machines:
    about = state.metadata
    engines, threads = (int(about[name]) if about.get(name, "").isdecimal() else 0 for name in ("engines", "threads"))
    return Machines(
        engines=engines,
        threads=threads,
        kind=f"{counted(engines, 'engine')} on {about.get('device', '')}",
        backend=about.get("backend", ""),
        extensions=names_of(extensions),
    )


def present_software() -> Software:
    """Return the versions of the software of this process."""
    return Software(
        ptynb=importlib.metadata.version("ptynb"),
        torch=torch.__version__,
        numpy=np.__version__,
        h5py=h5py.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
    )


def names_of(extensions: bytes) -> tuple[str, ...]:
    """Return the class names of the user's components and constraints, pickled by this program."""
    return tuple(type(one).__qualname__ for one in pickle.loads(extensions))
