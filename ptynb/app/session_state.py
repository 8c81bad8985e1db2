"""The state of a session in the workbench, and the equivalent lines of Python."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Result
from ptynb.data.scan import Scan, check_scan
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.settings.schema import as_python

LANES = SCAN, LISTENING, RUN, COMPARISON, FIELDS = "scan", "listening", "run", "comparison", "fields"
"""Lanes of the actions of the workbench, one for each of the objects that they change, and the check of fields."""
FIRST_LINE = "import ptynb as pt"
IMPORTS = {"Path(": "from pathlib import Path", "np.": "import numpy as np"}
"""Imports that lines of Python may need."""


class Desk:
    """Scan, settings, cluster, reconstruction and results, shared by the tabs of the workbench.

    lines: the session as Python. `on_change` registers a function that is called with what changed: "scan",
    "settings", "cluster", "recon", "results" or "lines".
    """

    def __init__(self, scan: Scan | None, settings: Settings | None, cluster: Cluster | None) -> None:
        if scan is not None:
            check_scan(scan)
        self._scan, self._settings, self._cluster = scan, settings or Settings(), cluster
        self._recon: Reconstruction | None = None
        self.results: dict[str, Result] = {}
        self.lines: list[str] = [FIRST_LINE]
        self._callbacks: list[Callable[[str], None]] = []
        self._lock = threading.RLock()  # actions are carried out in several threads
        if scan is not None:
            self.lines.append(f"# scan: {scan.name}, from the line that opened this workbench")
        if cluster is not None:
            self.lines.append("# cluster: likewise")
        self.lines.append(f"settings = {as_python(self._settings)}")

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Register a function that is called with what changed, in the thread of the change."""
        self._callbacks.append(callback)

    def tell(self, line: str) -> None:
        """Add a line of Python."""
        with self._lock:
            needed = [imported for word, imported in IMPORTS.items() if word in line and imported not in self.lines]
            self.lines = [*needed, *self.lines, line]
            self._changed("lines")

    @property
    def scan(self) -> Scan | None:
        """The scan of the next reconstruction."""
        return self._scan

    @scan.setter
    def scan(self, scan: Scan) -> None:
        self._scan = scan
        self._changed("scan")

    @property
    def settings(self) -> Settings:
        """The settings of the next reconstruction."""
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        if settings != self._settings:
            self._settings = settings
            self._changed("settings")

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that reconstructs; None: the process of the notebook."""
        return self._cluster

    @cluster.setter
    def cluster(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._changed("cluster")

    @property
    def recon(self) -> Reconstruction | None:
        """The current reconstruction."""
        return self._recon

    @recon.setter
    def recon(self, recon: Reconstruction | None) -> None:
        self._recon = recon
        self._changed("recon")

    def add_result(self, name: str, result: Result, source: str) -> str:
        """Add a result to the comparison and return its unique name; source: the Python expression of it."""
        unique, number = name, 2
        with self._lock:
            while unique in self.results:
                unique, number = f"{name} ({number})", number + 1
            if not self.results:
                self.tell("kept = {}")
            self.results[unique] = result
            self.tell(f"kept[{unique!r}] = {source}")
            self._changed("results")
        return unique

    def _changed(self, what: str) -> None:
        for callback in (*self._callbacks,):
            callback(what)
