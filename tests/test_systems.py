"""ptynb imports and works where a system has less than Linux: modules and functions of POSIX are taken away from it.

Other packages keep them, as theirs are others on such a system: only what a module of ptynb imports is replaced. That
no such name is used unguarded is seen by `mypy --platform win32`, which `tests/run.py` runs.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import tomllib
from pathlib import Path

import pytest

import ptynb
from ptynb import systems

WITHOUT_POSIX = '''
import builtins, importlib, mmap, os, pkgutil, select, signal, socket, sys, types
import ptynb, torch

MODULES = """crypt curses fcntl grp nis posix pty pwd readline resource spwd syslog termios tty""".split()
NAMES = {
    os: """O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NDELAY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC O_TMPFILE WNOHANG chown
        chroot confstr copy_file_range ctermid eventfd fchdir fchmod fchown fdatasync fork forkpty getegid geteuid
        getgid getgroups getloadavg getpgid getpgrp getpriority getresuid getsid getuid getxattr killpg lchown lockf
        major memfd_create minor mkfifo mknod nice openpty pidfd_open pipe2 posix_fadvise posix_fallocate posix_spawn
        pread preadv pwrite pwritev register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile setegid
        seteuid setgid setgroups setpgid setpriority setsid setuid setxattr statvfs sync sysconf tcgetpgrp ttyname
        uname wait wait3 wait4 waitid""".split(),
    signal: """SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGSYS SIGTRAP
        SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ alarm getitimer pause pthread_kill
        pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo""".split(),
    socket: "AF_NETLINK AF_PACKET AF_UNIX SO_REUSEPORT TCP_USER_TIMEOUT socketpair recv_fds send_fds".split(),
    select: "devpoll epoll kqueue poll".split(),
    mmap: "MADV_DONTNEED MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE".split(),
}

class Less(types.ModuleType):
    """A module without some of its names."""

    def __init__(self, whole, names):
        super().__init__(whole.__name__)
        vars(self).update(whole=whole, names=frozenset(names))

    def __getattr__(self, name):
        if name in vars(self)["names"]:
            raise AttributeError(f"{vars(self)['whole'].__name__} has no {name} here")
        return getattr(vars(self)["whole"], name)

    def __setattr__(self, name, value):
        setattr(vars(self)["whole"], name, value)

less = {module.__name__: Less(module, names) for module, names in NAMES.items()}
whole_import = builtins.__import__

def limited_import(name, globals=None, locals=None, fromlist=(), level=0):
    if not (globals or {}).get("__name__", "").startswith("ptynb"):
        return whole_import(name, globals, locals, fromlist, level)
    if name.partition(".")[0] in MODULES:
        raise ModuleNotFoundError(f"No module named {name!r} here", name=name)
    return less.get(name) or whole_import(name, globals, locals, fromlist, level)

def import_all(found):
    left = []
    for name in found:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in EXTRAS:
                raise
            left.append(name)
    return left

for name in [name for name in sys.modules if name.startswith("ptynb")]:
    assert name == "ptynb", name  # nothing was imported before the names were taken away
skipped = ("ptynb.kernels.gpu.triton_kernels", "ptynb.kernels.gpu.launches")  # torch for CPUs comes without Triton
found = [one.name for one in pkgutil.walk_packages(ptynb.__path__, "ptynb.") if one.name not in skipped]
builtins.__import__ = limited_import
torch.distributed.is_nccl_available = lambda: False
'''


def _packages_of_extras() -> list[str]:
    """Return the packages that modules of ptynb for an extra import, which a base installation does not have."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    names = [re.match(r"[\w-]+", one)[0] for extra, needs in extras.items() if extra != "test" for one in needs]
    return sorted({{"rosettasciio": "rsciio"}.get(name, name.replace("-", "_")) for name in names})


def _without_posix(lines: str, folder: Path) -> str:
    head = WITHOUT_POSIX + f"EXTRAS = {_packages_of_extras()}\n"
    command = (sys.executable, "-c", head + textwrap.dedent(lines))
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_module_imports_without_posix_and_works(tmp_path):
    told = _without_posix(
        """
        import_all(found)
        for name in ptynb.__all__:
            getattr(ptynb, name)
        print(len(found))

        from pathlib import Path
        import numpy as np
        from ptynb.batch.signals import signals_are_noted
        from ptynb.cluster import cpu_cores, devices
        from ptynb.cluster.lifetime import watchdog
        from ptynb.data.arrivals import ArrivalIndex
        from ptynb.distributed import sockets
        from ptynb.engine import keepalive
        from ptynb.exceptions import FileError
        from ptynb.io import new_files, status_file
        from ptynb.io.reading import large_array
        from ptynb.kernels.runtime import thread_pool
        from ptynb.private_folder import is_private, private_folder
        from ptynb.tuning import trial_storage

        folder = private_folder(Path("own") / "folder", closed=True)
        assert is_private(folder)
        held = trial_storage._lock(folder / "study.jsonl")
        try:
            trial_storage._lock(folder / "study.jsonl")
        except FileError:
            held.release()
        else:
            raise AssertionError("a study is open twice")
        with new_files.replacing_file(folder / "status.json") as path:
            path.write_bytes(b"{}")
        assert status_file.Folder(folder)._read("status.json") == b"{}"
        watchdog.record(folder, "holder.json", {"pid": 1})
        assert watchdog.recorded(folder, "holder.json") == {"pid": 1}
        with (folder / "large").open("w+b") as file:
            large_array._take_room(file.fileno(), 100)
        assert (folder / "large").stat().st_size == 100
        index = ArrivalIndex.create(folder / "arrivals", 3, series="1", positions=None)
        index.frame(1, 2.0)
        assert bytes(ArrivalIndex.open(folder / "arrivals").states()) == bytes(index.states()) != bytes(3)
        with signals_are_noted() as came:
            signal.raise_signal(signal.SIGTERM)
        assert list(came) == [signal.SIGTERM]
        assert keepalive.machine() and cpu_cores.usable_cores() >= 1 and cpu_cores.numa_nodes() == ()
        thread_pool._move_off({0, 1, 2, 3})
        assert devices.choose_backend(2, 2, "win32", False)[0] == "gloo"
        sockets.DESCRIPTORS = "nowhere"
        assert sockets._sockets() == set()
        """,
        tmp_path,
    )
    assert int(told) > 400


def test_modules_of_extras_alone_need_the_packages_of_extras(tmp_path):
    told = _without_posix(
        """
        MODULES += EXTRAS
        print(*import_all(found))
        """,
        tmp_path,
    )
    assert "ptynb.io.formats.zarr_files" in told.split()
    assert {name.split(".")[1] for name in told.split()} == {"acquisition", "io", "service"}


def test_a_text_file_has_an_encoding():
    # that of the system is another one on Windows; ruff's PLW1514 sees fewer of them
    found = []
    for path in sorted(Path(ptynb.__file__).parent.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or any(keyword.arg == "encoding" for keyword in call.keywords):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            modes = {one.value for one in call.args if isinstance(one, ast.Constant)} & {*"rwxa", "r+", "w+"}
            as_text = modes and name in ("open", "fdopen") and ast.unparse(call.func) != "av.open"
            if as_text or (name in ("read_text", "write_text") and not call.args[name == "write_text" :]):
                found.append(f"{path.name}:{call.lineno}")
    assert found == []


@pytest.mark.skipif(os.name == "nt", reason="the other systems, of which it is told that they are Windows")
def test_a_process_ends_as_windows_has_it(monkeypatch):
    monkeypatch.setattr(systems, "ON_WINDOWS", True)
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(threading.current_thread().name))
    try:
        thread = threading.Thread(target=systems.terminate_self)
        thread.start()
        thread.join()
        assert came == ["MainThread"]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert systems.become([sys.executable, "-c", "raise SystemExit(7)"]) == 7


def test_a_file_that_is_read_is_replaced_later(monkeypatch, tmp_path):
    new, old = tmp_path / "new", tmp_path / "old"
    new.write_bytes(b"new")
    old.write_bytes(b"old")
    refused, replace = [], Path.replace

    def busy(source, target):
        if len(refused) < 3:
            refused.append(target)
            raise PermissionError
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", busy)
    with pytest.raises(PermissionError):
        systems.replace_file(new, old)
    monkeypatch.setattr(systems, "ON_WINDOWS", True)
    systems.replace_file(new, old)
    assert (old.read_bytes(), len(refused)) == (b"new", 3)
