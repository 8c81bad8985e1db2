import pytest

from ptynb.exceptions import FileError
from ptynb.io.run_file_scan import scan_of
from ptynb.io.scan_file import save_scan
from ptynb.settings.run_files.run_file import RunFile
from ptynb.simulation.simulated_scan import simulate
from tests.io.initial_guess import problem as problems


@pytest.fixture
def plan(tmp_path):
    problem = problems.problem(window=(34, 34), pixel=(4e-8, 4e-8))
    save_scan(problem.scan, tmp_path / "scan.h5")
    problems.write_ptyrad(tmp_path / "start.hdf5", problem)
    return RunFile(scan=tmp_path / "scan.h5", epochs=1, result=tmp_path / "r.h5", start=tmp_path / "start.hdf5")


def test_a_run_begins_with_the_start_that_its_file_names(plan):
    assert scan_of(plan).object is not None
    assert scan_of(plan.model_copy(update={"start": None})).object is None


def test_a_start_that_is_a_scan_is_refused(plan, tmp_path):
    simulate(4, window=16, path=tmp_path / "other.h5")
    with pytest.raises(FileError, match=r"other\.h5 is a ptynb scan, not a result; open it with load"):
        scan_of(plan.model_copy(update={"start": tmp_path / "other.h5"}))
