"""Errors that are only consequences of another rank's end, and those of this rank, as torch and NCCL word them."""

import pytest

from ptynb.distributed.group import is_echo

NCCL = "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:328, "


@pytest.mark.parametrize(
    "text",
    [
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:30872",
        # NVIDIA/nccl#2076
        NCCL
        + "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.",
        # NVIDIA/nccl#795: ncclRemoteError surfaces as ncclInternalError
        NCCL + "internal error - please report this issue to the NCCL developers, NCCL version 2.14.3\n"
        "ncclInternalError: Internal check failed.",
        # pytorch/pytorch#64241
        "NCCL communicator was aborted on rank 1.",
        "Another engine did not answer within 30 s (…).",
    ],
)
def test_the_end_of_another_rank_is_a_consequence(text):
    assert is_echo(text)


@pytest.mark.parametrize(
    "text",
    [
        # NCCL's src/include/checks.h; seen when its buffers do not fit beside torch's
        NCCL + "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
        # NVIDIA/nccl-tests#206
        NCCL + "unhandled system error, NCCL version 2.20.5\nLast error:\n"
        "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        NCCL + "invalid usage, NCCL version 2.20.5\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
        "[PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal "
        "memory access was encountered",
    ],
)
@pytest.mark.parametrize("of_group", [False, True])
def test_a_failure_of_this_rank_is_a_cause_also_if_nccl_reports_it(text, of_group):
    assert not is_echo(text, of_group)


def test_an_error_of_the_group_without_a_cause_is_a_consequence():
    assert is_echo("Timed out waiting 30000ms for recv operation to complete", of_group=True)
    assert not is_echo("Timed out waiting 30000ms for recv operation to complete")
