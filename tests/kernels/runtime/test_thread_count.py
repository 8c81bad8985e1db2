import pytest
import torch

from ptynb.kernels.runtime.thread_count import count, is_torch_alone, torch_alone


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_torch_alone_leaves_shares_as_they_were():
    with torch_alone():
        assert (torch.get_num_threads(), count(), is_torch_alone()) == (1, 3, True)
        with torch_alone():
            assert (torch.get_num_threads(), count(), is_torch_alone()) == (1, 3, True)
        assert (torch.get_num_threads(), count(), is_torch_alone()) == (1, 3, True)
    assert (torch.get_num_threads(), count(), is_torch_alone()) == (3, 3, False)
    with torch_alone(False):
        assert (torch.get_num_threads(), count(), is_torch_alone()) == (3, 3, False)
    with pytest.raises(KeyError), torch_alone():
        raise KeyError
    assert (torch.get_num_threads(), count(), is_torch_alone()) == (3, 3, False)
