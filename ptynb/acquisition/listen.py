"""`listen`: start the receiver of a scan, and return the scan once its shape is known."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from ptynb.acquisition.arrival_log import LOG_NAME
from ptynb.acquisition.plan import Plan
from ptynb.acquisition.receiver import Order
from ptynb.data.arrivals import INDEX_NAME, SCAN_NAME, STOP_NAME
from ptynb.data.scan import Scan
from ptynb.data.source_address import described, example, live_addresses, plugin_of
from ptynb.exceptions import AcquisitionError, FileError, InvalidTypeError, PtynbWarning
from ptynb.io.scan_file import as_planned
from ptynb.private_folder import private_folder
from ptynb.supervised_thread import SupervisedThread
from ptynb.systems import NEW_GROUP
from ptynb.text import quoted

PACKAGE = Path(__file__).parents[2]
RECEIVER = "import sys; sys.path.append(sys.argv[1]); from ptynb.acquisition.receiver import main; sys.exit(main())"
"""Program of the receiver. The folder of the package, which a notebook may have found by a path of its own, comes last:
in PYTHONPATH it would come before the standard library, and it is site-packages, mostly."""
GRACE = 5.0
"""Time in which a receiver ends that was asked to, before its scan began [s]."""
LOOK = 0.2
"""Time between looks for an interrupt (Ctrl-C) or a cancellation [s]."""


def listen(
    source: str | Path,
    *,
    plan: Plan | None = None,
    positions: str | ArrayLike = "planned",
    folder: str | Path | None = None,
    timeout: float | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Scan:
    """Receive a scan while it is measured; return it once the size and type of its patterns are known.

    A process of its own, the receiver, takes patterns from the source and writes them to `scan.h5` in the folder, from
    where engines read them. It ends with the scan: when the source says so, when all patterns have come, when the next
    series begins, or after a silence; a notebook that ends does not end it. It only reads, and controls no detector.
    The engines that reconstruct the scan have to run on this machine, and a file that is being written must not be on
    NFS, which does not keep the order of writes.

    Parameters
    ----------
    source : str or Path
        One of these, with options after a question mark:

        {source}

        The folder of a scan that is received, or was: return that scan again, with all that was planned.
    plan : Plan, optional
        What is known of the scan before; required but for such a folder.
    positions : str or array_like, default "planned"
        "planned": those of the plan are used as they are. "entry/y,entry/x" or "entry/positions": datasets of the
        source's file. An array (pattern, yx): instead of those of the plan. Or one of these:

        {positions}

        All in `Plan.units`, or in the unit that a file or a PandA states.
    folder : str or Path, optional
        Folder for the scan, which is created; by default one with the present time in its name, in the working folder.
    timeout : float, optional
        Time in which the scan has to begin [s]; by default there is no limit. Interrupting (Ctrl-C) ends the wait.
    cancelled : callable, optional
        Function without arguments that returns whether the wait is to end; called several times a second.

    Returns
    -------
    Scan
        The scan, with its planned number of patterns; `acquisition` says what has come.

    Raises
    ------
    AcquisitionError
        If the scan cannot be received, or has not begun in time ("acquisition.not-started"), or `cancelled` returned
        True ("acquisition.cancelled").
    InvalidValueError, InvalidTypeError
        If an argument is invalid.
    FileError
        If the folder has a scan already, or others can write to it.
    ScanError
        If plan and patterns do not fit together.

    Warns
    -----
    PtynbWarning
        If a pattern comes of a series whose header was sent before, and not to this receiver.
    """
    return receive_scan(
        source, plan=plan, positions=positions, folder=folder, timeout=timeout, cancelled=cancelled, tell=_warn
    )


for _role in ("source", "positions"):
    _kinds = [textwrap.fill(f"- {one}", 112, subsequent_indent="  ") for one in described(_role)]
    listen.__doc__ = (listen.__doc__ or "").replace(f"{{{_role}}}", textwrap.indent("\n".join(_kinds), " " * 8).strip())


def _warn(notice: str) -> None:
    warnings.warn(notice, PtynbWarning, stacklevel=6)


def receive_scan(
    source: str | Path,
    *,
    plan: Plan | None,
    positions: str | ArrayLike = "planned",
    folder: str | Path | None = None,
    timeout: float | None = None,
    cancelled: Callable[[], bool] | None = None,
    tell: Callable[[str], None],
) -> Scan:
    """Do what `listen` does. tell: called with what there is to say while the scan is waited for."""
    if "://" not in str(source) and (Path(source).expanduser() / INDEX_NAME).is_file():
        return as_planned(Path(source).expanduser() / SCAN_NAME)
    if not isinstance(plan, Plan):
        raise InvalidTypeError(
            f"The plan is {quoted(plan)}; expected Plan(positions=..., geometry=...).", code="argument.invalid-type"
        )
    if not isinstance(positions, str):
        plan, positions = dataclasses.replace(plan, positions=np.asarray(positions), extent=None), "planned"
    patterns, address = live_addresses(source, positions)
    if positions == "planned" and plan.positions is None:
        raise AcquisitionError(
            "The plan has an extent, and no positions; name their source: listen(..., "
            f"positions='{example('positions')}').",
            code="acquisition.no-positions",
        )
    home = Path(f"scan-{time.strftime('%Y%m%d-%H%M%S')}" if folder is None else folder).expanduser().absolute()
    made = _prepared(home)
    order = Order(
        patterns=patterns,
        positions=address,
        plan=plan,
        folder=home,
        parent=os.getpid(),
        name=str(source),
    )
    try:
        _start(order, timeout, cancelled, tell)
    except BaseException:
        _remove(home, made)
        raise
    sources = (patterns, *(() if address is None else (address,)))
    return as_planned(home / SCAN_NAME, tuple(one for source in sources if (one := plugin_of(source.kind)) is not None))


def _prepared(folder: Path) -> bool:
    """Create the folder; return whether it was not there.

    Raise FileError if it has a scan, cannot be made, or others can write to it.
    """
    there = [name for name in (SCAN_NAME, INDEX_NAME) if (folder / name).exists()]
    if there:
        raise FileError(
            f"{folder} has {there[0]} of another scan; choose another folder=.",
            code="file.not-writable",
            fields=("folder",),
        )
    try:
        made = not folder.exists()
        private_folder(folder)
    except OSError as error:
        raise FileError(
            f"{folder} cannot be created ({error.strerror}).", code="file.not-writable", fields=("folder",)
        ) from None
    return made


def _remove(folder: Path, made: bool) -> None:
    """Remove what a receiver left that nobody waits for any more, whose scan may have begun at this moment."""
    for name in (LOG_NAME, INDEX_NAME, SCAN_NAME, STOP_NAME):
        (folder / name).unlink(missing_ok=True)
    if made:
        with contextlib.suppress(OSError):  # something else was put there
            folder.rmdir()


def _start(
    order: Order, timeout: float | None, cancelled: Callable[[], bool] | None, tell: Callable[[str], None]
) -> None:
    """Start the receiver, and wait until the scan has begun."""
    with (order.folder / LOG_NAME).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", RECEIVER, str(PACKAGE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # It copies bytes; threads of numerical libraries would only take memory.
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            creationflags=NEW_GROUP,
            start_new_session=True,  # an interrupt of the notebook is not one of the receiver
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin, contextlib.suppress(BrokenPipeError):
            process.stdin.write(order.to_json().encode() + b"\n")
        answer = _answer(process, timeout, cancelled, tell)
        if answer.get("began"):
            SupervisedThread("ptynb-receiver", process.wait).start()
            return
    except BaseException:
        _end(process)
        raise
    finally:
        process.stdout.close()
    _end(process)
    raise AcquisitionError(str(answer["message"]), code=str(answer["code"]), fields=tuple(answer.get("fields", ())))


def _answer(
    process: subprocess.Popen[bytes],
    timeout: float | None,
    cancelled: Callable[[], bool] | None,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Return what the receiver says when the scan has begun, or cannot be received; tell what it says before."""
    assert process.stdout is not None
    until = None if timeout is None else time.monotonic() + timeout
    told, text, remedy = "", b"", "start the detector, or wait longer: listen(..., timeout=None)."
    while True:
        _wait(process.stdout, until, cancelled, f"No scan has begun within {timeout or 0:g} s; {told or remedy}")
        text += (raw := os.read(process.stdout.fileno(), 2**16))
        if not raw:
            return {"code": "acquisition.failed", "message": f"The receiver ended with status {process.wait(GRACE)}."}
        *lines, text = text.split(b"\n")
        for line in lines:
            found: dict[str, Any] = json.loads(line)
            if "notice" not in found:
                return found
            told = str(found["notice"])
            tell(told)


def _wait(answers: IO[bytes], until: float | None, cancelled: Callable[[], bool] | None, too_long: str) -> None:
    """Wait until the receiver says something. Raise AcquisitionError, with the text `too_long` if `until` is over."""
    while not select.select([answers], [], [], LOOK)[0]:
        if cancelled is not None and cancelled():
            raise AcquisitionError(
                "The wait for the scan was cancelled; nothing was received.", code="acquisition.cancelled"
            )
        if until is not None and time.monotonic() > until:
            raise AcquisitionError(too_long, code="acquisition.not-started")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
