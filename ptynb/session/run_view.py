"""What a session shows of its run: its status, and what its engines answer between two updates."""

from __future__ import annotations

import dataclasses
import operator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ptynb.cluster.cluster import Cluster
from ptynb.data.arrivals import Arrivals
from ptynb.data.engine_records import (
    Array,
    Change,
    Epoch,
    Health,
    PatternPair,
    Pictures,
    RenderRequest,
    Snapshot,
    Status,
)
from ptynb.data.pattern_r_factors import PatternRFactors
from ptynb.data.record import stop_reason
from ptynb.data.scan import Scan
from ptynb.exceptions import ClusterError, ReconstructionError
from ptynb.optimize.batching import batch_text
from ptynb.serial_executor import SerialExecutor
from ptynb.session.engine_client import EngineClient
from ptynb.session.r_factor_collector import MOST_AT_ONCE, RFactorCollector
from ptynb.session.run_spec import RunSpec
from ptynb.settings import Settings
from ptynb.settings.base_models import MOST_EPOCHS
from ptynb.settings.recipe import Stage
from ptynb.supervised_thread import problems
from ptynb.text import quoted

HEALTH_SECONDS = 1.0
"""Time limit for the answer of an engine to `health` [s]."""


class RunView:
    """What a session knows of its run, by the last status or by asking the engines; nothing here changes the run."""

    scan: Scan

    def _connect(self, cluster: Cluster | None, spec: RunSpec, client: EngineClient) -> None:
        self.scan, self._cluster, self._client = spec.scan, cluster, client
        self._executor = SerialExecutor("ptynb command")
        self._pattern_rank: tuple[int, int] | None = None
        """Index of the last requested pattern, and the rank that stores it."""
        self._health: tuple[Health, ...] = ()
        self._pattern_r_factors = RFactorCollector(len(spec.scan))

    # Status, as last reported by the engines: within milliseconds of a change, every 0.1 s during an epoch

    @property
    def state(self) -> str:
        """State of rank 0: "loading", "ready", "running", "paused", "recovering", "failed" or "closed"."""
        if ended := self._ended():
            return ended
        if self._client.recovering:
            return "recovering"
        self._executor.wait()  # work of an interrupted caller may not be done yet
        try:
            self._check_usable()
            status = self._client.settled()
        except ReconstructionError:
            if ended := self._ended():  # meanwhile, in another thread
                return ended
            raise
        return status.state

    def _ended(self) -> str:
        """Return "failed", "closed" or, for a reconstruction that is in use, an empty string."""
        return "failed" if self._client.failure is not None else "closed" if self._client.closed else ""

    @property
    def epoch(self) -> int:
        """Number of epochs completed."""
        return len(self._client.epochs)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the run; () without stages."""
        return self._client.spec.plan.stages

    @property
    def stage(self) -> int:
        """Number of the present stage, 1 for the first; 0 without stages."""
        plan, status = self._client.spec.plan, self.last_status()
        return 0 if not plan.stages else 1 + (plan.number if status is None else status.stage)

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The records of all epochs completed."""
        return tuple(self._client.epochs)

    @property
    def changes(self) -> tuple[Change, ...]:
        """Changes of settings so far, with the epoch and update before which all engines applied them."""
        status = self.last_status()
        return status.changes if status else ()

    @property
    def stopped(self) -> str:
        """Why `Settings.stop` ended the last run before its last epoch; empty if it did not, or a run followed."""
        status = self.last_status()
        return "" if status is None else stop_reason(status.changes, status.epoch)

    @property
    def arrivals(self) -> Arrivals | None:
        """What has come of a scan that is being measured, and what of it is used; None for other scans."""
        status = self.last_status()
        return None if status is None else status.arrivals

    @property
    def failure(self) -> ReconstructionError | None:
        """The error that ended the reconstruction, or None."""
        return self._client.failure

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about problems that did not stop the run, such as a full disk or too few epochs; each once."""
        status = self.last_status()
        others = [f"Rank {one.rank}: {problem}" for one in self._health if one.rank for problem in one.problems]
        return tuple(dict.fromkeys((*(status.notices if status else ()), *problems(), *others)))

    @property
    def latest_checkpoint(self) -> Path | None:
        """File of the newest checkpoint, from which `recover` and `ptynb.resume` continue; None if there is none."""
        status = self.last_status()
        return None if status is None or status.checkpoint is None else Path(status.checkpoint)

    @property
    def can_recover(self) -> bool:
        """Whether `recover` can continue after the failure."""
        return self._client.failure is not None and self._client.can_recover

    @property
    def recovering(self) -> bool:
        """Whether the reconstruction is being reopened after the loss of an engine."""
        return self._client.recovering

    @property
    def engines(self) -> str:
        """Number and kind of engines, backend for communication, and whether patterns are read from disk, as text."""
        status = self.last_status()
        joined = f", {status.backend}" if status and status.world > 1 else ""
        streamed = ", frames read from disk" if status and status.frames == "disk" else ""
        return f"{self._client.engines.description}{joined}{streamed}"

    @property
    def batch(self) -> str:
        """Effective batch size as text, and its parts if each engine has a batch of its own."""
        return batch_text(self._present_settings(), self._client.engines.world, len(self.scan))

    @property
    def closed(self) -> bool:
        """Whether the reconstruction was closed, by the user or by another reconstruction on the same cluster."""
        return self._client.closed

    @property
    def cluster(self) -> Cluster | None:
        """The cluster whose engines reconstruct; None if this process reconstructs."""
        return self._cluster

    def last_status(self) -> Status | None:
        """Return the last known status of rank 0, without a request.

        Returns
        -------
        Status or None
            Status, usually at most 0.1 s old; None before the first answer of rank 0.
        """
        return self._client.last_status

    def status(self) -> tuple[Status, ...]:
        """Request the status of each engine.

        Returns
        -------
        tuple of Status
            Status of each engine, by rank.
        """
        return tuple(self._call(rank, "status", 10**9) for rank in range(self._client.engines.world))

    # Requests; engines answer between two updates

    def snapshot(self, size: int = 512, region: tuple[int, int, int, int] | None = None) -> Snapshot:
        """Request a preview of object and probe from rank 0.

        Parameters
        ----------
        size : int
            Longest side of the object's preview [pixels]; a larger object is downsampled.
        region : tuple of int, optional
            Part of the object, (top, bottom, left, right) as in `RenderRequest`; by default all of it.

        Returns
        -------
        Snapshot
            Object (y, x) and probe (mode, y, x), complex.
        """
        size = whole("snapshot", size, of="pixels")
        self._wait_until_loaded()
        return self._call(0, "snapshot", size, region)

    def pictures(self, request: RenderRequest | None = None) -> Pictures | None:
        """Request pictures for a screen, rendered on rank 0.

        Parameters
        ----------
        request : RenderRequest, optional
            Content and size of the pictures.

        Returns
        -------
        Pictures or None
            The pictures; None while the engines are loading.
        """
        self._check_usable()
        return self._client.look_at(request or RenderRequest())

    def value_at(self, name: str, y: int, x: int, request: RenderRequest | None = None) -> complex | float:
        """Return the value at pixel (y, x) of the array behind a picture, without downsampling or grey levels.

        Parameters
        ----------
        name : str
            Name of the picture: "amplitude", "phase", "complex", "probe 1" ...
        y, x : int
            Pixel of the array, which is the illuminated area of the object or the region of the request.
        request : RenderRequest, optional
            As for `pictures`. With the `contrast` of pictures only this pixel is read.

        Returns
        -------
        complex or float
            Value; complex for pictures in colours.
        """
        self._wait_until_loaded()
        return self._call(0, "value_at", name, y, x, request or RenderRequest())

    def pattern(self, index: int) -> PatternPair:
        """Request a measured diffraction pattern and the modelled one, from the engine that stores it.

        Parameters
        ----------
        index : int
            Index of the pattern in the whole scan.

        Returns
        -------
        PatternPair
            Both patterns (y, x), centred [counts].
        """
        if not 0 <= index < len(self.scan):
            raise ReconstructionError(
                f"pattern got {index}; expected 0 to {len(self.scan) - 1}.", code="argument.invalid-value"
            )
        self._wait_until_loaded()
        for rank in sorted(range(self._client.engines.world), key=lambda rank: self._pattern_rank != (index, rank)):
            pair: PatternPair | None = self._call(rank, "pattern", index)
            if pair is not None:
                self._pattern_rank = index, rank
                return pair
        if self.scan.acquisition is not None:
            raise ReconstructionError(
                f"Pattern {index} has not come yet, or never came; arrivals says how many have.",
                code="argument.invalid-value",
            )
        raise ReconstructionError(f"No engine has pattern {index}; this is a bug of ptynb.", code="engine.failed")

    def pattern_r_factors(self, seconds: float | None = None) -> PatternRFactors:
        """Return the R-factor of each pattern, measured between two updates by the engines that store them.

        An engine measures its patterns in turn, those first that have no value of its present state. The measurements
        of the R-factor of all patterns (`r_factor_every`, `result`) count, too.

        Parameters
        ----------
        seconds : float, optional
            Longest time for which the updates are interrupted [s]; the other values are older, or NaN. None: measure
            until all values are later than the call, with interruptions of 0.25 s.

        Returns
        -------
        PatternRFactors
            R-factors (pattern,), and the epochs in which they were measured.
        """
        if seconds is not None and not 0 <= seconds < float("inf"):
            raise ReconstructionError(
                f"pattern_r_factors got {seconds!r} seconds; expected at least 0, or None for all patterns.",
                code="argument.invalid-value",
            )
        self._wait_until_loaded()
        return self._pattern_r_factors.collect(
            lambda rank, *asked: self._call(rank, "pattern_r_factors", *asked), self._client.engines.world, seconds
        )

    @property
    def positions(self) -> tuple[Array, Array]:
        """Initial and present top-left corners of the probe windows, each (pattern, yx) float64 [object pixels]."""
        self._wait_until_loaded()
        return self._call(0, "positions")

    def health(self) -> tuple[Health, ...]:
        """Request speed, memory, load and temperature of each engine.

        For a busy engine the previous answer is returned, with `answered` False.

        Returns
        -------
        tuple of Health
            Health of each engine, by rank.
        """
        ranks = range(self._client.engines.world)
        before = {one.rank: one for one in self._health}
        with ThreadPoolExecutor(min(len(ranks), MOST_AT_ONCE), "ptynb health") as pool:
            self._health = tuple(pool.map(lambda rank: self._request_health(rank, before.get(rank)), ranks))
        return self._health

    def _request_health(self, rank: int, before: Health | None) -> Health:
        try:
            return self._client.engines.call(rank, "health", timeout=HEALTH_SECONDS)
        except ClusterError:
            return dataclasses.replace(before or Health(rank, host="", device="", state="unknown"), answered=False)

    @property
    def r_factors(self) -> tuple[tuple[int, float], ...]:
        """Measured amplitude R-factors over all patterns, as (completed epochs, R-factor); see `r_factor_every`."""
        return tuple(sorted(self._client.r_factors.items()))

    # Connection to the engines

    def _present_settings(self) -> Settings:
        """Return the settings, which are those of the next stage once it has begun by the last status."""
        status = self.last_status()
        if status is not None and status.stage != self._client.spec.plan.number and not self._ended():
            number, values = self._client.call(0, "stage_settings")
            plan = dataclasses.replace(self._client.spec.plan, number=number)
            self._client.spec = dataclasses.replace(self._client.spec, settings=Settings(**values), plan=plan)
        return self._client.spec.settings

    def _wait_until_loaded(self) -> None:
        self._check_usable()
        self._client.wait_for(lambda: (status := self._client.last_status) is not None and status.state != "loading")

    def _check_usable(self) -> None:
        """Wait until a recovery has ended. Raises ReconstructionError if the run has failed, or is closed."""
        self._client.alive()
        self._check_open()

    def _check_open(self) -> None:
        self._client.check_open()
        if not self._client.engines.reachable:
            path = self.latest_checkpoint
            resume = "" if path is None else f", or continue with ptynb.resume({str(path)!r})"
            raise ReconstructionError(
                "Its cluster was stopped, and the engines' state is lost; start() the cluster, and make a new "
                f"Reconstruction{resume}.",
                code="cluster.stopped",
            )

    def _call(self, rank: int, method: str, *arguments: Any) -> Any:
        self._check_usable()
        return self._client.call(rank, method, *arguments)


def whole(what: str, number: int, least: int = 1, of: str = "epochs") -> int:
    """Return a valid number of epochs or updates as int, since numpy's integers cannot be sent to engines."""
    try:
        value = operator.index(number)
    except TypeError:
        value = None
    if value is None or isinstance(number, bool):
        raise ReconstructionError(
            f"{what} got {quoted(number)}; expected a whole number of {of}.", code="argument.invalid-type"
        )
    if not least <= value <= MOST_EPOCHS:
        raise ReconstructionError(
            f"{what} got {quoted(value)} {of}; expected at least {least}, at most {MOST_EPOCHS}.",
            code="argument.invalid-value",
        )
    return value
