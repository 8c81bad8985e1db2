"""Spoilt files of every kind that is read: a few of each in every run, the same ones. See `tests.fuzz` for more."""

import h5py
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ptynb.io.hdf5_file import check_texts, open_for_reading
from tests.fuzz import worker
from tests.fuzz.pool import Pool
from tests.fuzz.seeds import SEEDS
from tests.io.cases import of_case

SPOILT = 90
"""Files in all; a hundredth of a second each, and more where nothing is wrong with them."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    with Pool(tmp_path_factory.mktemp("fuzz")) as pool:
        yield pool


def test_a_whole_file_is_read_and_its_texts_are_sound(tmp_path):
    for seed in SEEDS:
        with of_case(seed, tmp_path) as home:
            path = SEEDS[seed].write(home)
            assert worker.answer(SEEDS[seed].reader, path, SEEDS[seed].given) == "read"
            for path in home.rglob("*"):
                if h5py.is_hdf5(path):
                    with open_for_reading(path) as file:
                        check_texts(file)


@given(seed=st.sampled_from(sorted(SEEDS)), number=st.integers(0, 2**32))
@settings(
    max_examples=SPOILT,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),  # which file it was is said by its number; a smaller number is no simpler file
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_spoilt_file_is_read_or_refused_with_one_sentence(pool, seed, number):
    outcome = pool.read(seed, number)
    assert outcome.fine, outcome
