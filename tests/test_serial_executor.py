"""Interrupts that Python loses or replaces by another error."""

from __future__ import annotations

import signal
import threading
import weakref
from pathlib import Path

import pytest

from ptynb.io.hdf5_file import open_for_reading, replacing
from ptynb.serial_executor import SerialExecutor, waiting


def interrupted_while_locking() -> None:
    with waiting():
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()


def test_a_wait_whose_lock_an_interrupt_took_ends_with_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_while_locking()


def test_an_error_of_the_work_is_no_interrupt() -> None:
    def fails() -> None:
        raise RuntimeError("wrong")

    with pytest.raises(RuntimeError, match="wrong"):
        SerialExecutor("test").run(fails)


class Identifier:
    """Stands for one of h5py's, which are in a WeakValueDictionary."""


def lose_an_interrupt() -> None:
    """Interrupts the callback of a dead weak reference, where Python ignores what is raised."""
    one = Identifier()
    reference = weakref.ref(one, lambda _: signal.raise_signal(signal.SIGINT))
    del one
    assert reference() is None


def write(path: Path, *, losing: bool) -> None:
    with replacing(path) as file:
        file["values"] = [1, 2]
        if losing:
            lose_an_interrupt()
        file["losing"] = losing


def read(path: Path, into: list[object]) -> None:
    with open_for_reading(path) as file, open_for_reading(path) as again:
        lose_an_interrupt()
        into += [file["values"][1], again["losing"][()]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_lost_by_h5py_is_raised_once_the_file_is_closed(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    path = tmp_path / "one.h5"
    write(path, losing=False)
    with pytest.raises(KeyboardInterrupt):
        write(path, losing=True)
    seen: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        read(path, seen)
    assert seen == [2, False]  # read to its end, from the file that was there before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert signal.getsignal(signal.SIGINT) is before
