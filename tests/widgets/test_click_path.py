"""A learning rate that the user changes reaches the session through few files.

Counted are the files of `ptynb.widgets` and `ptynb.app` with a function that is called from the change of the field's
value to the assignment of `recon.settings`: in the thread of the change until the action is queued, and in the thread
of the actions until the assignment. Not counted are the settings, which validate themselves as they are made, the
drawing that follows after the action was queued, and the elements, which call their observers and tell pages.
"""

import sys
import threading
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.polling import wait_until
from ptynb.session.reconstruction import Reconstruction
from ptynb.widgets.actions import Actions
from ptynb.widgets.form import SettingsForm
from tests.architecture import named

PACKAGE = Path(pt.__file__).parent
ELEMENTS = {"widgets/element_tree.py"}
MOST_FILES = 5


class ClickPath:
    """The files through which an event passes, recorded in all threads started with `threading.setprofile`."""

    def __init__(self, threads):
        self.files, self.arrived = set(), threading.Event()
        self._threads, self._clicking, self._recording = threads, None, False

    def __call__(self, frame, event, _):
        thread = threading.current_thread()
        if not self._recording or event != "call":
            return
        if frame.f_code is Reconstruction.settings.fset.__code__:
            self._recording = False
            self.arrived.set()
        elif thread is self._clicking or thread.name in self._threads:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                self.files.add(path.relative_to(PACKAGE).as_posix())
            if frame.f_code is Actions.put.__code__:
                self._clicking = None

    def of(self, change):
        self._clicking, self._recording = threading.current_thread(), True
        sys.setprofile(self)
        change()
        sys.setprofile(None)
        assert self.arrived.wait(10)
        return {name for name in self.files if name.startswith(("widgets/", "app/"))} - ELEMENTS


@pytest.fixture
def recon():
    with pt.Reconstruction(pt.simulate(patterns=16, window=32), device="cpu", checkpointing=None) as made:
        yield made


@pytest.fixture
def passed():
    path = ClickPath(("ptynb live actions", "ptynb settings form"))
    threading.setprofile(path)
    yield path
    threading.setprofile(None)


def changed(recon):
    return recon.settings.probe.learning_rate == 0.0123


def test_a_learning_rate_in_the_form_passes_five_files(recon, passed):
    form = SettingsForm(live=True, recon=recon)
    try:
        files = passed.of(lambda: form.receive_command("enter", {"name": "probe.learning_rate", "value": "0.0123"}))
        form.settle()
    finally:
        form.close()
    assert changed(recon)
    assert "widgets/form/form_view.py" in files
    assert len(files) <= MOST_FILES, sorted(files)


def test_a_learning_rate_in_the_live_view_passes_five_files(recon, passed):
    view = pt.live(recon)
    try:
        files = passed.of(lambda: view.receive_command("set_rate", {"part": "probe", "rate": 0.0123}))
        assert wait_until(lambda: changed(recon), 10)
    finally:
        view.close()
    assert "widgets/live/live_view.py" in files
    assert len(files) <= MOST_FILES, sorted(files)
    assert not files - named("The way of a click")
