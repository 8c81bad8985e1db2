"""A pretended GPU: a device of torch ("gpu:0") whose memory is the host's and whose arithmetic is the CPU's.

It is torch's PrivateUse1 backend. What CUDA refuses (operations on tensors of two devices, `numpy` of a tensor on the
device) is refused; launches of kernels, bytes, copies, waits of the host and the peak of memory are counted. Automatic
differentiation works. An operation of the package (`triton_dispatch.operation`) is one launch.

Additions of floating-point numbers at places that may repeat, which CUDA does in no fixed order, are done in a random
one: whoever needs equal results must not use them.

Renaming the backend is valid for the whole process, so this module is imported only in processes of its own, and all
that uses the device runs inside `Mode`. Not covered: pinned memory and streams of CUDA, NCCL.
"""

from __future__ import annotations

import collections
import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("gpu")
torch._C._set_only_lift_cpu_tensors(True)
GPU = torch.device("gpu:0")
aten = torch.ops.aten
MEMORY = 80 * 2**30
"""Memory of the device, of which torch reports what is free [bytes]."""

WITHOUT_KERNEL = {
    *("detach", "alias", "lift_fresh", "_unsafe_view", "empty", "empty_strided", "empty_like", "new_empty", "view"),
    *("new_empty_strided", "_conj", "view_as_real", "view_as_complex", "is_pinned", "_reshape_alias"),
    "_local_scalar_dense",
}
"""Operations that CUDA does without a kernel, beside those that return views."""
KERNELS = {"dot": 2, "vdot": 2, "fft_fftfreq": 4, "sort": 4, "index_put_": 1, "_index_put_impl_": 1}
"""Numbers of kernels of operations that are not one; `index_put_` that accumulates sorts: `ACCUMULATION_KERNELS`."""
ACCUMULATION_KERNELS = 9
FILLING = ("fill_", "zero_", "zeros", "new_zeros", "zeros_like", "ones_like", "full_like", "new_ones", "new_full")
"""Operations that write without reading."""
WAITING = {
    *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "bincount", "_linalg_eigh"),
    *("_linalg_check_errors", "_linalg_svd", "unique_consecutive", "_unique2", "repeat_interleave"),
}
"""Operations that wait for the device: they need a value of it on the host."""
INDEXING = ("index", "index_put_", "_index_put_impl_", "index_put", "_unsafe_index")
"""Operations that accept indices on the host, and copy them to the device, for which they wait."""
WITH_ROWS = ("stored", "values", "gradient", "means", "squares", "steps")
"""Arguments of operations of the package of which only the `rows` are read, if there are such."""
ACCUMULATING = ("index_add_", "index_add", "scatter_add_", "scatter_add", "put_", "_index_put_impl_", "index_put_")
"""Operations that add at places that may repeat."""


class Log:
    """What the device did since `reset`."""

    def __init__(self) -> None:
        self.live, self.peak = 0, 0
        """Memory in use, and its largest value [bytes]."""
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.launches, self.bytes = 0, 0
        self.waits = list[str]()
        """What the host waited for, as "operation at file:line"."""
        self.copies = list[str]()
        """Copies from the host to the device that are not waited for."""
        self.operations = list[tuple[Any, ...]]()
        """Name and shapes of the arguments and results of each operation."""
        self.unordered = list[str]()
        """Additions of floating-point numbers whose order is not fixed."""
        self.by_place = collections.Counter[str]()
        """Launches by "operation at file:line"."""
        self.bytes_by_place = collections.Counter[str]()
        self.peak = self.live


LOG = Log()
_storages = dict[int, list[int]]()
"""Number of tensors and size [bytes] of each storage, by address."""


@final
class Pretended(Tensor):
    """A tensor on the device; `elem` has its values."""

    elem: Tensor
    __slots__ = ["elem"]

    @staticmethod
    def __new__(cls, elem: Tensor, requires_grad: bool = False) -> Pretended:
        """Return a tensor with the shape, strides and memory of `elem`."""
        made: Pretended = Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=GPU,
            requires_grad=requires_grad,
        )
        if elem.is_conj():
            torch._C._set_conj(made, True)
        if elem.is_neg():
            torch._C._set_neg(made, True)
        _hold(made, elem.untyped_storage())
        made.elem = elem
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.elem!r})"

    def tolist(self) -> Any:
        """Return the values, as `Tensor.tolist`."""
        return self.detach().cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


@final
class Mode(TorchDispatchMode):
    """Context in which operations on the device, and those that create tensors there, are carried out by it."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if str(kwargs.get("device", "")).startswith("gpu") or any(
            isinstance(one, Pretended) for one in _leaves([*args, *kwargs.values()])
        ):
            return _run(operation, args, kwargs)
        return _on_host(operation, args, kwargs)


def _on_host(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out an operation on tensors of the host.

    While a mode is active, torch calls operations of the package in a state where conjugation bits are ignored.
    """
    with (
        torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.Conjugate, False),
        torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.Negative, False),
    ):
        return operation(*args, **kwargs)


def _hold(made: Tensor, storage: torch.UntypedStorage) -> None:
    """Count the memory of a tensor while it or another one of the same storage exists."""
    key = storage.data_ptr() or id(storage)
    entry = _storages.setdefault(key, [0, storage.nbytes()])
    if not entry[0]:
        LOG.live += entry[1]
        LOG.peak = max(LOG.peak, LOG.live)
    entry[0] += 1
    weakref.finalize(made, _release, key)


def _release(key: int) -> None:
    entry = _storages[key]
    entry[0] -= 1
    if not entry[0]:
        LOG.live -= entry[1]
        del _storages[key]


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for one in values:
        if isinstance(one, (list, tuple)):
            yield from _leaves(one)
        else:
            yield one


def _place(name: str) -> str:
    """Return "operation at file:line" with the innermost line of the package that is being carried out."""
    frame = sys._getframe(1)
    while frame is not None:
        _, inside, file = frame.f_code.co_filename.rpartition("/ptynb/")
        if inside:
            return f"{name} at {file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return f"{name} at torch"


def _run(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out an operation, and count it."""
    namespace, _, name = operation._schema.name.partition("::")
    if namespace == "aten" and name in ("_to_copy", "copy_"):
        return (_copied if name == "copy_" else _converted)(operation, args, kwargs)
    _check_devices(name, args, kwargs)
    _note_waits(name, args)
    kwargs = dict(kwargs)
    if str(kwargs.get("device", "")).startswith("gpu"):
        kwargs["device"] = torch.device("cpu")
    kwargs.pop("pin_memory", None)
    values, named = tree_map(_plain, args), tree_map(_plain, kwargs)
    if name == "bincount" and len(values) > 1 and values[1] is not None:
        raise RuntimeError(_place("bincount with weights"))
    if name in ACCUMULATING:
        values, named = _in_random_order(operation, name, values, named)
    result = _on_host(operation, values, named)
    _count(operation, namespace, name, args, kwargs, result)
    written = [argument.name for argument in operation._schema.arguments if _is_written(argument)]
    if written and not operation._schema.returns:
        return None
    in_place = namespace == "aten" and (name.endswith("_") or "out" in written)
    if written and len(operation._schema.returns) == 1 and in_place:
        # In place, or into `out`: the very tensor is returned; operations of the package return others.
        given = {**dict(zip((one.name for one in operation._schema.arguments), args, strict=False)), **kwargs}
        if isinstance(first := given.get(written[0]), Tensor):
            return first
    return tree_map(lambda one: Pretended(one) if isinstance(one, Tensor) else one, result)


def _plain(one: Any) -> Any:
    return one.elem if isinstance(one, Pretended) else one


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _check_devices(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError for tensors of the host, where CUDA would."""
    if name.endswith("_like") or name.startswith("new_"):  # only the shape matters
        return
    for one in _leaves([*args, *kwargs.values()]):
        if not isinstance(one, Tensor) or isinstance(one, Pretended):
            continue
        scalar = one.dim() == 0 and name not in ("index_select", "gather", "mm", "bmm", "cat", "dot")
        if not scalar and name not in INDEXING:
            raise RuntimeError(
                f"{_place(name)}: expected all tensors to be on the same device, but found gpu:0 and {one.device} "
                f"{tuple(one.shape)}"
            )


def _note_waits(name: str, args: tuple[Any, ...]) -> None:
    """Note what the host would wait for; masks as indices need the number of their elements."""
    if name in WAITING:
        LOG.waits.append(_place(name))
    if name in INDEXING:
        indices = [one for one in _leaves([args[1]]) if isinstance(one, Tensor)]
        on_host = [one for one in indices if not isinstance(one, Pretended)]
        LOG.waits += [_place(f"indices of {name} copied to the device") for _ in on_host]
        # One mask with a single number is a fill, without indices.
        fills = name != "index" and len(indices) == 1 and args[2].numel() == 1
        if not fills and any(one.dtype in (torch.bool, torch.uint8) for one in indices):
            LOG.waits.append(_place(f"mask of {name}"))


def _in_random_order(
    operation: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an addition at places that may repeat, of floating-point numbers in a random order."""
    target = args[0]
    if not (target.is_floating_point() or target.is_complex()):
        return args, kwargs
    if name in ("index_put_", "_index_put_impl_"):
        accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
        indices, values = args[1], args[2]
        if not accumulate or indices[0] is None or len(indices) > 1 or values.dim() < indices[0].dim():
            return args, kwargs
        if len(indices[0].unique()) == indices[0].numel():
            return args, kwargs
        LOG.unordered.append(_place(name))
        order = torch.randperm(len(indices[0]))
        return (target, [indices[0][order], *indices[1:]], values[order], *args[3:]), kwargs
    dim, index, source = args[1], args[2], args[3]
    if len(index.unique()) < index.numel():
        LOG.unordered.append(_place(name))
    order = torch.randperm(index.shape[dim if index.dim() > 1 else 0])
    index = index.index_select(dim if index.dim() > 1 else 0, order)
    return (target, dim, index, source.index_select(dim, order), *args[4:]), kwargs


def _count(
    operation: Any, namespace: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """Count the launches and bytes of an operation."""
    returns = operation._schema.returns
    views = returns and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)
    if namespace == "aten" and (views or name in WITHOUT_KERNEL):
        return
    given = dict(zip((one.name for one in operation._schema.arguments), args, strict=False)) | kwargs
    ours = [one for one in _leaves(given.values()) if isinstance(one, Pretended)]
    made = [one for one in _leaves([result]) if isinstance(one, Tensor)]
    if namespace == "ptynb":
        launches, moved = 1, _bytes_of_own(operation, given, made)
    else:
        launches, moved = _launches_and_bytes(name, args, ours, made)
    _add(name, launches, moved)
    LOG.operations.append((name, *(tuple(one.shape) for one in (*ours, *made))))


def _add(name: str, launches: int, moved: int) -> None:
    LOG.launches += launches
    LOG.bytes += moved
    place = _place(name)
    LOG.by_place[place] += launches
    LOG.bytes_by_place[place] += moved


def _bytes_of_own(operation: Any, given: dict[str, Any], made: list[Tensor]) -> int:
    """Return the bytes that an operation of the package reads and writes.

    Of an object only the windows, of patterns and parameters only the selected rows; what is changed is read and
    written, what is `set_` only written.
    """
    moved, rows = sum(_size(one) for one in made), given.get("rows")
    in_windows = "origins" in given or "window_origins" in given
    replaces = operation._schema.name.startswith("ptynb::set_")
    for argument in operation._schema.arguments:
        value = given.get(argument.name)
        if not isinstance(value, Pretended):
            continue
        size = _read(value)
        if argument.name in ("object", "field") or (argument.name == "gradient" and in_windows and not replaces):
            size = min(size, _in_windows(value, given))
        elif rows is not None and argument.name in WITH_ROWS:
            size = min(size, len(rows) * size // max(len(value), 1))
        moved += 2 * size if _is_written(argument) and not replaces else size
    return moved


def _in_windows(field: Tensor, given: dict[str, Any]) -> int:
    """Return the size of a field's windows [bytes]."""
    origins = given.get("origins", given.get("window_origins"))
    assert isinstance(origins, Tensor), "an operation on windows has their origins"
    size = next((given[name].shape[-2:] for name in ("waves", "change", "windows") if name in given), None)
    height, width = (given["height"], given["width"]) if size is None else size
    planes = field.numel() // (field.shape[-2] * field.shape[-1])
    pixels: int = len(origins) * planes * height * width * field.element_size()
    return pixels


def _launches_and_bytes(name: str, args: tuple[Any, ...], ours: list[Pretended], made: list[Tensor]) -> tuple[int, int]:
    read, written = sum(_read(one) for one in ours), sum(_size(one) for one in made)
    launches = KERNELS.get(name, 1)
    if name in FILLING:
        read = 0
    elif name == "index_select":  # reads what it takes, not the whole view
        read = written + _size(args[2].elem)
    elif name == "index_add_":
        read, written = 2 * _size(args[3].elem) + _size(args[2].elem), _size(args[3].elem)
    elif name.startswith("_fft"):
        plane = _size(args[0].elem)
        launches = len(args[1])  # one pass an axis
        if name == "_fft_c2c":
            read = written = plane * launches
            if args[2] != 0:  # torch scales in a pass of its own, behind the transform
                launches, read, written = launches + 1, read + plane, written + plane
    elif name in ("_index_put_impl_", "index_put_"):
        launches = ACCUMULATION_KERNELS if len(args) > 3 and args[3] else launches
        read = written = _size(_plain(args[2]))
    return launches, read + written


def _size(one: Tensor) -> int:
    return one.numel() * one.element_size()


def _read(one: Pretended) -> int:
    """Return the bytes that reading a tensor takes: of an expanded one only what is stored."""
    size = one.elem.element_size()
    for length, stride in zip(one.elem.shape, one.elem.stride(), strict=True):
        size *= length if stride else 1
    return size


def _copied(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    target, source = args[0], args[1]
    nonblocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    _plain(target).copy_(_plain(source))
    ours = [one for one in (source, target) if isinstance(one, Pretended)]
    if len(ours) == 1:
        _transferred("copy_", isinstance(target, Pretended), nonblocking)
    else:
        _count(operation, "aten", "copy_", (target, source), {}, _plain(target))
    result: Tensor = target
    return result


def _converted(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    source, on_gpu = args[0], isinstance(args[0], Pretended)
    device = kwargs.get("device")
    to_gpu = on_gpu if device is None else torch.device(device).type == "gpu"
    own = {name: one for name, one in kwargs.items() if name not in ("device", "pin_memory", "non_blocking")}
    made = aten._to_copy.default(_plain(source), **own)
    if made.numel() and made.data_ptr() == _plain(source).data_ptr():
        made = made.clone()
    if to_gpu != on_gpu:
        _transferred("to", to_gpu, kwargs.get("non_blocking", False))
    else:
        _count(operation, "aten", "to", (source,), {}, made)
    return Pretended(made) if to_gpu else made


def _transferred(name: str, to_device: bool, nonblocking: bool) -> None:
    """Note a copy between host and device."""
    if to_device and nonblocking:
        LOG.copies.append(_place(name))
    else:
        LOG.waits.append(_place(f"{name}, {'host to device' if to_device else 'device to host'}"))
    _add("copy between host and device", 1, 0)


def _register(name: str) -> Callable[..., Any]:
    """Register an operation by which torch itself creates or fills tensors of the device."""
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(aten, packet), overload or "default")
    return lambda *args, **kwargs: _run(operation, args, kwargs)


for _backend in (torch.cuda, torch.get_device_module(GPU)):
    for _name, _answer in {
        "mem_get_info": lambda device=None: (MEMORY - LOG.live, MEMORY),
        "memory_allocated": lambda device=None: LOG.live,
        "memory_reserved": lambda device=None: LOG.live,
    }.items():
        setattr(_backend, _name, _answer)
_library = torch.library.Library("aten", "IMPL")
for _name in ("empty.memory_format", "empty_strided", "copy_"):
    with contextlib.suppress(RuntimeError):  # already registered
        _library.impl(_name, _register(_name), "PrivateUse1")
