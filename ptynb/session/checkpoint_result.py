"""The result that a kept state stands for, made without an engine and without a pattern."""

from __future__ import annotations

import math
import pickle
import time

import torch
from torch import Tensor

from ptynb.cluster.devices import counted
from ptynb.data.provenance import Machines, Software
from ptynb.data.record import utc
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Result
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.io.scan_identity import identity_of
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.losses import make_loss
from ptynb.physics.model_builder import check_together, make_model, object_frame
from ptynb.session.engine_result import names_of
from ptynb.settings import Settings
from ptynb.settings.change_replay import settings_before


@torch.no_grad()
def result_of(state: ReconstructionState, scan: Scan, extensions: bytes) -> Result:
    """The result of a scan as this state has it; its R-factor, which takes all patterns, is not a number.

    extensions: pieces of the user's, by value (cloudpickle), the same ones as before.
    """
    begun = Settings(**state.begun)
    check_together(scan, begun)
    kept = {name: torch.from_numpy(values) for name, values in state.model.items()}
    object = (
        torch.view_as_complex(kept["object.parts"].contiguous())
        if "object.parts" in kept
        else torch.polar(kept["object.amplitude"], kept["object.phase"])
    )
    probe = torch.view_as_complex(kept["probe.parts"].contiguous()) * torch.from_numpy(state.scale)
    mean_count = state.scan["counts"] / (len(scan) * math.prod(scan.pattern_shape))
    own = [piece for piece in pickle.loads(extensions) if isinstance(piece, ModelComponent)]
    loss = make_loss(begun.loss, mean_count)
    model = make_model(scan, begun, object, probe, loss, mean_count=mean_count, extensions=own)
    model.probe.scale.copy_(torch.from_numpy(state.scale))
    model.load_state_dict(kept)
    optimised: dict[str, Tensor] = model.beginnings()
    for name, piece in model.parts.items():
        piece.active = state.active[name]
        if piece.active:
            optimised |= {f"{name}/{key}": values for key, values in piece.arrays().items()}
    whole = object[0] if len(object) == 1 else object
    whole = whole[0] if len(object) == 1 and len(whole) == 1 else whole
    return Result(
        object=whole.numpy(),
        probe=model.probe.values.numpy(),
        positions=model.all_places().numpy(),
        origin=object_frame(scan, begun).origin,
        epochs=state.epochs,
        r_factor=float("nan"),
        settings=state.settings,
        changes=state.changes,
        pixel_size=scan.pixel_size,
        r_factors=state.r_factors,
        initial_settings=settings_before(state.settings, state.changes),
        update=state.update,
        started=utc(state.started),
        ended=utc(time.time()),
        history=state.history,
        title=state.title,
        comments=state.comments,
        scan=identity_of(scan, state.scan["counts"]),
        software=Software(
            **{name: state.metadata.get(name, "") for name in ("ptynb", "torch", "numpy", "h5py", "python")}
        ),
        machines=_machines(state, extensions),
        metadata={**state.metadata, "scan": scan.name, "written": time.strftime("%Y-%m-%dT%H:%M:%S%z")},
        parameters={name: values.numpy() for name, values in optimised.items()},
    )


def _machines(state: ReconstructionState, extensions: bytes) -> Machines:
    about = state.metadata
    engines, threads = (int(about[name]) if about.get(name, "").isdigit() else 0 for name in ("engines", "threads"))
    return Machines(
        engines=engines,
        threads=threads,
        kind=f"{counted(engines, 'engine')} on {about.get('device', '')}",
        backend=about.get("backend", ""),
        extensions=names_of(extensions),
    )
