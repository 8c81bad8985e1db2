"""The page of `ptynb watch`: a server on the loopback interface that shows one folder only.

The address has a token. Files cannot be requested by name: all responses were read by `ptynb.io.status_file` before.
Pages of other sites do not have the token, and other host names that resolve to this address are refused by the Host
header.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ptynb.exceptions import InvalidValueError
from ptynb.io.status_file import PICTURES, Folder, StatusReport
from ptynb.supervised_thread import SupervisedThread

LOOK_SECONDS = 0.5
HOST = "127.0.0.1"
POLICY = (
    "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
STATIC = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
    "curve.js": ("static/curve.js", "text/javascript"),
    "curve.css": ("static/curve.css", "text/css"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


class Server:
    """Shows a folder at `address` while it is open. Raises InvalidValueError if the port is in use."""

    def __init__(self, folder: str | Path, port: int = 0) -> None:
        self._folder = Folder(folder)
        self._token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._version = 0
        self._answers: dict[str, tuple[str, bytes]] = {}
        here = Path(__file__).parent
        self._static = {name: (kind, (here / file).read_bytes()) for name, (file, kind) in STATIC.items()}
        try:
            self._http = ThreadingHTTPServer((HOST, port), self._handler())
        except (OSError, OverflowError) as error:
            raise InvalidValueError(
                f"Port {port} is not available ({error}); choose another, or none for any that is free.",
                code="argument.invalid-value",
            ) from None
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self._threads = [
            SupervisedThread("ptynb watch page", self._http.serve_forever, 0.1, restarts=True, daemon=False),
            SupervisedThread("ptynb watch folder", self._look_on, restarts=True, daemon=False),
        ]

    @property
    def address(self) -> str:
        """URL of the page, with its token."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def __enter__(self) -> Self:
        self.look()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()
        for thread in self._threads:
            thread.join()

    def wait(self) -> None:
        """Wait until an interrupt."""
        with contextlib.suppress(KeyboardInterrupt):
            self._ended.wait()

    def look(self) -> None:
        """Read new content of the folder."""
        folder = self._folder
        changed = folder.look()
        with self._lock:
            if changed and folder.shown is not None:
                self._version += 1
                record = json.dumps(record_of(folder.shown), allow_nan=False)
                self._answers["record"] = ("application/json", record.encode())
            for name, picture in folder.pictures.items():
                self._answers[f"{name}.jpg"] = ("image/jpeg", picture)
            status = json.dumps(status_of(folder, self._version), allow_nan=False)
            self._answers["status"] = ("application/json", status.encode())

    def answer(self, path: str, host: str) -> tuple[int, str, bytes]:
        """Return (status, type, content) for a request."""
        if host not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return 421, "text/plain", b"This is another host."
        _, _, rest = path.partition("/")
        token, slash, name = rest.partition("/")
        if not (slash and secrets.compare_digest(token.encode(), self._token.encode())):
            return 403, "text/plain", b"The address lacks its token; open the one that 'ptynb watch' printed."
        name = name.partition("?")[0]
        with self._lock:
            found = self._static.get(name) or self._answers.get(name)
        return (404, "text/plain", b"There is nothing here.") if found is None else (200, *found)

    def _look_on(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30

            def do_GET(self) -> None:
                status, kind, content = server.answer(self.path, self.headers.get("Host", ""))
                self.send_response(status)
                headers = {"Content-Type": f"{kind}; charset=utf-8" if kind.startswith("text") else kind}
                headers |= {"Content-Length": str(len(content)), "Content-Security-Policy": POLICY, **HEADERS}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # the page was closed
                    self.wfile.write(content)

            def version_string(self) -> str:
                return "ptynb"

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing: a request's path contains the token."""

        return Handler


def status_of(folder: Folder, version: int) -> dict[str, Any]:
    """Return the status for the page, as plain values. version: increases with every change."""
    shown = folder.shown
    if shown is None:
        return {"waiting": folder.problem}
    return {
        "name": shown.title or folder.path.name,
        "state": shown.state,
        "facts": list(shown.facts),
        "written": folder.written,
        "still": folder.still,
        "problem": folder.problem,
        "version": version,
        "pictures": [name for name in PICTURES if name in folder.pictures],
        "notes": notes_of(folder),
        "changes": [[epoch + 1, name] for epoch, name in shown.changes[-8:]],
    }


def record_of(shown: StatusReport) -> dict[str, Any]:
    """Return loss and duration of each epoch, None if unknown, and the epochs in which settings have changed."""
    return {"losses": shown.losses, "seconds": shown.seconds, "marks": [epoch + 1 for epoch, _ in shown.changes]}


def notes_of(folder: Folder) -> dict[str, str]:
    """Return the line below each picture, by name."""
    shown = folder.shown
    if shown is None:
        return {}
    notes = {name: f"{low:.3f} to {high:.3f}" for name, (low, high) in shown.limits.items() if name != "probe"}
    if "phase" in notes:
        notes["phase"] += " rad, ramp removed"
    powers = ", ".join(f"{power:.1%}" for power in shown.powers)
    notes["probe"] = f"hue: phase, brightness: amplitude{f'; power {powers}' if powers else ''}"
    return notes
