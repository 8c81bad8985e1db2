"""A command passes few files of ptynb between the user's call and the send to an engine."""

from __future__ import annotations

import pytest

import ptynb as pt
from ptynb.data.commands import ChangeSettings
from tests.architecture import named
from tests.cases import a_scan
from tests.command_path import files_until_sent

MOST_FILES = 5
"""From the assignment of a setting to the send; see `files_until_sent`."""


@pytest.mark.timeout(120)
def test_a_setting_reaches_an_engine_through_five_files() -> None:
    with (
        pt.Cluster(1, device="cpu") as cluster,
        pt.Reconstruction(a_scan(), pt.Settings(), cluster, checkpointing=None) as recon,
    ):
        recon.step()

        def change() -> None:
            recon.settings = recon.settings.replace(probe={"learning_rate": 0.005})

        files = files_until_sent(change, ChangeSettings)
        assert len(files) <= MOST_FILES, files
        assert {"session/reconstruction.py", "cluster/rpc.py"} <= {*files}, "from one end to the other"
        assert not {*files} - named("The way of a click")
        assert recon.status()[0].changes[-1].new == 0.005
