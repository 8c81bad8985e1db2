"""What the pages of the site tell a reader to type works: Python is run on small scans, commands are parsed.

The blocks of a page are run one after the other in a folder that has the files which they name, with few epochs. A
block after a comment "needs ..." cannot be run here; its calls are compared with the signatures.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.cli.main import _parser
from ptynb.settings.cluster_options import PbsCluster
from ptynb.settings.run_files.run_file import read_run
from tests.import_graph import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(
    [DOCS / "start.md", *(DOCS / "howto").glob("*.md"), *(DOCS / "migration").glob("*.md")],
    key=lambda page: page.as_posix(),
)
BLOCK = re.compile(r"(<!-- needs [^\n]*-->\n)?```(python|bash|yaml)\n(.*?)```", re.DOTALL)
VIEWS = "compare", "inspect", "live"
FEW = 2
"""Epochs of a run here."""
SLOW = ("howto/settings",)
"""Pages with studies and trials, some twenty seconds on an idle core."""


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix("").as_posix()


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    """(what a block needs, its text) of the blocks in a language."""
    return [(needs, text) for needs, kind, text in BLOCK.findall(page.read_text()) if kind == language]


def with_marks(pages: Iterable[Path]) -> list[Any]:
    slow = pytest.mark.system("notebooks"), pytest.mark.timeout(900)
    return [pytest.param(page, id=name_of(page), marks=slow if name_of(page) in SLOW else ()) for page in pages]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files that the pages name."""
    folder = tmp_path_factory.mktemp("files")
    scan = pt.simulate(patterns=64, window=32, seed=1, photons=1e5)
    metres, counts = scan.positions * scan.pixel_size, scan.counts(0, len(scan)).astype(np.uint32)
    for name in ("scan.h5", "scans/a.h5", "scans/b.h5"):
        (folder / name).parent.mkdir(exist_ok=True)
        pt.save_scan(scan, folder / name)
    with pt.Reconstruction(scan, pt.Settings(), device="cpu", checkpointing=None) as recon:
        recon.start(4)
        recon.wait()
        recon.save(folder / "scan.result.h5")
        (folder / "results").mkdir()
        recon.save(folder / "results" / "a.result.h5")
    np.save(folder / "patterns.npy", counts)
    np.savetxt(folder / "positions.txt", metres)
    with h5py.File(folder / "beamline.h5", "w") as file:
        file["measurement/frames"], file["measurement/positions"] = counts, metres * 1e6
        file["measurement/positions"].attrs["units"] = "um"
        file["measurement/good"] = np.ones(counts.shape[1:], bool)
        file["measurement/energy"] = scan.geometry.energy / 1e3
        file["measurement/energy"].attrs["units"] = "keV"
    with h5py.File(folder / "turned.h5", "w") as file:
        file["camera/images"] = np.moveaxis(counts, 0, -1)
        file["motors/y"], file["motors/x"] = metres.T * 1e6
    np.save(folder / "stem.npy", of_electrons())
    shadows = pt.NearField(
        wavelength=7.3e-11, focus_to_sample=2e-3, sample_to_detector=0.998, detector_pixel=(55e-6, 55e-6)
    )
    probe = np.exp(2j * np.random.default_rng(0).random((1, 32, 32))) * 100
    holograms = pt.simulate_diffraction(scan.ground_truth.object, probe, scan.positions, geometry=shadows, guess=probe)
    np.savez(
        folder / "holograms.npz",
        patterns=holograms.counts(0, len(holograms)).astype(np.uint32),
        positions=holograms.positions * holograms.pixel_size,
    )
    return folder


def of_electrons() -> np.ndarray[Any, Any]:
    """Patterns (144, 64, 64) of a weak object, 15 nm before the focus, as `howto/electrons.md` describes them."""
    wavelength = pt.electrons.electron_wavelength(300e3)
    pixel = wavelength / (64 * 1e-3)
    rows, columns = np.mgrid[:12, :12].reshape(2, -1) * 0.4e-10 / pixel + 4
    probe = pt.illumination.electron_probe((64, 64), (pixel, pixel), wavelength, 0.0214, {"C10": -15e-9})
    probe *= np.sqrt(1e5 / (np.abs(probe) ** 2).sum())
    phase = np.random.default_rng(0).standard_normal((96, 96))
    scan = pt.simulate_diffraction(np.exp(0.2j * phase), probe[None], np.stack([rows, columns], -1))
    return scan.counts(0, len(scan)).astype(np.uint32)


@pytest.fixture
def cluster() -> Iterator[pt.Cluster]:
    with pt.Cluster(1, device="cpu", threads=1) as started:
        yield started


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the views that are made meanwhile."""
    made: list[Any] = []

    def kept(make: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            made.append(make(*arguments, **options))
            return made[-1]

        return call

    for view in VIEWS:
        monkeypatch.setattr(pt, view, kept(getattr(pt, view)))
    yield
    for view in made:
        view.close()


@pytest.mark.usefixtures("closing")
@pytest.mark.parametrize("page", with_marks(page for page in PAGES if blocks(page, "python")))
def test_python_runs(
    page: Path, files: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in files.rglob("*"):
        if file.is_file():
            (tmp_path / file.relative_to(files)).parent.mkdir(exist_ok=True)
            (tmp_path / file.relative_to(files)).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for number, (needs, text) in enumerate(blocks(page, "python")):
        tree = ast.parse(text)
        check_calls(tree)
        if needs:
            continue
        if "pt.Cluster()" in text:
            running = request.getfixturevalue("cluster")
            monkeypatch.setattr(pt, "Cluster", lambda running=running: running)
        text = re.sub(r"\bepochs=\d+", f"epochs={FEW}", text)
        text = re.sub(r"\bseconds=\d+", "seconds=1", text)
        text = re.sub(r"\.run\(\d+\)", f".run({FEW})", text)
        exec(compile(text, f"{name_of(page)}, block {number + 1}", "exec"), names)


def check_calls(tree: ast.AST) -> None:
    """Raises TypeError for a call of a public name that does not go with its signature."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and re.fullmatch(r"pt(\.\w+)+", ast.unparse(node.func)):
            function: Any = pt
            for part in ast.unparse(node.func).split(".")[1:]:
                function = getattr(function, part)
            keywords = {one.arg: None for one in node.keywords if one.arg is not None}
            if "launcher" in keywords:
                assert {*keywords} - {"launcher"} <= {*PbsCluster.model_fields}
            else:
                inspect.signature(function).bind(*node.args, **keywords)


def commands(page: Path) -> Iterator[list[str]]:
    """The words after `ptynb` in the shell lines of a page."""
    for _, text in blocks(page, "bash"):
        for line in text.replace("\\\n", " ").splitlines():
            for found in re.finditer(r"(?:^|[\s;&|/])ptynb ([^;&|>#]+)", line.partition(" #")[0]):
                yield shlex.split(found[1])


@pytest.mark.parametrize("page", [page for page in PAGES if [*commands(page)]], ids=name_of)
def test_commands_are_parsed(page: Path) -> None:
    for words in commands(page):
        _parser().parse_args(words)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=name_of)
def test_run_files_are_valid(page: Path, files: Path, tmp_path: Path) -> None:
    for _, text in blocks(page, "yaml"):
        if "init_params" not in text:  # of another package
            (tmp_path / "run.yaml").write_text(text)
            read_run(tmp_path / "run.yaml", {})
