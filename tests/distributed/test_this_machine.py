"""Which hosts are this machine; the service asks without loading the exporters."""

from __future__ import annotations

import subprocess
import sys

from ptynb.distributed.this_machine import is_here
from tests.parametrization import each

HOSTS = {
    **dict.fromkeys(("localhost", "127.0.0.1", "127.8.9.1", "::1"), True),
    **dict.fromkeys(("", "0.0.0.0", "::", "10.0.0.1", "fe80::1", "example.org"), False),
    **dict.fromkeys(("127.0.0.1.example.org", "localhost.example.org", "127.1", "[::1]"), False),
}


@each(("host", "expected"), [*HOSTS.items()])
def test_only_addresses_of_loopback_are_here(host: str, expected: bool) -> None:
    assert is_here(host) is expected


def test_the_service_knows_its_host_without_an_exporter() -> None:
    program = "import sys, ptynb.service.service_process; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(answer.stdout.split())
    assert "ptynb.distributed.this_machine" in loaded
    assert not loaded & {"ptynb.io.export.tiled_export", "torch"}
