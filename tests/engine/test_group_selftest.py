"""The engines' self-test in real processes: it passes where nothing is wrong, and names what is."""

import dataclasses

import pytest

from ptynb.distributed.group import Membership
from ptynb.engine import group_selftest, run_registry
from ptynb.engine.group_selftest import examine
from tests.engine import faults
from tests.engine.ranks import Ranks
from tests.raising import raises


def sentences(answers):
    """Those of all ranks, which all failed."""
    assert [findings for findings, _ in answers] == [None] * len(answers)
    return [text.splitlines()[0] for _, text in answers]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_healthy_engines_pass_and_leave_no_group(ranks: Ranks, world: int) -> None:
    answers = ranks.run(world, faults.healthy)
    assert [(told, left) for _, told, left in answers] == [("", False)] * world
    first = answers[0][0]
    assert (first.world, first.backend) == (world, "gloo" if world > 1 else "none")
    assert first.devices == tuple(f"CPU {rank}" for rank in range(world))
    for findings, _, _ in answers:
        assert dataclasses.replace(findings, bandwidth=None, latency=None, seconds=0) == dataclasses.replace(
            first, bandwidth=None, latency=None, seconds=0
        )
        if world == 1:
            assert findings.bandwidth is findings.latency is None
        else:
            assert 2 * (world - 1) / world * 2**25 / findings.bandwidth < findings.seconds, "one of its sums"
            assert 0 < findings.latency < findings.seconds


@pytest.mark.parametrize("faulty", [0, 2])
def test_an_engine_whose_gradient_is_not_reduced_is_named_on_all(ranks: Ranks, faulty: int) -> None:
    for sentence in sentences(ranks.run(3, faults.not_reduced, faulty)):
        assert f"real part of the group's gradient is not the sum of the engines' own on ranks [{faulty}]" in sentence


@pytest.mark.parametrize(("part", "name"), [(0, "real"), (1, "imaginary")])
def test_a_lost_averaged_or_conjugated_part_is_named(ranks: Ranks, part: int, name: str) -> None:
    told = f"The {name} part of the group's gradient is not the sum of the engines' own on ranks [0, 1]"
    for scale in (0.0, 0.5, -1.0):
        for sentence in sentences(ranks.run(2, faults.part_lost, part, scale)):
            assert told in sentence, scale


def test_a_sum_that_is_none_is_named(ranks: Ranks) -> None:
    for sentence in sentences(ranks.run(2, faults.wrong_first_sum)):
        assert "Ones sum up to [1.0, 1.0, 1.0, 1.0] over 2 engines; expected 2." in sentence


def test_a_duplicate_device_is_named_with_its_ranks(ranks: Ranks) -> None:
    for sentence in sentences(ranks.run(3, faults.same_device)):
        assert "Ranks 0 and 2 hold the same device, GPU-1, and each needs its own" in sentence


def test_another_device_than_planned_is_named(ranks: Ranks) -> None:
    for sentence in sentences(ranks.run(2, faults.other_device, "NVIDIA H200 GPU-1111", "GPU-2222")):
        assert "Rank 1 computes on the GPU GPU-2222; expected NVIDIA H200 GPU-1111." in sentence
    as_planned = ranks.run(2, faults.other_device, "NVIDIA H200 GPU-1111 (1 of 2)", "GPU-1111")
    assert [told for _, told in as_planned] == ["", ""]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("get_world_size", 1, "Rank 1 is in a group of 1 by gloo; expected 2 by gloo."),
        ("get_backend_config", "cpu:mpi,cuda:nccl", "Rank 1 is in a group of 2 by mpi; expected 2 by gloo."),
    ],
)
def test_another_group_than_planned_is_named(ranks: Ranks, name: str, value: object, words: str) -> None:
    for sentence in sentences(ranks.run(2, faults.other_world, name, value)):
        assert words in sentence


def test_a_missing_rank_is_named_after_the_timeout(ranks: Ranks) -> None:
    (sentence,) = sentences(ranks.run(2, faults.attempt, timeout=1.0, present=1))
    assert "The engines of ranks [1] did not join within 1 s." in sentence
    assert [told for _, told in ranks.run(2, faults.attempt)] == ["", ""], "the next one is not disturbed"


def test_a_device_that_computes_wrongly_is_named_and_the_others_hear_of_it(ranks: Ranks) -> None:
    other, wrong = sentences(ranks.run(2, faults.wrong_transform))
    assert "The device cpu computes a Fourier transform that is off by 0.001" in wrong
    assert "by peer" in other
    (alone,) = sentences(ranks.run(1, faults.wrong_transform))
    assert "The device cpu computes a Fourier transform" in alone


def test_beside_an_open_reconstruction_it_is_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(run_registry, "open_names", lambda: ["one"])
    membership = Membership(rank=0, world=1, store=tmp_path / "s", backend="none", device="cpu", identity="CPU 0")
    with raises("engine.busy"):
        examine(membership)


def test_a_first_sum_that_hangs_on_a_gpu_ends_before_torchs_own_timeout(monkeypatch) -> None:
    """Stands in for NCCL with broken peer-to-peer: the GPU is at work for ever."""

    class Event:
        def record(self, stream):
            self.recorded = True

        def query(self):
            return False

    class Hanging:
        world, backend = 2, "nccl"
        device = group_selftest.torch.device("cuda:0")

        def start_sum(self, tensor):
            return lambda: None

    monkeypatch.setattr(group_selftest.torch, "ones", lambda count, device: group_selftest.torch.zeros(count))
    monkeypatch.setattr(group_selftest.torch.cuda, "Event", Event)
    monkeypatch.setattr(group_selftest.torch.cuda, "current_stream", lambda device: None)
    with pytest.raises(RuntimeError, match=r"^The first sum over 2 GPUs by nccl did not end within 0\.1 s\.$"):
        group_selftest._check_first_sum(Hanging(), 0.2)
