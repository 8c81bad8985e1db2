"""Folders that others could change are refused, wherever one is made; those that are made are the user's alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs
import pytest

import ptynb as pt
from ptynb.cluster import error_messages, runtime_dir
from ptynb.io import checkpoint_branches
from ptynb.kernels.runtime.compiler import compiled
from ptynb.private_folder import code_folder, keep_code_private, make_folder, private_folder
from tests.raising import raises

SOMEBODY = 12345


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make a folder another user's; where this user may not do that, this user becomes another one."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, SOMEBODY, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)

    return give


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_whatever_the_umask_new_folders_are_closed(tmp_path: Path) -> None:
    for make, name in ((make_folder, "a"), (private_folder, "b")):
        assert make(tmp_path / name / "c" / "d") == tmp_path / name / "c" / "d"
        assert [mode(tmp_path / path) for path in (name, f"{name}/c", f"{name}/c/d")] == [0o700] * 3
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("own", "accepted"),
    [(0o700, "both"), (0o755, "data"), (0o770, ""), (0o702, ""), (0o777, ""), (0o1777, "")],
    ids=lambda value: f"{value:o}" if isinstance(value, int) else value or "none",
)
def test_a_folder_is_refused_if_others_can_write_to_it(tmp_path: Path, own: int, accepted: str) -> None:
    path = tmp_path / "own"
    path.mkdir()
    path.chmod(own)
    for closed in (False, True):
        if accepted == "both" or (accepted == "data" and not closed):
            assert private_folder(path, closed=closed) == path
        else:
            with raises("file.not-private", path, f"mode {own:04o}", "rm -r" if closed else "chmod go-w"):
                private_folder(path, closed=closed)


@pytest.mark.parametrize(
    ("above", "accepted"),
    [(0o755, "both"), (0o1777, "both"), (0o770, "data"), (0o777, ""), (0o702, "")],
    ids=lambda value: f"{value:o}" if isinstance(value, int) else value or "none",
)
def test_a_folder_is_refused_if_others_can_replace_it(tmp_path: Path, above: int, accepted: str) -> None:
    path = tmp_path / "above" / "between" / "own"
    path.mkdir(parents=True, mode=0o700)
    path.chmod(0o700)
    os.chown(tmp_path / "above", -1, 1 if os.geteuid() == 0 else -1)  # a group that others are in
    (tmp_path / "above").chmod(above)
    (tmp_path / "link").symlink_to(path)
    for closed in (False, True):
        for way in (path, tmp_path / "link", tmp_path / "above" / "new" / "own"):
            if accepted == "both" or (accepted == "data" and not closed):
                assert private_folder(way, closed=closed) == way
            else:
                with raises("file.not-private", tmp_path / "above", f"mode {above:04o}", "chmod go-w"):
                    private_folder(way, closed=closed)


def test_another_users_folder_is_refused(tmp_path: Path, give_away: Callable[[Path], None]) -> None:
    for name in ("own", "above/own", "linked"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    (tmp_path / "above").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "linked")
    if os.geteuid() == 0:
        os.lchown(tmp_path / "link", SOMEBODY, -1)
        with raises("file.not-private", tmp_path / "link", f"user {SOMEBODY}"):
            private_folder(tmp_path / "link")
        os.chown(tmp_path / "above", SOMEBODY, -1)
        private_folder(tmp_path / "above" / "own")  # the folder of an experiment, say
        with raises("file.not-private", tmp_path / "above", f"user {SOMEBODY}"):
            private_folder(tmp_path / "above" / "own", closed=True)
    give_away(tmp_path / "own")
    for closed in (False, True):
        with raises("file.not-private", tmp_path / "own", "a folder of yours"):
            private_folder(tmp_path / "own", closed=closed)


def failures_folder(folder: Path) -> None:
    assert str(folder) in error_messages._write("text", "failure").parent.as_posix()


def checkpoint(folder: Path) -> None:
    settings = pt.Checkpointing(folder=folder)
    with pt.Reconstruction(pt.simulate(4, window=16), device="cpu", checkpointing=settings) as recon:
        list(recon.run(1))


def default_checkpoint(folder: Path) -> None:
    with pt.Reconstruction(pt.simulate(4, window=16), device="cpu") as recon:
        list(recon.run(1))


def spool(folder: Path) -> None:
    plan = pt.Plan(count=4, extent=((0, 1e-6), (0, 1e-6)))
    pt.listen(
        "stream2://127.0.0.1:9",
        plan=plan,
        positions="panda://127.0.0.1:9?y=A.B.Mean&x=A.C.Mean",
        folder=folder,
        timeout=0.1,
    )


def loop(folder: Path) -> None:
    assert compiled(lambda value: value)(1) == 1


PLACES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "cluster": (lambda folder: runtime_dir.make_folder("own"), "JUPYTER_RUNTIME_DIR", "own"),
    "failures": (failures_folder, "JUPYTER_RUNTIME_DIR", "ptynb_failures"),
    "checkpoints": (checkpoint, "", ""),
    "default checkpoints": (default_checkpoint, "PTYNB_KEPT", ""),
    "branch": (lambda folder: checkpoint_branches.copy_into(folder / "state-00001.h5", folder), "", ""),
    "spool": (spool, "", ""),
    "numba": (loop, "NUMBA_CACHE_DIR", "ptynb"),
    "torch": (lambda folder: keep_code_private("TORCHINDUCTOR_CACHE_DIR"), "TORCHINDUCTOR_CACHE_DIR", "ptynb"),
    "Triton": (lambda folder: keep_code_private("TRITON_CACHE_DIR"), "TRITON_CACHE_DIR", "ptynb"),
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_refuses_a_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, give_away: Callable[[Path], None], place: str
) -> None:
    make, variable, below = PLACES[place]
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "named"))
    folder = tmp_path / "named" / below
    make_folder(folder).chmod(0o770)
    with raises("file.not-private", folder, "mode 0770"):
        make(folder)
    folder.chmod(0o700)
    (tmp_path / "named").chmod(0o777)
    with raises("file.not-private", tmp_path / "named", "mode 0777"):
        make(folder)
    (tmp_path / "named").chmod(0o700)
    give_away(folder)
    with raises("file.not-private", "expected a folder of yours"):
        make(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("open_umask")
def test_compiled_loops_are_in_a_folder_that_only_the_user_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another user replaces an index of numba's, a pickle, and the next run executes it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new"))
    assert compiled(lambda value: value + 1)(1) == 2
    (index,) = (tmp_path / "new").rglob("*.nbi")
    assert [mode(index.parent), mode(index.parent.parent), index.parents[1].name] == [0o700, 0o700, "ptynb"]


def test_libraries_without_a_writable_folder_get_a_private_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "named"))
    keep_code_private("TRITON_CACHE_DIR")
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "named" / "ptynb")
    assert code_folder("TRITON_CACHE_DIR") == tmp_path / "named" / "ptynb", "also in processes that this one starts"
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    keep_code_private("TRITON_CACHE_DIR")
    assert mode(Path(os.environ["TRITON_CACHE_DIR"])) == 0o700
    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert code_folder("TRITON_CACHE_DIR") == tmp_path / "caches" / "ptynb"


SCRIPT = """
import ptynb as pt
from pathlib import Path

if __name__ == "__main__":
    scan = pt.simulate(patterns=9, window=16)
    kept = pt.Checkpointing(folder=Path.home() / "new" / "kept", pictures=0.01)
    with pt.Cluster(2, device="cpu") as cluster, pt.Reconstruction(scan, cluster=cluster, checkpointing=kept) as recon:
        list(recon.run(2))
        recon.save_checkpoint()
        for path in (Path.home(), Path("tmp")):
            for found in path.rglob("*"):
                print(oct(found.lstat().st_mode), found, sep=" ")
"""


def test_whatever_the_umask_a_run_leaves_nothing_that_others_can_change(tmp_path: Path) -> None:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir(mode=0o755)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER", "PTYNB", "TORCHINDUCTOR", "XDG"))
    }
    environment |= {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "NUMBA_CACHE_DIR": str(platformdirs.user_cache_path()),  # what was compiled before
    }
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = subprocess.run(
        [sys.executable, script],
        umask=0, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    modes = {Path(name): int(octal, 8) for octal, name in (line.split(" ", 1) for line in found.stdout.splitlines())}
    assert {"new", ".local", ".cache"} <= {path.relative_to(tmp_path / "home").parts[0] for path in modes}
    closed = {path for path, mode in modes.items() if stat.S_ISDIR(mode) and not mode & 0o077}
    changeable = {path for path, mode in modes.items() if mode & 0o022 and not stat.S_ISLNK(mode)}
    assert [path for path in changeable if not closed.intersection(path.parents)] == []
    assert any(path.name == "status.json" for path in modes)
    assert not any("torchinductor" in path.name for path in modes)
