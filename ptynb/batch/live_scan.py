"""The scan of a run file with a section `listen`: received while it is measured, or again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from ptynb.acquisition.listen import listen, receive_scan
from ptynb.acquisition.plan import Plan
from ptynb.data.arrivals import INDEX_NAME, SCAN_NAME, Acquisition
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.array_file import read_array
from ptynb.io.result_file import load_result
from ptynb.physics.model_builder import check_live
from ptynb.progress import log
from ptynb.settings.run_files.listen_section import FILES, ListenSection, PlanSection
from ptynb.settings.run_files.run_file import RunFile


def plan_of(section: PlanSection) -> Plan:
    """Return the plan, with the arrays of its files. Raise FileError, ScanError, or InvalidValueError."""
    plain = ("count", "extent", "units", "window", "centre", "clip_negative", "margin", "line", "start_after")
    values: dict[str, Any] = {name: getattr(section, name) for name in (*plain, "silence", "name")}
    files = {name: Path(getattr(section, name)) for name in FILES if getattr(section, name) is not None}
    for name, path in files.items():
        is_array = name != "probe" or path.suffix == ".npy"
        values[name] = read_array(path, name) if is_array else load_result(path).probe
    return Plan(**values, geometry=section.measured_geometry)


def check_listening(plan: RunFile, resume: bool) -> Plan | None:
    """Return the plan of the scan to be received; None if it was received before, or there is none in the run file.

    It is called before engines are started, and a detector: raises the error of what cannot work.
    """
    section = plan.listen
    if section is None:
        return None
    for settings in plan.recipe.stage_settings:
        check_live(settings)
    assert section.folder is not None
    if not any((section.folder / name).exists() for name in (INDEX_NAME, SCAN_NAME)):
        return plan_of(section.plan)
    if not resume:
        raise FileError(
            f"{section.folder} has a scan that was received before; continue its run with --resume, reconstruct it "
            f"with --scan {section.folder / SCAN_NAME} and no 'listen', or choose "
            "another listen.folder, or another --result, after which it is named.",
            code="file.not-writable",
        )
    return None


def live_scan(section: ListenSection, plan: Plan | None, console: Console) -> Scan:
    """Wait until the scan begins, and return it. plan: from `check_listening`. Raise AcquisitionError."""
    assert section.folder is not None
    if plan is None:
        log(console, f"Continuing with the scan in {section.folder}.")
        return listen(section.folder)
    log(console, f"Waiting for a scan from {section.source}, which is written to {section.folder}.")
    try:
        return receive_scan(
            section.source, plan=plan, positions=section.positions, folder=section.folder, timeout=section.timeout,
            tell=lambda notice: log(console, notice),
        )  # fmt: skip
    except KeyboardInterrupt:
        log(console, "No scan has begun.")
        raise


def still_received(scan: Scan) -> str:
    """Return a sentence about a scan that is still being received when its run ends; "" if it is not."""
    acquisition = scan.acquisition
    if not isinstance(acquisition, Acquisition) or acquisition.index().ended is not None:
        return ""
    return f"The scan is still being received in {acquisition.folder}, until it ends."
