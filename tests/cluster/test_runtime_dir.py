"""Folders of clusters: commands that their files name are run by `ptynb stop`, so only one's own count."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ptynb.cluster import runtime_dir
from ptynb.cluster.lifetime import orphans


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    for name in ("ptynb-00000001", "ptynb-00000002"):
        runtime_dir.write(runtime_dir.make_folder(name), "cluster.json", {"name": name})
    return tmp_path


def names() -> list[list[str]]:
    """Clusters that are found in three ways; `orphans` also finds processes of others that run on the machine."""
    return [
        [path.name for path in runtime_dir.known_clusters()],
        [path.name for path in runtime_dir.all_folders()],
        [one.name for one in orphans.find() if one.name.startswith("ptynb-0000000")],
    ]


def test_own_folders_are_found(runtime: Path) -> None:
    assert names() == [["ptynb-00000001", "ptynb-00000002"]] * 3


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_what_others_can_write_to_is_passed_over(runtime: Path, mode: int) -> None:
    (runtime / "ptynb-00000001").chmod(mode)
    assert names() == [["ptynb-00000002"]] * 3


def test_what_belongs_to_others_is_passed_over(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert [path.name for path in runtime_dir.known_clusters()] == []
    assert [path.name for path in runtime_dir.all_folders()] == []


def test_a_link_to_a_folder_is_passed_over(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    runtime_dir.write(elsewhere, "cluster.json", {"name": "x"})
    (runtime / "ptynb-00000003").symlink_to(elsewhere)
    assert names() == [["ptynb-00000001", "ptynb-00000002"]] * 3
