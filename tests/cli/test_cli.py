import os
import re
import subprocess
import sys
import time

import nbformat
import numpy as np
import psutil
import pytest
from PIL import Image

import ptynb as pt
from ptynb.cli import main
from ptynb.cluster import doctor
from ptynb.cluster.doctor import Examination
from ptynb.data.arrivals import ArrivalIndex

NOTEBOOKS = sorted(main.notebooks_folder().glob("*.ipynb"))


def command(*arguments):
    """The command in a process of its own, as a user runs it."""
    whole = [sys.executable, "-m", "ptynb.cli.main", *map(str, arguments)]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=240)


def one_line(text):
    return " ".join(text.split())


def loaded_by(program):
    program += "\nimport sys; print('LOADED', *sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(answer.stdout.split("LOADED", 1)[1].split())


def test_help_names_the_commands_and_loads_nothing_heavy():
    answer = command("--help")
    assert answer.returncode == 0
    for name in ("demo", "lab", "doctor", "scaling", "advise", "estimate", "run", "watch", "ps", "stop"):
        assert name in answer.stdout
    program = "from ptynb.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert not loaded_by(program) & {"torch", "numpy", "matplotlib", "ipywidgets", "ipyparallel"}


def test_lab_without_opening_loads_nothing_heavy(tmp_path):
    program = f"from ptynb.cli.main import main; main(['lab', '--no-open', '--folder', {str(tmp_path / 'x')!r}])"
    assert not loaded_by(program) & {"torch", "numpy", "matplotlib", "ipywidgets", "ipyparallel"}


def test_lab_copies_and_never_overwrites(tmp_path, capsys):
    folder = tmp_path / "mine"
    assert main.main(["lab", "--no-open", "--folder", str(folder)]) == 0
    assert [path.name for path in sorted(folder.iterdir())] == [path.name for path in NOTEBOOKS]
    for path in NOTEBOOKS:
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert f"{len(NOTEBOOKS)} new, 0 unchanged" in one_line(capsys.readouterr().out)
    (folder / NOTEBOOKS[0].name).write_text("my work")
    assert main.main(["lab", "--no-open", "--folder", str(folder)]) == 0
    assert (folder / NOTEBOOKS[0].name).read_text() == "my work"
    assert f"0 new, {len(NOTEBOOKS)} unchanged" in one_line(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["a long name " * 8, "data [2024]", "odd[/name]"], ids=["long", "brackets", "closing"])
def test_lab_says_where_the_notebooks_are_in_one_piece(tmp_path, capsys, name):
    folder = tmp_path / name.strip()
    assert main.main(["lab", "--no-open", "--folder", str(folder)]) == 0
    assert f"Notebooks in {folder.resolve()}: " in capsys.readouterr().out


def test_lab_opens_jupyter_on_the_copy_and_passes_arguments_and_status_on(tmp_path):
    stand_in = tmp_path / "modules"
    stand_in.mkdir()
    (stand_in / "jupyter.py").write_text("import sys; print('CALLED', *sys.argv[1:], sep='|'); sys.exit(7)")
    path = os.pathsep.join([str(stand_in), *filter(None, [os.environ.get("PYTHONPATH")])])
    whole = [sys.executable, "-m", "ptynb.cli.main", "lab", "--folder", str(tmp_path / "x"), "--", "--port", "9999"]
    environment = {**os.environ, "PYTHONPATH": path}
    answer = subprocess.run(whole, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert answer.returncode == 7
    assert f"CALLED|lab|--ServerApp.root_dir={(tmp_path / 'x').resolve()}|--port|9999\n" in answer.stdout


def test_the_doctor_finds_nothing_wrong_here_and_says_what_is_where_something_is():
    well = command("doctor", "--device", "cpu")
    assert (well.returncode, well.stderr) == (0, "")
    assert "No problem found." in well.stdout
    assert re.search(r"^Cores +\d+ usable of \d+", well.stdout, re.M)
    ill = command("doctor", "--device", "cpu", "--engines", "1000")
    assert (ill.returncode, ill.stderr) == (69, "")
    assert "PROBLEM: 1000 CPU engines were requested" in one_line(ill.stdout)
    assert "No problem found" not in ill.stdout


def test_what_cannot_be_done_is_one_sentence_and_a_status(tmp_path):
    answer = command("demo", "--device", "cpu", "--engines", "1000", "--folder", tmp_path)
    assert answer.returncode == 64
    assert re.fullmatch(
        r"ptynb: 1000 CPU engines were requested on \d+ cores; expected at most \d+\.", one_line(answer.stderr)
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError("a [/b] c"), RuntimeError("a [/b] c"), OSError("a [/b] c")])
def test_an_error_is_printed_as_it_is(monkeypatch, capsys, error):
    def fails(chosen):
        raise error

    monkeypatch.setattr(main, "_doctor", fails)
    assert main.main(["doctor"]) == 1
    assert capsys.readouterr().err == "ptynb: a [/b] c\n"


def test_a_path_in_a_message_is_in_one_piece(monkeypatch, tmp_path, capsys):
    path = tmp_path / "a long name" / ("of a scan " * 9 + "h5")
    assert main.main(["info", str(path)]) == 66
    assert str(path) in capsys.readouterr().err
    told = Examination((), (f"{path} is not writable.",), (f"{path} is slow.",))
    monkeypatch.setattr(doctor, "examine", lambda engines, device: told)
    assert main.main(["doctor"]) == 69
    out = capsys.readouterr().out
    assert f"NOTE: {path} is slow.\n" in out
    assert f"PROBLEM: {path} is not writable.\n" in out


def test_an_interrupt_is_no_traceback(monkeypatch, capsys):
    def interrupted(chosen):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "_doctor", interrupted)
    assert main.main(["doctor"]) == 130
    assert capsys.readouterr().err == "ptynb: interrupted\n"


@pytest.mark.parametrize(
    "arguments", [["reconstruct"], [], ["demo", "--engines", "two"], ["doctor", "--device", "tpu"]]
)
def test_a_command_line_that_is_not_understood_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: ptynb")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_valid_and_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    for cell in code:
        assert cell.outputs == []
        assert cell.execution_count is None
        compile(cell.source, path.name, "exec")


@pytest.mark.system("notebooks")
def test_the_demo_reconstructs_on_a_cluster_and_leaves_result_figure_and_report(tmp_path):
    folder = tmp_path / "demo [1]"
    answer = command("demo", "--engines", 2, "--device", "cpu", "--epochs", 40, "--folder", folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    result = pt.load_result(folder / "result.h5")
    assert [epoch.number for epoch in result.epochs] == list(range(1, 41))
    assert result.losses[-1] < 0.2 * result.losses[0]
    assert np.isfinite(result.object).all()
    assert result.probe.shape == (2, 96, 96)
    with Image.open(folder / "figure.png") as image:
        assert image.size == (int(4 * 3.6 * 130), 7 * 130)
        assert len(np.unique(np.asarray(image))) > 50
    printed = one_line(answer.stdout)
    error = float(re.search(r"error against the ground truth ([\d.]+),", printed)[1])
    assert 0 < error < 0.03
    assert f"Loss {result.losses[-1]:.5f}, R-factor {result.r_factor:.4f}" in printed
    assert f"{folder / 'result.h5'}" in answer.stdout
    assert f"{folder / 'figure.png'}" in answer.stdout
    assert f"{folder / 'report.html'}" in answer.stdout
    assert f"{result.r_factor:.4g}" in (folder / "report.html").read_text()
    assert sorted(os.listdir(folder)) == ["figure.png", "report.html", "result.h5"]


@pytest.mark.system("notebooks")
def test_the_live_demo_reconstructs_what_an_emulated_detector_sends_and_ends_all_it_started(tmp_path):
    folder = tmp_path / "demo [1]"
    answer = command(
        "demo", "--live", "--rate", 150, "--engines", 1, "--device", "cpu", "--epochs", 6, "--folder", folder
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    [received] = folder.glob("scan-*")
    assert sorted(os.listdir(folder)) == ["figure.png", "report.html", "result.h5", received.name, "simulated.h5"]
    result, scan = pt.load_result(folder / "result.h5"), pt.load(received / "scan.h5")
    record = result.admissions
    assert len(result.epochs) == record.epochs + 6
    assert 500 < len(record.patterns) == len(scan) < 529
    assert result.losses[-1] < result.losses[0]
    assert f"{len(scan)} of 529 patterns came, {len(scan)} used, {529 - len(scan)} missing" in answer.stdout
    assert re.search(rf"epoch \d+/{len(result.epochs)} loss", answer.stdout)
    for path in (received / "scan.h5", folder / "report.html"):
        assert f" {path}\n" in answer.stdout
    assert "Patterns that came during the run" in (folder / "report.html").read_text()
    index = ArrivalIndex.open(received / "arrivals.index")
    assert index.summary().duplicates > 0
    for process in psutil.process_iter(["cmdline"]):
        assert str(folder / "simulated.h5") not in (process.info["cmdline"] or [])
    until = time.monotonic() + 20
    while psutil.pid_exists(index.receiver):
        assert time.monotonic() < until
        time.sleep(0.05)
    wrong = command("demo", "--rate", 5)
    assert (wrong.returncode, "--live" in wrong.stderr) == (64, True)
