"""Views that take over what changed meanwhile, again and again, in a thread of their own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar


class Fresh(Protocol):
    """A view that can be kept fresh."""

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        ...

    def refresh(self) -> None:
        """Takes over what changed."""

    def complain(self, error: Exception) -> None:
        """Shows what `refresh` raised."""


View = TypeVar("View", bound=Fresh)


def keep_fresh(
    view: View,
    name: str,
    seconds: float,
    soon: threading.Event | None = None,
    over: Callable[[View], bool] = lambda view: False,
) -> threading.Event:
    """Refreshes a view every so many seconds in a thread of this name, until it is closed or nobody holds it any more.

    Returns `soon`, which makes the thread refresh, or see that the view is closed, at once. over: whether nothing will
    change any more; the view is refreshed once after it was.
    """
    soon = soon or threading.Event()
    arguments = (weakref.ref(view), seconds, soon, over)
    threading.Thread(target=_keep_fresh, args=arguments, name=name, daemon=True).start()
    return soon


def _keep_fresh(
    reference: weakref.ref[View], seconds: float, soon: threading.Event, over: Callable[[View], bool]
) -> None:
    last = False
    while not last:
        soon.wait(seconds)
        soon.clear()
        view = reference()
        if view is None or view.closed:
            return
        last = over(view)
        try:
            view.refresh()
        except Exception as error:  # noqa: BLE001 - a view that fails says so, and the next look may succeed
            if not view.closed:
                view.complain(error)
        del view
