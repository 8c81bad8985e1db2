"""Work in equal shares on threads that stay in compiled code.

Waking a thread takes 50 to 90 microseconds on a virtual machine, and so does taking turns with the interpreter's lock;
an update of a small batch takes a few hundred. So while torch is kept to one thread, helpers look into a mailbox for a
millisecond after their last share before they fall asleep: a section whose helpers are awake takes one microsecond to
begin and to end. Otherwise they leave the cores to torch's threads at once.

The helpers live as long as the process, and come to life where they are first needed. numba's own threads would be a
second pool beside torch's, each spinning for milliseconds on the cores that the other needs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import platform
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ptynb.compiled import threads
from ptynb.compiled.compiler import compiled

PATIENCE = 1e-3
"""For how long helpers, or whom they help, wait awake [s]."""
_LINE = 64
_CODE, _ARGUMENTS, _SHARE, _SHARES, _PATIENCE, _LEAVE, _POSTED, _CALLER_SLEEPS = range(0, 64, 8)
"""Bytes into a mailbox: what the caller writes, and on another line of the cache what the helper does."""
_DONE, _FAILED, _ASLEEP = range(_LINE, _LINE + 24, 8)
_BOX = 2 * _LINE
_INTEGER = ir.IntType(64)
_shares: dict[str, Any] = {}


@compiled
def part(count: int, share: int, shares: int) -> tuple[int, int]:
    """The first of `count` things that a share takes, and the first that it leaves to the next."""
    return count * share // shares, count * (share + 1) // shares


def in_shares(function: Callable[..., None]) -> Callable[..., None]:
    """Compiles function(*arguments, share, shares), which does one share, into one of arguments, which does them all.

    Arguments are numbers, arrays, and tuples of these. As many shares are done at once as `threads.count` says, or as
    `shares=` does, for arrays that have a row for each; the call waits for all of them. Raises MemoryError where one
    had no memory.
    """
    name = f"{function.__module__}.{function.__qualname__}"
    _shares[name] = compiled(function)

    def run(crew: Any, shares: int, arguments: Any) -> int:
        code, place = _job(name, arguments)
        failed: int = _together(crew, shares, code, place)
        return failed

    runner = compiled(run)

    @functools.wraps(function)
    def all_shares(*arguments: Any, shares: int = 0) -> None:
        _crew.run(runner, shares or threads.count(), arguments)

    return all_shares


class _Addresses(NamedTuple):
    """Of the mailboxes, 0 where there is nobody to help, and of functions for those who wait.

    patience: pauses before a thread that waits falls asleep. leave: lets other threads have the core; 0 where the
    system has no such function. wake, sleep: `_Crew._wake` and `_sleep`.
    """

    boxes: int
    patience: int
    leave: int
    wake: int
    sleep: int


class _Crew:
    """The helpers. Share 0 is the caller's, share k that of helper k - 1."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._helpers = list[_Helper]()
        self._patience = 0
        self._alone = _Addresses(0, 0, 0, 0, 0)
        self._interrupted: BaseException | None = None
        function = ctypes.CFUNCTYPE(None, ctypes.c_int64)
        self._callbacks = function(self._wake), function(self._sleep)
        self._memory = np.zeros(0, np.int64)
        self._addresses = self._hasty = self._alone

    def run(self, runner: Any, shares: int, arguments: tuple[Any, ...]) -> None:
        """Does all shares. Where another thread has the helpers, one after the other."""
        if shares == 1 or not self._busy.acquire(blocking=False):
            failed = runner(self._alone, shares, arguments)
        else:
            try:
                if len(self._helpers) < shares - 1:
                    self._grow(shares - 1)
                addresses = self._addresses if threads.is_torch_alone() else self._hasty
                failed = runner(addresses, shares, arguments)
                if self._interrupted is not None:
                    raise self._interrupted
            finally:
                self._interrupted = None
                self._busy.release()
        if failed:
            raise MemoryError("There is no memory left for a step of the update.")

    def _grow(self, helpers: int) -> None:
        """Makes sure of this many; mailboxes are moved, so all others are at rest."""
        self.end()
        self._patience = self._patience or _pauses(PATIENCE)
        self._memory = np.zeros((helpers * _BOX + _LINE) // 8, np.int64)
        boxes = -(-self._memory.ctypes.data // _LINE) * _LINE
        wake, sleep = (ctypes.cast(callback, ctypes.c_void_p).value or 0 for callback in self._callbacks)
        self._addresses = _Addresses(boxes, self._patience, _leave(), wake, sleep)
        self._hasty = self._addresses._replace(patience=0)
        self._helpers = [_Helper(boxes + number * _BOX, number) for number in range(helpers)]

    def _wake(self, number: int) -> None:
        """Called out of compiled code: wakes a helper, and waits until it is up, on a core of its own."""
        taken = {_core(), *(helper.core for helper in self._helpers[:number])}
        self._helpers[number].calls.put(taken)
        self._get(self._helpers[number].up)

    def _sleep(self, number: int) -> None:
        """Called out of compiled code: waits until a helper may have done its share."""
        self._get(self._helpers[number].done)

    def _get(self, news: queue.SimpleQueue[None]) -> None:
        """An interruption has to wait, too: helpers work on what the caller would take along."""
        try:
            news.get()
        except BaseException as interrupted:  # noqa: BLE001  # raised when all have ended
            self._interrupted = interrupted

    def end(self) -> None:
        """Ends all helpers, who have nothing to do."""
        for helper in self._helpers:
            helper.calls.put(None)
        for helper in self._helpers:
            helper.thread.join()


class _Helper:
    """A thread that does what its mailbox says.

    calls: cores that others are on, to wake it; None to end it. up: something, when it is awake. done: something, for a
    caller that fell asleep. core: on which it last woke.
    """

    def __init__(self, box: int, number: int) -> None:
        self.calls: queue.SimpleQueue[set[int] | None] = queue.SimpleQueue()
        self.up: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.core = -1
        _set_asleep(box)
        self.thread = threading.Thread(target=self._serve, args=(box,), name=f"hot path {number}", daemon=True)
        self.thread.start()

    def _serve(self, box: int) -> None:
        while (taken := self.calls.get()) is not None:
            _move_off(taken)
            self.core = _core()
            self.up.put(None)
            while _serve(box):
                self.done.put(None)


def _core() -> int:
    """The core that the calling thread is on, -1 where the system does not say."""
    return _sched_getcpu() if _sched_getcpu is not None else -1


def _move_off(taken: set[int]) -> None:
    """Moves the calling thread to another core, if it is on one of these.

    Linux wakes a thread where its waker is, and lets two that never sleep stay there for a hundred milliseconds, with
    another core idle.
    """
    if _core() not in taken or not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    if free := allowed - taken:
        with contextlib.suppress(OSError):  # where that is forbidden, things take longer
            os.sched_setaffinity(0, free)
            os.sched_setaffinity(0, allowed)


def _leave() -> int:
    """The address of the system's function by which a thread lets others have its core."""
    library, name = ("kernel32", "SwitchToThread") if os.name == "nt" else (None, "sched_yield")
    function = _system_function(library, name)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def _system_function(library: str | None, name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(library), name)
    except (AttributeError, OSError, TypeError):
        return None


def _pauses(seconds: float) -> int:
    """How many pauses take so long."""
    _pause_for(1)  # compiles it
    number = 1000
    while True:
        started = time.perf_counter()
        _pause_for(number)
        taken = time.perf_counter() - started
        if taken > seconds:
            return max(int(number * seconds / taken), 1)
        number *= 2


def _code_of_load(context: Any, address: Any) -> Any:
    """The number at an address, as every thread sees it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], _INTEGER.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), generate


def _code_of_store(context: Any, address: Any, value: Any) -> Any:
    """Writes a number for every thread to see."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], builder.inttoptr(arguments[0], _INTEGER.as_pointer()), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _code_of_pause(context: Any) -> Any:
    """Tells the core that this thread only waits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        machine = platform.machine().lower()
        if machine in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        elif machine in ("aarch64", "arm64"):
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.hint")
            builder.call(hint, [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.void(), generate


def _code_of_ask(context: Any, function: Any, number: Any) -> Any:
    """Calls void function(number) at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_INTEGER]).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _code_of_do(context: Any, code: Any, place: Any, share: Any, shares: Any) -> Any:
    """Calls what `_job` wrote."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_INTEGER, [_INTEGER] * 3).as_pointer()
        return builder.call(builder.inttoptr(arguments[0], kind), arguments[1:])

    return types.int64(*[types.int64] * 4), generate


def _code_of_job(context: Any, name: Any, arguments: Any) -> Any:
    """The addresses of int64 code(place, share, shares), 1 if it failed, and of the arguments it takes from there.

    The arguments are the caller's, in his own memory: he waits until all is done.
    """
    if not isinstance(name, types.StringLiteral):
        return None  # asked again only where typing the share's function failed: that error is the one to see
    function = _shares[name.literal_value]
    called = numba.typeof(function).get_call_type(context, (*arguments.types, types.int64, types.int64), {})

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        result = function.get_compile_result(called)
        context.add_linking_libs((result.library,))
        kind = ir.FunctionType(_INTEGER, [_INTEGER] * 3)
        code = ir.Function(builder.module, kind, builder.module.get_unique_name("share"))
        code.linkage = "internal"
        inside = ir.IRBuilder(code.append_basic_block())
        place, *share = code.args
        given = inside.load(inside.inttoptr(place, context.get_value_type(arguments).as_pointer()))
        status, _ = context.call_conv.call_function(
            inside,
            context.declare_function(builder.module, result.fndesc),
            called.return_type,
            called.args,
            [*cgutils.unpack_tuple(inside, given, len(arguments.types)), *share],
        )
        inside.ret(inside.zext(status.is_error, _INTEGER))
        kept = cgutils.alloca_once_value(builder, values[1])
        pair = [builder.ptrtoint(pointer, _INTEGER) for pointer in (code, kept)]
        return context.make_tuple(builder, signature.return_type, pair)

    return types.UniTuple(types.int64, 2)(name, arguments), generate


_load: Any = intrinsic(_code_of_load)
_store: Any = intrinsic(_code_of_store)
_pause: Any = intrinsic(_code_of_pause)
_ask: Any = intrinsic(_code_of_ask)
_do: Any = intrinsic(_code_of_do)
_job: Any = intrinsic(prefer_literal=True)(_code_of_job)


@compiled
def _pause_for(pauses: int) -> None:
    for _ in range(pauses):
        _pause()


@compiled
def _wait(waited: int, leave: int) -> int:
    """A moment more; now and then others may have the core, for one of them may be who is waited for."""
    _pause()
    if leave and waited % 64 == 63:
        _do(leave, 0, 0, 0)
    return waited + 1


@compiled
def _set_asleep(box: int) -> None:
    _store(box + _ASLEEP, 1)


@compiled
def _serve(box: int) -> bool:
    """Does what is posted. Returns whether the caller is to be woken; if not, nothing came for long."""
    done, waited = _load(box + _DONE), 0
    _store(box + _ASLEEP, 0)
    while True:
        if _load(box + _POSTED) != done:
            place, share, shares = _load(box + _ARGUMENTS), _load(box + _SHARE), _load(box + _SHARES)
            _store(box + _FAILED, _do(_load(box + _CODE), place, share, shares))
            done, waited = done + 1, 0
            _store(box + _DONE, done)
            if _load(box + _CALLER_SLEEPS):
                return True
        elif waited < _load(box + _PATIENCE):
            waited = _wait(waited, _load(box + _LEAVE))
        else:
            # Either the caller sees this, or what the caller posted before looking is seen here.
            _store(box + _ASLEEP, 1)
            if _load(box + _POSTED) == done:
                return False
            _store(box + _ASLEEP, 0)


@compiled
def _together(crew: Any, shares: int, code: int, place: int) -> int:
    """Does share 0 and has the others done; returns how many failed."""
    failed = 0
    if crew.boxes == 0:
        for share in range(shares):
            failed += _do(code, place, share, shares)
        return failed
    for helper in range(shares - 1):
        box = crew.boxes + helper * _BOX
        _store(box + _CODE, code)
        _store(box + _ARGUMENTS, place)
        _store(box + _SHARE, helper + 1)
        _store(box + _SHARES, shares)
        _store(box + _PATIENCE, crew.patience)
        _store(box + _LEAVE, crew.leave)
        _store(box + _POSTED, _load(box + _POSTED) + 1)
    patience = crew.patience
    for helper in range(shares - 1):
        if _load(crew.boxes + helper * _BOX + _ASLEEP):
            _ask(crew.wake, helper)
            patience = 0  # it may be behind the caller on the same core
    failed += _do(code, place, 0, shares)
    for helper in range(shares - 1):
        box, waited = crew.boxes + helper * _BOX, 0
        while _load(box + _DONE) != _load(box + _POSTED):
            if waited < patience:
                waited = _wait(waited, crew.leave)
            else:
                _store(box + _CALLER_SLEEPS, 1)
                if _load(box + _DONE) != _load(box + _POSTED):
                    _ask(crew.sleep, helper)
                _store(box + _CALLER_SLEEPS, 0)
        failed += _load(box + _FAILED)
    return failed


_sched_getcpu = _system_function(None, "sched_getcpu") if os.name == "posix" else None
_crew = _Crew()
atexit.register(lambda: _crew.end())


def _forget() -> None:
    global _crew
    _crew = _Crew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # threads do not survive a fork
