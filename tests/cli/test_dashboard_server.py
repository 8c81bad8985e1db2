"""The page of `ptynb dashboard` is made once, and again only where it is worth nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ptynb.cli.dashboard_server import WIDGET, CachedPage


class Kernel:
    """One that lives until it is told otherwise."""

    alive = True

    def is_alive(self) -> bool:
        return self.alive


class Kernels:
    """What Voila's manager of kernels is to a page."""

    def __init__(self) -> None:
        self.present: dict[str, Kernel] = {}
        self.started = 0

    def start(self) -> None:
        self.started += 1
        self.present[f"kernel {self.started}"] = Kernel()

    def list_kernel_ids(self) -> list[str]:
        return [*self.present]

    def get_kernel(self, name: str) -> Kernel:
        return self.present[name]

    async def shutdown_all(self) -> None:
        self.present.clear()

    async def page(self, *more: str) -> AsyncGenerator[str, None]:
        self.start()
        number = self.started
        yield f"page {number}"
        await asyncio.sleep(0)
        for piece in more or (WIDGET,):
            yield piece


def in_a_loop(asked: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: where a browser was at work before, this one has a loop already."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, asked).result()


async def shown(kept: CachedPage, make: Callable[[], Any]) -> str:
    async with asyncio.timeout(30):  # or one that waits for ever would
        return "".join([piece async for piece in kept.pieces(make)])


def test_all_who_ask_see_one_page_with_one_kernel() -> None:
    async def ask() -> None:
        kernels = Kernels()
        kept = CachedPage(kernels)
        together = await asyncio.gather(*(shown(kept, kernels.page) for _ in range(3)))
        assert {*together, await shown(kept, kernels.page)} == {f"page 1{WIDGET}"}
        assert kernels.list_kernel_ids() == ["kernel 1"]

    in_a_loop(ask())


def test_who_leaves_while_the_page_is_made_leaves_it_to_be_made() -> None:
    async def ask() -> None:
        kernels = Kernels()
        kept = CachedPage(kernels)
        async for _ in kept.pieces(kernels.page):
            break
        assert await shown(kept, kernels.page) == f"page 1{WIDGET}"

    in_a_loop(ask())


def test_a_kernel_that_died_has_its_page_made_again() -> None:
    async def ask() -> None:
        kernels = Kernels()
        kept = CachedPage(kernels)
        await shown(kept, kernels.page)
        kernels.present["kernel 1"].alive = False
        assert await shown(kept, kernels.page) == f"page 2{WIDGET}"
        assert kernels.list_kernel_ids() == ["kernel 2"]

    in_a_loop(ask())


def test_one_that_dies_while_its_page_is_made_holds_up_nobody() -> None:
    async def ask() -> None:
        kernels = Kernels()
        kept = CachedPage(kernels)

        async def endless() -> AsyncGenerator[str, None]:
            kernels.start()
            yield "page 1"
            await asyncio.Event().wait()

        first = asyncio.create_task(shown(kept, endless))
        while not kernels.present:
            await asyncio.sleep(0)
        kernels.present["kernel 1"].alive = False
        assert await shown(kept, kernels.page) == f"page 2{WIDGET}"
        assert await first == "page 1"

    in_a_loop(ask())


def test_a_page_whose_cell_failed_is_made_again() -> None:
    async def ask() -> None:
        kernels = Kernels()
        kept = CachedPage(kernels)
        assert await shown(kept, lambda: kernels.page("an error")) == "page 1an error"
        assert await shown(kept, kernels.page) == f"page 2{WIDGET}"
        assert kernels.list_kernel_ids() == ["kernel 2"]

    in_a_loop(ask())


def test_a_kernel_that_can_not_be_started_is_said_and_tried_again() -> None:
    async def ask() -> None:
        kernels = Kernels()
        kept = CachedPage(kernels)

        async def refused() -> AsyncGenerator[str, None]:
            raise RuntimeError("no kernel")
            yield ""

        with pytest.raises(RuntimeError, match="no kernel"):
            await shown(kept, refused)
        assert await shown(kept, kernels.page) == f"page 1{WIDGET}"

    in_a_loop(ask())
