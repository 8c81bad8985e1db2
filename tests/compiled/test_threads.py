import multiprocessing
import threading

import pytest
import torch

from ptynb.compiled.threads import count, in_shares, part, torch_alone


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("things", [0, 1, 2, 3, 10, 11])
@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_parts_cover_everything_once_and_differ_by_one_at_most(things, shares):
    parts = [part(things, share, shares) for share in range(shares)]
    assert [thing for first, last in parts for thing in range(first, last)] == [*range(things)]
    sizes = [last - first for first, last in parts]
    assert max(sizes) - min(sizes) <= 1


def test_every_share_is_done_at_once():
    together, done = threading.Barrier(3, timeout=30), []

    def work(share, shares):
        together.wait()  # nobody passes before all three are at work
        done.append((share, shares))

    in_shares(work)
    assert sorted(done) == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize("failing", [0, 2])
def test_what_a_share_raises_is_raised_after_all_have_ended(failing):
    ended = []

    def work(share, shares):
        if share == failing:
            raise ValueError("no")
        ended.append(share)

    with pytest.raises(ValueError, match="no"):
        in_shares(work)
    assert sorted(ended) == [share for share in range(3) if share != failing]
    in_shares(lambda share, shares: ended.append(share))
    assert len(ended) == 5


def test_torch_alone_leaves_shares_as_they_were():
    with torch_alone():
        assert (torch.get_num_threads(), count()) == (1, 3)
        with torch_alone():
            assert (torch.get_num_threads(), count()) == (1, 3)
        assert (torch.get_num_threads(), count()) == (1, 3)
    assert (torch.get_num_threads(), count()) == (3, 3)
    with pytest.raises(KeyError), torch_alone():
        raise KeyError
    assert (torch.get_num_threads(), count()) == (3, 3)


def _shares(pipe):
    done = []
    in_shares(lambda share, shares: done.append(share))
    pipe.send(sorted(done))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    in_shares(lambda share, shares: None)
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(target=_shares, args=(theirs,))
    child.start()
    assert ours.poll(60), "the forked process waits for threads that it does not have"
    assert ours.recv() == [0, 1, 2]
    child.join()
