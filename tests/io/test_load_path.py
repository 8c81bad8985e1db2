"""`load` stays a short path for a reader of the code: few files, and few returns to `load` itself."""

import sys
from pathlib import Path

import pytest

import ptynb as pt
from ptynb.io.load import load
from tests.architecture import named
from tests.io.layouts import cxidb

PACKAGE = Path(pt.__file__).parent
MOST_FILES, MOST_RETURNS = 10, 3


def written(kind, folder):
    scan = pt.simulate(patterns=6, window=32, seed=3)
    if kind == "scan.cxi":
        return cxidb(folder / kind, scan)
    pt.save_scan(scan, folder / kind)
    return folder / kind


@pytest.mark.parametrize("kind", ["scan.cxi", "scan.h5"])
def test_load_passes_few_files_and_comes_back_rarely(tmp_path, kind):
    path = written(kind, tmp_path)
    load(path)
    files, returned = set(), []

    def note(frame, event, _):
        code = frame.f_code
        if not code.co_filename.startswith(str(PACKAGE)):
            return
        if event == "call":
            files.add(str(Path(code.co_filename).relative_to(PACKAGE)))
        elif event == "return" and frame.f_back is not None and frame.f_back.f_code is load.__wrapped__.__code__:
            returned.append(code.co_qualname)

    sys.setprofile(note)
    try:
        load(path)
    finally:
        sys.setprofile(None)
    files -= {"__init__.py", "exceptions.py"}  # the latter for its checks of numbers, which say what is wrong
    assert len(files) <= MOST_FILES, sorted(files)
    assert len(returned) <= MOST_RETURNS, returned
    records = {"data", "settings"}
    followed = {file.split("/")[0] if file.split("/")[0] in records else file for file in files}
    assert not followed - named("The way of a pattern")
