import http.client
import json
import socket
import subprocess
import sys

import pytest

from ptynb.cli.status_page.status_server import Server
from tests.io.test_status_file import JPEG, put
from tests.raising import raises


@pytest.fixture
def server(tmp_path):
    put(tmp_path)
    (tmp_path / "phase.jpg").write_bytes(JPEG)
    (tmp_path / "secret.txt").write_text("SECRET")
    with Server(tmp_path) as opened:
        yield opened


def ask(server, path, host=None, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.headers), content


def inside(server, name=""):
    return f"/{server.address.split('/')[3]}/{name}"


def test_the_page_and_what_the_folder_tells_are_served(server):
    assert ask(server, inside(server))[0] == 200
    status, headers, content = ask(server, inside(server, "status"))
    told = json.loads(content)
    assert (status, told["name"], told["state"], told["pictures"]) == (200, "siemens (night)", "running", ["phase"])
    assert told["facts"][0] == "epoch 3 of 200 + 4/7 updates"
    assert told["changes"] == [[3, "probe.learning_rate"]]
    assert ask(server, inside(server, "phase.jpg?3"))[2] == JPEG
    record = json.loads(ask(server, inside(server, "record"))[2])
    assert record == {"losses": [0.5, 0.25, 0.125], "seconds": [0.5, 0.5, 0.5], "marks": [3]}
    for name, kind in (("page.js", "text/javascript"), ("curve.js", "text/javascript"), ("curve.css", "text/css")):
        assert ask(server, inside(server, name))[1]["Content-Type"].startswith(kind)
    assert headers["Cache-Control"] == "no-store"


def test_every_answer_forbids_what_the_page_does_not_need(server):
    for path in (inside(server), inside(server, "status"), inside(server, "nothing"), "/"):
        headers = ask(server, path)[1]
        rules = headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(rules)
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    "name",
    [
        "secret.txt",
        "status.json",
        "../secret.txt",
        "%2e%2e/secret.txt",
        "amplitude.jpg",
        "x/",
        "favicon.ico",
        "/etc/passwd",
    ],
)
def test_nothing_but_the_known_names_is_served_and_no_folder_listed(server, name):
    status, _, content = ask(server, inside(server, name))
    assert (status, content) == (404, b"There is nothing here.")


@pytest.mark.parametrize("path", ["/", "/status", "//status", "/x/status", "/%C3%A9/status", "status"])
def test_without_the_token_nothing_is_served(server, path):
    status, _, content = ask(server, path)
    assert status == 403
    assert b"ptynb watch" in content


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", "localhost"])
def test_another_host_name_is_refused(server, host):
    assert ask(server, inside(server, "status"), host=host)[0] == 421
    assert ask(server, inside(server, "status"), host=f"localhost:{server.port}")[0] == 200


def test_only_reading_is_possible(server):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, inside(server, "status"), method=method)[0] == 501


def test_it_listens_on_the_loopback_interface_only_and_a_taken_port_is_told(server):
    listening = server._http.socket.getsockname()
    assert listening == ("127.0.0.1", server.port)
    with raises("argument.invalid-value", f"Port {server.port}"):
        Server(".", server.port)
    with raises("argument.invalid-value", "Port 70000"):
        Server(".", 70000)


def test_tokens_differ_and_a_closed_page_answers_no_more(tmp_path):
    with Server(tmp_path) as one, Server(tmp_path) as other:
        assert one.address.split("/")[3] != other.address.split("/")[3]
        assert len(one.address.split("/")[3]) >= 32
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", one.port), timeout=5):
        pass


def test_the_command_says_where_the_page_is_ends_by_ctrl_c_and_loads_nothing_heavy(tmp_path):
    program = (
        "import sys; from ptynb.cli.main import main; status = main(sys.argv[1:]);"
        "print('LOADED', sorted({'torch', 'ipywidgets', 'ipyparallel', 'matplotlib'} & set(sys.modules)));"
        "sys.exit(status)"
    )
    command = [sys.executable, "-c", program, "watch", str(tmp_path), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().split(" at ")[1].split()[0]
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=10)
    connection.request("GET", f"/{address.split('/')[3]}/status")
    assert "waiting" in json.loads(connection.getresponse().read())
    process.send_signal(2)
    assert process.communicate(timeout=20)[0].strip() == "LOADED []"
    assert process.returncode == 0
