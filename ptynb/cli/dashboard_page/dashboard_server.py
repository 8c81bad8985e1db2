"""The server of `ptynb dashboard` and `ptynb watch`: one view, in the process of the command, for all browsers.

A page that is closed, reloaded, or shown on two screens is the same view, and runs are not affected. Each browser
has a WebSocket for the messages of `ptynb.widgets.element_tree`: a text frame `{"message", "buffers": number}`, then
its buffers as binary frames; an empty text frame each second tells it that the process is well. When the command ends
(Ctrl-C), a workbench ends. Engines with a run continue for `detached_timeout`, an hour; a command started within it
attaches to the run, and later `ptynb.resume` continues from its checkpoints. A run with 0 engines ends with it.

At a port of the loopback interface browsers have to know a token. At a Unix socket, in a folder that only its user can
enter, nobody has to: a proxy (jupyter-server-proxy, in JupyterHub and Open OnDemand) connects to it, for the user whom
it has authenticated. Addresses within the page are relative, as a proxy has a prefix before them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tornado.httpserver
import tornado.netutil
import tornado.template
import tornado.web
import tornado.websocket

from ptynb.exceptions import FileError, InvalidValueError
from ptynb.serial_executor import SerialExecutor
from ptynb.supervised_thread import report
from ptynb.widgets.element_tree import Element, ElementPage, without_bytes
from ptynb.widgets.page_widget import script_text

HTML = tornado.template.Template((Path(__file__).parent / "dashboard.html").read_text(encoding="utf-8"))
COOKIE = "ptynb-dashboard-{port}"
"""Cookies are those of a host, whatever its port."""
POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
HOST = "127.0.0.1"
BEAT = 1.0
"""Seconds between frames that tell browsers that this process is well."""


class Dashboard:
    """A page for several browsers, which have to know its token; None: whoever reaches it may see it."""

    def __init__(self, root: Element, title: str, dark: bool, token: str | None) -> None:
        self.title, self.token, self.dark = title, token, dark
        self.session = secrets.token_hex(8)
        self.browsers: set[MessagesHandler] = set()
        self._loop = asyncio.get_running_loop()
        self._work = SerialExecutor("ptynb dashboard")
        self._page = ElementPage(root, self._send)

    def listen(self, listening: socket.socket) -> str:
        """Serve the page there, and return its address."""
        name = listening.getsockname()
        self.cookie = COOKIE.format(port=name[1] if self.token else "")
        handlers = [("/", HtmlHandler), ("/ptynb.js", ScriptHandler), ("/messages", MessagesHandler)]
        application = tornado.web.Application([(path, handler, {"dashboard": self}) for path, handler in handlers])
        tornado.httpserver.HTTPServer(application).add_socket(listening)
        self._beat()
        return f"http://{HOST}:{name[1]}/?token={self.token}" if self.token else str(name)

    def close(self) -> None:
        """Send nothing any more: the event loop ends, and threads of the view continue for a moment."""
        self._page.close()

    def is_token(self, text: str) -> bool:
        """Whether a browser knows the token."""
        return self.token is None or hmac.compare_digest(text.encode(), self.token.encode())

    def begin(self) -> tuple[str, list[Any]]:
        """Return the frames of the message with all elements."""
        tree, buffers = self._page.tree(), list[Any]()
        message = {"number": tree["number"], "given": 0, "session": self.session, "tree": without_bytes(tree, buffers)}
        return _framed(message, buffers)

    def take(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        """Handle a message of a browser after those that came before it, in a thread."""
        self._work.submit(lambda: self._page.receive(message, buffers)).add_done_callback(_report)

    def _beat(self) -> None:
        for browser in [*self.browsers]:
            browser.tell("", [])
        self._loop.call_later(BEAT, self._beat)

    def _send(self, message: dict[str, Any], buffers: list[Any]) -> None:
        if self.browsers:  # one that connects later gets all elements as they are then
            self._loop.call_soon_threadsafe(self._write, *_framed(message, buffers))

    def _write(self, text: str, buffers: list[bytes]) -> None:
        for browser in [*self.browsers]:
            browser.tell(text, buffers)


class TokenHandler:
    """A handler for browsers that know the token."""

    def initialize(self, dashboard: Dashboard) -> None:
        """dashboard: the one that is served."""
        self.dashboard = dashboard

    def knows(self: Any) -> bool:
        """Whether the browser has sent the token as a cookie."""
        return self.dashboard.is_token(self.get_cookie(self.dashboard.cookie, ""))


class HtmlHandler(TokenHandler, tornado.web.RequestHandler):
    """The page."""

    def get(self) -> None:
        """Respond with the page, after the token was exchanged for a cookie."""
        served = self.dashboard
        if served.token and served.is_token(self.get_query_argument("token", "")):
            self.set_cookie(served.cookie, served.token, httponly=True, samesite="Lax")
            self.redirect("/")
        elif not self.knows():
            self.set_status(403)
            self.finish("This page needs the token in the address that the command has printed; open that.\n")
        else:
            nonce = secrets.token_urlsafe(16)
            self.set_header("Content-Security-Policy", POLICY.format(nonce=nonce))
            self.set_header("Cache-Control", "no-store")
            texts = {"title": served.title, "theme": "dark" if served.dark else "light", "nonce": nonce}
            self.finish(HTML.generate(**texts))


class ScriptHandler(TokenHandler, tornado.web.RequestHandler):
    """The bundle of scripts."""

    def get(self) -> None:
        """Respond with it."""
        self.set_header("Content-Type", "text/javascript; charset=utf-8")
        self.finish(script_text())


class MessagesHandler(TokenHandler, tornado.websocket.WebSocketHandler):
    """The messages of one browser."""

    def prepare(self) -> None:
        """Refuse a browser without the token; tornado refuses pages of other origins."""
        if not self.knows():
            raise tornado.web.HTTPError(403)

    def open(self, *_: str, **__: str) -> None:
        """Send all elements, and messages from now on."""
        self._message: dict[str, Any] = {}
        self._missing, self._buffers = 0, list[bytes]()
        self.dashboard.browsers.add(self)
        self.tell(*self.dashboard.begin())

    def tell(self, text: str, buffers: list[bytes]) -> None:
        """Send a message; to a browser that has left, nothing."""
        try:
            frames: list[str | bytes] = [text, *buffers]
            for frame in frames:
                sent = self.write_message(frame, binary=isinstance(frame, bytes))
                sent.add_done_callback(lambda done: done.exception())  # its connection was closed: see `on_close`
        except tornado.websocket.WebSocketClosedError:
            self.on_close()

    def on_message(self, frame: str | bytes) -> None:
        """Handle a frame."""
        if isinstance(frame, str):
            plain = json.loads(frame)
            self._message, self._missing, self._buffers = plain["message"], plain["buffers"], []
        else:
            self._buffers.append(frame)
        if len(self._buffers) == self._missing:
            self.dashboard.take(self._message, self._buffers)

    def on_close(self) -> None:
        """Send nothing to it any more."""
        self.dashboard.browsers.discard(self)


def serve(
    make: Callable[[], Element], title: str, place: int | Path, what: str, *, dark: bool = False, browser: bool = True
) -> None:
    """Serve what `make` returns at a port of the loopback interface (0: any free one), or a Unix socket, until Ctrl-C.

    what: the beginning of the line with its address. browser: whether to open it. Raises InvalidValueError if the place
    is taken, FileError if others can enter the folder of the socket.
    """
    listening = _socket_at(place) if isinstance(place, Path) else _port(place)

    async def run() -> None:
        token = None if isinstance(place, Path) else secrets.token_urlsafe(24)
        dashboard = Dashboard(make(), title, dark, token)
        try:
            address = dashboard.listen(listening)
            print(f"{what} at {address} until Ctrl-C.", flush=True)
            if browser and token:
                webbrowser.open(address)
            await asyncio.Event().wait()
        finally:
            dashboard.close()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def _port(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setblocking(False)
    try:
        listening.bind((HOST, port))
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        raise _unusable(f"Port {port}", error, "--port") from None
    return listening


def _socket_at(path: Path) -> socket.socket:
    """Return a Unix socket that only this user reaches. A file of that name is replaced if it is a socket."""
    if not hasattr(os, "getuid"):
        raise InvalidValueError("This system has no Unix sockets; give a --port.", code="argument.invalid-value")
    status = path.parent.stat() if path.parent.is_dir() else None
    if status is None or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise FileError(
            f"The socket {path} would be in a folder that others can enter, or that does not exist; expected one of "
            "yours with the permissions 0700, as who reaches the socket can run what you can.",
            code="file.not-private",
        )
    try:
        return tornado.netutil.bind_unix_socket(str(path), mode=0o600)
    except (OSError, ValueError) as error:
        raise _unusable(str(path), error, "--socket") from None


def _unusable(place: str, error: Exception, option: str) -> InvalidValueError:
    why = getattr(error, "strerror", None) or error
    return InvalidValueError(
        f"{place} cannot be used ({why}); choose another one with {option}.", code="argument.invalid-value"
    )


def _framed(message: dict[str, Any], buffers: list[Any]) -> tuple[str, list[bytes]]:
    return json.dumps({"message": message, "buffers": len(buffers)}), [bytes(buffer) for buffer in buffers]


def _report(done: Any) -> None:
    if (error := done.exception()) is not None:
        report("What a browser has sent could not be handled", error)
