"""Films of runs: what is in their frames, from checkpoints and from thumbnails."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

import ptynb as pt
from ptynb.analysis.result_comparison import illuminated
from ptynb.io.checkpoint_file import load_state, save_state
from ptynb.report.film import film_frames
from ptynb.report.film.film_source import film_source
from tests.raising import raises
from tests.report.results import result


@pytest.fixture(scope="module")
def recon(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of six epochs with a branch at the fourth, and checkpoints of epochs 2, 4 and 6 of each."""
    scan = pt.simulate(patterns=36, window=32, step=5, seed=4)
    folder = tmp_path_factory.mktemp("kept")
    with pt.Reconstruction(scan, device="cpu", checkpointing=pt.Checkpointing(folder=folder, epochs=None)) as made:
        for _ in range(3):
            for _ in made.run(2):
                pass
            made.save_checkpoint()
        made.branch("trial", 4)
        for _ in made.run(2):
            pass
        made.save_checkpoint()
        yield made


def frames(path: Path) -> list[np.ndarray]:
    if path.suffix == ".gif":
        with Image.open(path) as file:
            return [np.asarray(one.convert("RGB")).astype(int) for one in ImageSequence.Iterator(file)]
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24").astype(int) for frame in file.decode(video=0)]


def test_a_film_of_a_reconstruction_has_the_checkpoints_that_lead_to_its_state(recon: Any, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    written = pt.film(recon, tmp_path / "run.mp4", rate=5, progress=lambda done, total: steps.append((done, total)))
    assert written == tmp_path / "run.mp4"
    assert steps == [(number, 6) for number in range(1, 7)]
    assert len(frames(written)) == 3
    with av.open(str(written)) as file:
        assert file.streams.video[0].average_rate == 5
        assert file.metadata["title"] == "simulated"
    states = [read() for read in film_source(recon).states]
    assert [state.epoch for state in states] == [2, 4, 6]
    result = recon.result
    assert states[-1].loss == result.epochs[-1].loss
    np.testing.assert_array_equal(states[-1].object, result.projection[illuminated(result)])
    assert states[0].object.shape == states[-1].object.shape
    folder = recon.checkpoints[0].path.parent
    assert len(film_source(folder).states) == 3, "the branch that was used last"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.mp4"]


def test_contrast_is_that_of_all_epochs_and_equal_values_have_equal_colours(tmp_path: Path) -> None:
    """Three thumbnails of a flat object whose amplitude grows: each frame has the grey of its value."""
    kept = [
        dataclasses.replace(result().history[0], epoch=epoch, object=np.full((48, 48), value, np.complex64))
        for epoch, value in ((1, 0.5), (2, 1.0), (5, 1.5))
    ]
    made = dataclasses.replace(result(), history=tuple(reversed(kept)))
    for suffix, off in ((".gif", 8), (".mp4", 4)):
        shown = frames(pt.film(made, tmp_path / f"run{suffix}", quantities=["amplitude"]))
        greys = [np.median(frame[80:200, 60:200], axis=(0, 1)) for frame in shown]
        np.testing.assert_allclose(greys, [[0] * 3, [128] * 3, [255] * 3], atol=off)
        assert shown[0].shape[0] % 2 == shown[0].shape[1] % 2 == 0
    with Image.open(tmp_path / "run.gif") as file:
        assert (file.n_frames, file.info["duration"], file.info["loop"]) == (3, 250, 0)


def test_frames_say_epoch_loss_limits_and_scale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    text = film_frames.ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        film_frames.ImageDraw.ImageDraw,
        "text",
        lambda self, at, words, *a, **o: (said.append(words), text(self, at, words, *a, **o)),
    )
    pt.film(result(), tmp_path / "run.gif", quantities=["phase", "probe"])
    assert {"epoch 2   loss 0.25", "epoch 6   loss 0.08333", "star-17"} <= {*said}
    # thumbnails of 48 pixels of 2 x 20 nm are 1.92 µm wide, the probe 24 of 20 nm
    assert {"500 nm", "100 nm", "Phase of the object [rad]", "Probe"} <= {*said}
    assert not {"Amplitude of the object"} & {*said}


def test_the_probe_keeps_the_phase_that_it_has_at_the_end_and_its_lightness(tmp_path: Path) -> None:
    turned = [
        dataclasses.replace(result().history[0], epoch=epoch, probe=result().history[0].probe * factor)
        for epoch, factor in ((2, np.exp(1j)), (6, np.exp(2.5j)), (8, 0.5 * np.exp(2.5j)))
    ]
    made = dataclasses.replace(result(), history=tuple(turned))
    shown = [frame[60:250, 20:240] for frame in frames(pt.film(made, tmp_path / "run.gif", quantities=["probe"]))]
    np.testing.assert_allclose(shown[0], shown[1], atol=12)
    assert shown[2].max() < 0.6 * shown[1].max()


def test_a_film_that_is_cancelled_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "run.gif"
    path.write_bytes(b"before")

    def cancel(done: int, total: int) -> None:
        if done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pt.film(result(), path, progress=cancel)
    assert path.read_bytes() == b"before"
    assert len([*tmp_path.iterdir()]) == 1


def test_objects_of_other_pixels_show_the_same_place(recon: Any, tmp_path: Path) -> None:
    """A checkpoint with pixels of half the size, as of a later stage, has the same area of the last one."""
    states = [one.path for one in recon.checkpoints if one.branch == "main"]
    coarse, fine = (load_state(path) for path in states[-2:])
    object = fine.model["object.parts"].repeat(2, 2).repeat(2, 3)
    placement = {**fine.placement}
    placement["positions"] = placement["positions"] * 2
    placement["origin"], placement["pixel_size"] = placement["origin"] * 2, placement["pixel_size"] / 2
    probe = np.zeros((1, 64, 64, 2), np.float32)
    fine = dataclasses.replace(
        fine, model={**fine.model, "object.parts": object, "probe.parts": probe}, placement=placement
    )
    for state in (coarse, fine):
        save_state(dataclasses.replace(state, run="other"), tmp_path / f"state-{state.epoch:05d}.h5")
    one, other = (read() for read in film_source(tmp_path).states)
    assert abs(np.subtract(np.multiply(one.object.shape, 2), other.object.shape)).max() <= 2
    written = pt.film(tmp_path, tmp_path / "run.gif", quantities=["amplitude"])
    first, last = (frame[70:250, 30:240].mean(-1) for frame in frames(written))
    assert np.corrcoef(first.ravel(), last.ravel())[0, 1] > 0.7


def test_what_makes_no_film_says_why(recon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("argument.invalid-value", "run.avi", "'.avi'", ".gif", ".mp4"):
        pt.film(result(), tmp_path / "run.avi")
    with raises("film.too-few-epochs", "thumbnails of 1 epoch;"):
        pt.film(dataclasses.replace(result(), history=result().history[:1]), tmp_path / "run.gif")
    with raises("film.too-few-epochs", "thumbnails of 0 epochs;"):
        pt.film(dataclasses.replace(result(), history=()), tmp_path / "run.gif")
    with raises("checkpoint.not-found", str(tmp_path)):
        pt.film(tmp_path, tmp_path / "run.gif")
    with raises("argument.invalid-type", "list"):
        pt.film([result()], tmp_path / "run.gif")
    with raises("argument.invalid-value", "quantities", "'loss'"):
        pt.film(result(), tmp_path / "run.gif", quantities=["loss"])
    for rate, suffix in itertools.product((0.0, 200.0), ("gif", "mp4")):
        with raises("argument.invalid-value", "rate", rate):
            pt.film(result(), tmp_path / f"run.{suffix}", rate=rate)
    with raises("file.not-writable", "absent"):
        pt.film(result(), tmp_path / "absent" / "run.gif")
    lone = tmp_path / "lone"
    save_state(load_state(recon.checkpoints[0].path), lone / "state-00002.h5")
    with raises("film.too-few-epochs", "checkpoints of 1 epoch;", "max_to_keep"):
        pt.film(lone, tmp_path / "run.gif")
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "av":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with raises("package.not-installed", "pip install 'ptynb[film]', or write a .gif"):
        pt.film(result(), tmp_path / "run.mp4")
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".gif", ".mp4", ".part")]
    assert pt.film(result(), tmp_path / "run.gif").exists(), "what the message says"
