"""The server of `ptynb dashboard`: Voila with one kernel, whose page is served to every browser.

Voila itself starts a kernel each time the page is loaded. It should end it when the page is left, but the request that
a browser then sends lacks the cookie that the server requires, so that kernels remain, and with them their engines.
Here the page is rendered once. Reloading it, also on another screen, returns the same HTML with widgets of the same
kernel: the run continues, and the content of the page is preserved. If a kernel has ended, or a cell failed, it is
replaced by a new one with a new page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import tornado.web
from jupyter_core.utils import ensure_async
from voila.app import Voila
from voila.shutdown_kernel_handler import VoilaShutdownKernelHandler
from voila.tornado.handler import TornadoVoilaHandler

Pieces = AsyncGenerator[str, None]
WIDGET = "application/vnd.jupyter.widget-view+json"
"""Contained in the HTML of a page whose cell succeeded."""
LOOK_SECONDS = 0.1
OPTIONS = (
    "--KernelManager.autorestart=False",  # a new kernel has no widgets of an old page
    "--MappingKernelManager.buffer_offline_messages=False",  # otherwise pictures accumulate while no page is open
    "--VoilaExecutor.startup_timeout=600",
    "--VoilaExecutor.iopub_timeout=600",  # after 4 s the output, whose widgets are still being sent, would be left out
)
OWN_SOURCES = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss: data: blob:"


class OnePageServer(Voila):
    """Voila for one notebook, with one kernel."""

    def init_handlers(self) -> list[Any]:
        """Return Voila's handlers, with one page for all requests, whose kernel does not end when it is left."""
        instead: dict[Any, Any] = {TornadoVoilaHandler: PageHandler, VoilaShutdownKernelHandler: LeftHandler}
        handlers = [(path, instead.get(handler, handler), *more) for path, handler, *more in super().init_handlers()]
        kept = CachedPage(self.kernel_manager)
        for _, handler, *more in handlers:
            if handler is PageHandler:
                more[0]["kept"] = kept
        return handlers


class CachedPage:
    """A rendered page, as pieces of HTML, and its kernel."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self._pieces: list[str] = []
        self._making: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def pieces(self, make: Callable[[], Pieces]) -> Pieces:
        """Return the pieces of the page; `make` starts a kernel and renders them if no page can be reused."""
        async with self._lock:
            if self._making is None or not await self._is_good(self._making):
                if self._making is not None:
                    self._making.cancel()
                    await ensure_async(self._kernels.shutdown_all())
                self._pieces = []
                self._making = asyncio.create_task(self._make(make()))  # continues if the browser disconnects
            pieces, making = self._pieces, self._making
        sent = 0
        while sent < len(pieces) or not making.done():
            if sent == len(pieces):
                await asyncio.wait({making}, timeout=LOOK_SECONDS)
            for piece in pieces[sent:]:
                yield piece
                sent += 1
        if not making.cancelled():
            making.result()

    async def _make(self, rendered: Pieces) -> None:
        pieces = self._pieces
        async for piece in rendered:
            pieces.append(piece)

    async def _is_good(self, making: asyncio.Task[None]) -> bool:
        """Whether its kernel runs, and it has its widgets or is still being rendered."""
        if making.cancelled() or (making.done() and making.exception() is not None):
            return False
        if making.done() and not any(WIDGET in piece for piece in self._pieces):
            return False
        kernels = [self._kernels.get_kernel(name) for name in self._kernels.list_kernel_ids()]
        alive = [await ensure_async(kernel.is_alive()) for kernel in kernels]
        return all(alive) and (bool(alive) or not making.done())


class PageHandler(TornadoVoilaHandler):
    """Responds with the cached page."""

    def initialize(self, kept: CachedPage, **others: Any) -> None:
        """kept: the same one for all requests."""
        self._kept = kept
        super().initialize(**others)

    @property
    def content_security_policy(self) -> str:
        """Nothing is loaded from elsewhere: the page would wait for Voila's style sheets of a CDN, for minutes."""
        return f"frame-ancestors 'self'; {OWN_SOURCES}"

    async def get_generator(self, path: str | None = None) -> Pieces:
        """Return the page's pieces; for another path, the response of Voila."""
        make = super().get_generator
        async for piece in self._kept.pieces(make) if not path else make(path):
            yield piece


class LeftHandler(tornado.web.RequestHandler):
    """Receives the request of a browser that leaves the page; the kernel continues for later requests."""

    def post(self, _: str) -> None:
        """Do nothing."""
        self.set_status(204)
