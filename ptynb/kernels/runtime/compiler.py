"""Compilation of loops by numba, at the first call for each combination of argument types.

Only functions that Python calls get machine code of their own, which is cached on disk. Those that other loops call end
at LLVM's intermediate code, which their callers include: this takes a third less time for all loops of an update. They
call functions of the operating system by their addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import numba
from llvmlite.binding import get_host_cpu_name
from numba._dynfunc import make_function
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, UserWideCacheLocator
from numba.core.ccallback import CFunc
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import NativeLowering

from ptynb.kernels import runtime

REORDER = {"reassoc", "contract", "nsz"}
"""Fast-math flags that allow vectorised sums and products; NaN is still detected."""
LOCK_SECONDS = 120.0
"""Longest time for which another process may compile one function [s]; then both do."""

_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": REORDER, "error_model": "numpy"}


@functools.cache
def _version(folder: Path) -> str:
    """Return a hash of the sources in a folder and of this package's: part of the names of functions in the cache.

    numba compiles a function again if its own file changes, but not if files with the loops that it calls do.
    """
    sources = sorted({*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")})
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def _version_of(function: Callable[..., Any]) -> str:
    return _version(Path(function.__code__.co_filename).parent)


def compiled(function: Callable[..., Any], calls: Callable[..., Any] | None = None) -> Any:
    """Compile a loop that releases Python's global lock (GIL); cached on disk if a folder is writable.

    calls: a function that it calls, from another package: its code is compiled again if that package changes.
    """
    function.__qualname__ += f"_{_version_of(calls or function)}"
    dispatcher = numba.njit(**_OPTIONS)(function)
    compile_for = dispatcher.compile

    def compile_once(signature: Any) -> Any:
        with _compiling(function) as dispatcher._cache:
            return compile_for(signature)

    dispatcher.compile = compile_once
    return dispatcher


def inner(function: Callable[..., Any]) -> Any:
    """Compile a loop that only other loops call; a call from Python raises TypeError."""
    return numba.njit(**_OPTIONS, pipeline_class=_Inner)(function)


def callback(signature: Any, function: Callable[..., Any]) -> int:
    """Return the address of a function, compiled so that loops can call it; cached on disk like loops."""
    function.__qualname__ += f"_{_version_of(function)}"
    compiled_function: Any = CFunc(function, normalize_signature(signature), locals={}, options={})
    with _compiling(function) as compiled_function._cache:
        compiled_function.compile()
    return int(compiled_function.address)


def marker(name: str, function: Callable[..., Any]) -> Path | None:
    """Return the path of an empty file that says that the cache has the loops of this name, in the function's folder.

    None: no folder for the cache is writable.
    """
    folder = _cache_of(function).cache_path
    return None if folder is None else Path(folder) / f"{name}-{_version_of(function)}-{get_host_cpu_name()}"


class _Locator(UserWideCacheLocator):
    """Finds the folder of numba's cache."""

    def ensure_cache_path(self) -> None:
        self._cache_path = str(runtime.folder_of_code(Path(self._cache_path).name))
        super().ensure_cache_path()


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator]  # noqa: RUF012


class _Cache(FunctionCache):
    _impl_class = _CacheImpl


def _cache_of(function: Callable[..., Any]) -> Any:
    """Return numba's cache of a function's code; one that keeps nothing if no folder is writable."""
    try:
        return _Cache(function)
    except RuntimeError:
        return NullCache()


@contextlib.contextmanager
def _compiling(function: Callable[..., Any]) -> Iterator[Any]:
    """Load code from the cache or compile it, while no other process compiles the same function.

    Otherwise each rank on a host would compile all loops at the same time; and if two write to the cache at the same
    time, the code for one type may be stored under the name of another. Without the garbage collector: numba creates
    many objects, and each collection would pass over all that torch keeps, an eighth of the time for all loops of an
    update.

    Yields the cache.
    """
    cache = _cache_of(function)
    collecting = gc.isenabled()
    gc.disable()
    try:
        with contextlib.ExitStack() as held:
            if cache.cache_path is not None:
                lock = filelock.FileLock(Path(cache.cache_path) / f"{cache._impl.filename_base}.lock")
                with contextlib.suppress(OSError, NotImplementedError):  # no locks on this file system, or a timeout
                    held.enter_context(lock.acquire(timeout=LOCK_SECONDS))
            yield cache
    finally:
        if collecting:
            gc.enable()


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    """The last step of numba's compiler, without machine code and wrappers for Python."""

    _name = "lowering of an inner loop"

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        super().run_pass(state)
        lowered, library = state["cr"], state.library
        described, libraries = lowered.fndesc, (library,)
        # Its code is optimised and translated once, with that of the function that Python calls.
        library._optimize_final_module = lambda: None
        library._finalize_final_module = lambda: setattr(library, "_finalized", True)
        # numba finds the loop by this function, which therefore has to exist.
        refuse = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value
        function = make_function(
            described.lookup_module(), described.qualname, "Called by other loops only.", refuse, lowered.env, libraries
        )
        state.targetctx.insert_user_function(function, described, [*libraries])
        state["cr"] = lowered._replace(cfunc=function)
        return True


class _Inner(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_InnerLowering if step is NativeLowering else step, text) for step, text in passes.passes]
        return [passes]


def system_function(name: str, library: str | None = None) -> Any:
    """Return a function of a library, or of the loaded libraries; None if it does not exist."""
    try:
        return getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError, TypeError):
        return None


def address_of(function: Any) -> int:
    """Return the address of a function; 0 for None."""
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
