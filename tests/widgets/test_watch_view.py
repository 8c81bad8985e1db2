"""A folder that a run shows itself in: as a widget, without a browser, and as a page, in a real one."""

import signal
import socket
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from playwright.sync_api import expect

import ptynb as pt
from ptynb.cli.main import main
from ptynb.engine.rendering import make_watched
from tests.io.test_status_file import put
from tests.waiting import until
from tests.widgets.browser_model import violations
from tests.widgets.conftest import screenshot
from tests.widgets.test_live import names, rows, steady

RUN_ANYWAY = """
() => {
  const script = document.createElement("script");
  script.textContent = "window.hacked = 1";
  document.body.append(script);
}
"""
HOSTILE = "<img src=x onerror=\"document.title='HACKED'\"><script>document.title='HACKED'</script>"


def run(folder, epoch, **changes):
    """What a run would show after this epoch."""
    waves = np.exp(1j * np.add.outer(np.arange(64), np.arange(64)) * 0.05 * epoch)
    made = make_watched(waves, waves[None], (slice(None), slice(None)), epoch, 0)
    folder.mkdir(exist_ok=True)
    for name in ("amplitude", "phase", "probe"):
        (folder / f"{name}.jpg").write_bytes(made.files[name])
    losses = [1 / number for number in range(1, epoch + 1)]
    picture = {"epoch": epoch, "update": 0, "limits": made.limits, "powers": made.powers}
    put(folder, epoch=epoch, losses=losses, seconds=[0.5] * epoch, picture=picture, **changes)
    return made


def shown(view, name):
    return next(picture for picture in view.pictures.frame["pictures"] if picture["name"] == name)


@pytest.fixture
def view(tmp_path):
    made = pt.watch(tmp_path / "kept")
    yield made
    made.close()


def test_the_view_waits_for_the_folder_and_follows_it(tmp_path, view):
    assert "waiting for a run to show itself" in view.problem
    made = run(tmp_path / "kept", 3)
    until(lambda: names(view.pictures) == ["amplitude", "phase", "probe"])
    assert shown(view, "phase")["image"] == made.files["phase"]
    assert shown(view, "phase")["shape"] == [64, 64]
    assert shown(view, "probe")["note"] == "power 100.0%"
    assert (view.problem, view.state) == ("", "running")
    assert rows(view, "epochs", 6)[:, :3].tolist() == [[1, 1, 0.5], [2, 0.5, 0.5], [3, 1 / 3, 0.5]]
    assert (view.marks, view.changes) == ([3], [["3", "probe.learning_rate"]])
    for words in ("epoch 3 of 200", "loss 0.33333", "2 engines on CPU", "last written just now"):
        assert any(words in fact for fact in view.facts)
    made = run(tmp_path / "kept", 4)
    until(lambda: shown(view, "phase")["image"] == made.files["phase"])
    time.sleep(0.6)  # pictures and status are files of their own
    sent_so_far = view.pictures.frame["number"]
    steady(lambda: view.pictures.frame["number"] == sent_so_far, seconds=1.0)


def test_half_a_folder_shows_what_is_whole(tmp_path, view):
    put(tmp_path / "kept", state="paused", losses=[None, 0.5], seconds=[])
    until(lambda: view.state == "paused")
    assert view.pictures.frame["number"] == 0
    np.testing.assert_array_equal(rows(view, "epochs", 6)[:, :3], [[1, np.nan, np.nan], [2, 0.5, np.nan]])
    (tmp_path / "kept" / "status.json").write_text("{")
    steady(lambda: view.state == "paused" and view.problem == "", seconds=1.0)


def test_a_look_that_fails_is_told_and_the_next_one_goes_on(tmp_path, view, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("ptynb.io.status_file.Folder.look", lambda folder: 1 / 0)
        until(lambda: view.message == "ZeroDivisionError: division by zero")
    run(tmp_path / "kept", 3)
    until(lambda: view.pictures.frame["number"] == 1 and view.message == "")


@pytest.fixture
def command(tmp_path):
    """`ptynb watch` of a folder."""
    program = (
        "import sys; from ptynb.cli.main import main; status = main(sys.argv[1:]);"
        "print('LOADED', sorted({'torch', 'ipyparallel'} & set(sys.modules))); sys.exit(status)"
    )
    arguments = [sys.executable, "-c", program, "watch", str(tmp_path / "kept"), "--no-open"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def address(command):
    return command.stdout.readline().split(" at ")[1].split()[0]


def test_the_page_follows_a_run_in_a_browser(tmp_path, address, page):
    asked, told = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: told.append(message.text))
    page.goto(address)
    view = page.locator(".ptynb-watch")
    expect(view).to_contain_text("waiting for a run to show itself", timeout=30_000)
    run(tmp_path / "kept", 3)
    for words in ("epoch 3 of 200", "running", "last written just now"):
        expect(view).to_contain_text(words, timeout=10_000)
    run(tmp_path / "kept", 12, state="paused")
    for words in ("epoch 12 of 200", "paused", "probe.learning_rate"):
        expect(view).to_contain_text(words, timeout=10_000)
    screenshot(page, "watch-page")
    root = address.partition("?")[0]
    assert all(url.startswith((root, root.replace("http", "ws"), "blob:", "data:")) for url in asked)
    assert told == []


def test_hostile_text_does_nothing_on_the_page(tmp_path, address, page):
    fired = []
    page.on("dialog", lambda dialog: (fired.append(dialog.message), dialog.dismiss()))
    run(tmp_path / "kept", 3, name=HOSTILE, scan=HOSTILE, engines=HOSTILE, kept=HOSTILE, changes=[[1, HOSTILE]])
    (tmp_path / "kept" / "phase.jpg").write_bytes(b"\xff\xd8<svg onload=alert(1)>\xff\xd9")
    page.goto(address)
    expect(page.get_by_role("cell", name="<img")).to_have_text(HOSTILE, timeout=30_000)
    expect(page.locator(".ptynb-watch")).to_contain_text(f"checkpoint: {HOSTILE}")
    time.sleep(1.0)
    assert page.title() == "kept - ptynb"
    assert fired == []
    assert violations(page, ".ptynb-watch") == []
    page.evaluate(RUN_ANYWAY)
    assert page.evaluate("window.hacked") is None  # the policy holds where escaping would fail


def test_the_command_ends_by_ctrl_c_and_loads_nothing_heavy(command, address):
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert browser.open(address, timeout=20).status == 200
    command.send_signal(signal.SIGINT)
    assert command.communicate(timeout=60)[0].strip() == "LOADED []"
    assert command.returncode == 0


@pytest.mark.parametrize("port", ["taken", "70000"])
def test_a_port_that_cannot_be_used_is_told(tmp_path, capsys, port):
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = str(other.getsockname()[1]) if port == "taken" else port
        assert main(["watch", str(tmp_path), "--no-open", "--port", number]) == 64
    assert f"Port {number} cannot be used" in capsys.readouterr().err
