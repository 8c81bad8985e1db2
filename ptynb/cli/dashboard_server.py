"""The server of `ptynb dashboard`: Voila with one kernel, whose page is shown to every browser that asks for it.

Voila by itself starts a kernel each time the page is loaded, and ends it when the page is left, or means to: the word
that a browser sends then lacks the cookie that the server wants with it, so that kernels stay, and hold their engines.
Here the page is made once. Who loads it again, or from another screen, gets the same HTML, whose widgets are then read
from the same kernel: the run goes on, and everything that was on the page is there. A kernel that has died, or whose
cell failed, is replaced by a new one with a new page.
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
"""In the HTML of a page whose cell went well."""
LOOK_SECONDS = 0.1
OPTIONS = (
    "--KernelManager.autorestart=False",  # a new kernel behind an old page has none of its widgets
    "--MappingKernelManager.buffer_offline_messages=False",  # else pictures pile up while no page is open
)


class OnePageServer(Voila):
    """Voila for one notebook, with one kernel."""

    def init_handlers(self) -> list[Any]:
        """Voila's, but that the page is the same one each time, and that nobody ends its kernel by leaving it."""
        instead: dict[Any, Any] = {TornadoVoilaHandler: PageHandler, VoilaShutdownKernelHandler: LeftHandler}
        handlers = [(path, instead.get(handler, handler), *more) for path, handler, *more in super().init_handlers()]
        kept = CachedPage(self.kernel_manager)
        for _, handler, *more in handlers:
            if handler is PageHandler:
                more[0]["kept"] = kept
        return handlers


class CachedPage:
    """The page as it was made, as pieces of HTML, and the kernel behind it."""

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels
        self._pieces: list[str] = []
        self._making: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def pieces(self, make: Callable[[], Pieces]) -> Pieces:
        """Those of the page; `make` starts a kernel and makes them where there is no page that can be shown again."""
        async with self._lock:
            if self._making is None or not await self._is_good(self._making):
                if self._making is not None:
                    self._making.cancel()
                    await ensure_async(self._kernels.shutdown_all())
                self._pieces = []
                self._making = asyncio.create_task(self._make(make()))  # goes on if the browser leaves meanwhile
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

    async def _make(self, made: Pieces) -> None:
        pieces = self._pieces
        async for piece in made:
            pieces.append(piece)

    async def _is_good(self, making: asyncio.Task[None]) -> bool:
        """Whether its kernel lives, and it has its widgets or is still being made."""
        if making.cancelled() or (making.done() and making.exception() is not None):
            return False
        if making.done() and not any(WIDGET in piece for piece in self._pieces):
            return False
        kernels = [self._kernels.get_kernel(name) for name in self._kernels.list_kernel_ids()]
        alive = [await ensure_async(kernel.is_alive()) for kernel in kernels]
        return all(alive) and (bool(alive) or not making.done())


class PageHandler(TornadoVoilaHandler):
    """Answers with the page that is kept."""

    def initialize(self, kept: CachedPage, **others: Any) -> None:
        """kept: the same one for all requests."""
        self._kept = kept
        super().initialize(**others)

    async def get_generator(self, path: str | None = None) -> Pieces:
        """The page's pieces; of another path, what Voila says to it."""
        make = super().get_generator
        async for piece in self._kept.pieces(make) if not path else make(path):
            yield piece


class LeftHandler(tornado.web.RequestHandler):
    """Told by a browser that leaves the page; the kernel stays for whoever comes next."""

    def post(self, _: str) -> None:
        """Does nothing."""
        self.set_status(204)
