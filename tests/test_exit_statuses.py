"""Exit statuses: one for each code, documented, and by the kind of failure."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from ptynb import exceptions
from ptynb.batch.exit_statuses import BY_CODE, STATUSES, exit_status, status_of_code
from ptynb.exceptions import CODES, ClusterError, EngineLostError, FileError, SettingsError
from tests.parametrization import each

PAGE = Path(__file__).parents[1] / "docs" / "exit_statuses.md"


def test_each_code_has_a_status_and_each_entry_is_a_code() -> None:
    found = {code: status_of_code(code) for code in CODES}
    assert [code for code, status in found.items() if status not in STATUSES or not status] == []
    known = {*CODES, *(code.partition(".")[0] for code in CODES)}
    assert [entry for entry in BY_CODE if entry not in known] == []


def test_the_page_has_all_statuses() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.*?) \|", PAGE.read_text(), re.MULTILINE))
    assert {int(number): meaning for number, meaning in rows.items()} == STATUSES


@each(
    ("error", "status"),
    [
        (FileError("", code="file.not-found"), 66),
        (FileError("", code="file.damaged"), 65),
        (ClusterError("", code="gpu.too-few"), 69),
        (EngineLostError(""), 70),
        (exceptions.PluginError("", code="plugin.not-installed"), 69),
        (exceptions.PluginError("", code="plugin.invalid"), 78),
        (SettingsError("", code="argument.conflict"), 64),
        (
            SettingsError(
                "", ({"type": "value_error", "loc": ("a",), "msg": "", "input": 1},), code="argument.conflict"
            ),
            78,
        ),
        (exceptions.ReconstructionError("", code="reconstruction.not-finite"), 70),
        (FileNotFoundError(errno.ENOENT, ""), 66),
        (OSError(errno.ENOSPC, ""), 73),
        (MemoryError(), 69),
        (KeyboardInterrupt(), 130),
        (ValueError(), 1),
        (OSError(), 1),
    ],
)
def test_an_error_has_the_status_of_its_kind(error: BaseException, status: int) -> None:
    assert exit_status(error) == status


@pytest.mark.parametrize("code", ["", "nothing.known"])
def test_an_unknown_code_has_none(code: str) -> None:
    assert status_of_code(code) is None
