"""Memory of tensors that are alive at the same time, at its peak."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveStorages(TorchDispatchMode):
    """Counts the bytes that torch operations allocate inside this context, backward ones too, until their release."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._watched = dict[int, weakref.ref[torch.UntypedStorage]]()

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {one._cdata for one in _storages((args, kwargs))}
        result = function(*args, **(kwargs or {}))
        for one in _storages(result):
            if one._cdata not in given:
                self._watch(one)
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._watched or not size:
            return

        def released(_: object) -> None:
            self.live -= size
            del self._watched[key]

        self._watched[key] = weakref.ref(storage, released)
        self.live += size
        self.peak = max(self.peak, self.live)


def _storages(values: Any) -> list[torch.UntypedStorage]:
    """Return the storages of the dense tensors among these values."""
    tensors = [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]
    return [one.untyped_storage() for one in tensors if one.layout == torch.strided]
