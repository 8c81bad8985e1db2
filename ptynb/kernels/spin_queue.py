"""Mailboxes between threads that stay in compiled code, and how what is to be done gets into them.

The caller writes where the code is and where its arguments are, then the number of what it posted; the helper does it
and writes the number of what it did. A helper says so before it falls asleep, and is woken by a function that runs no
line of Python: the caller may be the main thread, and an interruption (Ctrl-C) that came up there would be lost. So it
comes up when all shares are done.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ptynb.kernels.compiler import compiled

LINE = 64
"""Bytes of a line of the processor's cache."""
BOX = 2 * LINE
"""Bytes of a mailbox."""
_CODE, _ARGUMENTS, _SHARE, _SHARES, _PATIENCE, _LEAVE, _POSTED, _WAKE = range(0, LINE, 8)
"""Bytes into a mailbox: what the caller writes, and on another line what the helper does."""
_DONE, _FAILED, _ASLEEP = range(LINE, LINE + 24, 8)
RESTING = 1 if os.name == "nt" else 20
"""In the unit of the system's function: ms or microseconds."""
AT_ONCE = 2000
"""Pauses that waiting is worth where an answer comes at once, if at all."""
_INTEGER = ir.IntType(64)
_shares: dict[str, Any] = {}


def runner_of(function: Callable[..., None]) -> Any:
    """Compiled run(addresses, shares, arguments) that has all shares of function(*arguments, share, shares) done.

    It returns how many shares failed.
    """
    # By this name numba finds on disk what was made of the function, wherever that stands.
    code = function.__code__
    own = hashlib.sha256(code.co_code + repr((code.co_consts, code.co_names)).encode()).hexdigest()[:12]
    name = f"{function.__module__}.{function.__qualname__} {own}"
    _shares[name] = compiled(function)

    def run(addresses: Any, shares: int, arguments: Any) -> int:
        code, place = _job(name, arguments)
        failed: int = _together(addresses, shares, code, place)
        return failed

    return compiled(run)


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
def pause_for(pauses: int) -> None:
    """So many pauses of the processor."""
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
def set_up(box: int, wake: int) -> None:
    """How a mailbox begins. wake: address of void wake(core of the caller)."""
    _store(box + _ASLEEP, 1)
    _store(box + _WAKE, wake)


@compiled
def serve(box: int) -> None:
    """Does what is posted, until nothing came for long."""
    done, waited = _load(box + _DONE), 0
    _store(box + _ASLEEP, 0)
    while True:
        if _load(box + _POSTED) != done:
            place, share, shares = _load(box + _ARGUMENTS), _load(box + _SHARE), _load(box + _SHARES)
            _store(box + _FAILED, _do(_load(box + _CODE), place, share, shares))
            done, waited = done + 1, 0
            _store(box + _DONE, done)
        elif waited < _load(box + _PATIENCE):
            waited = _wait(waited, _load(box + _LEAVE))
        else:
            # Either the caller sees this, or what the caller posted before looking is seen here.
            _store(box + _ASLEEP, 1)
            if _load(box + _POSTED) == done:
                return
            _store(box + _ASLEEP, 0)


@compiled
def _together(addresses: Any, shares: int, code: int, place: int) -> int:
    """Does share 0 and has the others done; returns how many failed."""
    failed = 0
    if addresses.boxes == 0:
        for share in range(shares):
            failed += _do(code, place, share, shares)
        return failed
    for helper in range(shares - 1):
        box = addresses.boxes + helper * BOX
        _store(box + _CODE, code)
        _store(box + _ARGUMENTS, place)
        _store(box + _SHARE, helper + 1)
        _store(box + _SHARES, shares)
        _store(box + _PATIENCE, addresses.patience)
        _store(box + _LEAVE, addresses.leave)
        _store(box + _POSTED, _load(box + _POSTED) + 1)
    for helper in range(shares - 1):
        box = addresses.boxes + helper * BOX
        if _load(box + _ASLEEP):
            _ask(_load(box + _WAKE), _core(addresses.core))
            # It may have to begin on this core, which is left to it.
            waited = 0
            while _load(box + _ASLEEP) and _load(box + _DONE) != _load(box + _POSTED):
                waited = _leave_or_rest(waited, AT_ONCE, addresses)
    failed += _do(code, place, 0, shares)
    for helper in range(shares - 1):
        box, waited = addresses.boxes + helper * BOX, 0
        while _load(box + _DONE) != _load(box + _POSTED):
            waited = _leave_or_rest(waited, max(addresses.patience, AT_ONCE), addresses)
        failed += _load(box + _FAILED)
    return failed


@compiled
def _core(code: int) -> int:
    """The core that this thread is on, -1 where the system does not say."""
    return _do(code, 0, 0, 0) & 0xFFFF if code else -1


@compiled
def _leave_or_rest(waited: int, patience: int, addresses: Any) -> int:
    """A moment more, awake or, beyond patience, resting for some microseconds."""
    if waited >= patience and addresses.rest:
        _do(addresses.rest, RESTING, 0, 0)
        return waited
    return _wait(waited, addresses.leave)
