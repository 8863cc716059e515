"""Sample order and draws are pure functions of (seed, epoch, position)."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.data.order import Purpose, permutation, sample_generator, uniforms, words


def test_golden_order() -> None:
    """These numbers are part of every result ever measured; with others, resumed runs see other samples."""
    assert permutation(seed=1, epoch=0, count=10).tolist() == [4, 0, 5, 6, 2, 7, 8, 3, 9, 1]
    assert permutation(seed=1, epoch=1, count=10).tolist() == [0, 3, 6, 8, 2, 5, 1, 7, 9, 4]


def test_golden_draws() -> None:
    drawn = uniforms(seed=1, epoch=0, count=2, draws=3)
    assert (drawn * 2**24).astype(np.int64).tolist() == [
        [12609925, 16008961, 13027615],
        [13701461, 9561432, 4093790],
    ]
    assert drawn.dtype == np.float32


def test_every_picture_is_visited_exactly_once() -> None:
    assert sorted(permutation(7, 3, 1000)) == list(range(1000))


def test_seeds_epochs_and_purposes_do_not_share_words() -> None:
    streams = [words(seed, epoch, purpose, 100) for seed in (0, 1, -1) for epoch in (0, 1) for purpose in Purpose]
    assert len(np.unique(np.concatenate(streams))) == 100 * len(streams)


def test_a_row_of_draws_does_not_depend_on_how_many_there_are() -> None:
    assert np.array_equal(uniforms(5, 2, 10, 4), uniforms(5, 2, 1000, 4)[:10])


def test_draws_are_uniform_and_never_one() -> None:
    drawn = uniforms(0, 0, 20_000, 5)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, bins=10, range=(0, 1))[0]
    assert abs(counts - 10_000).max() < 500  # five standard deviations


def test_the_largest_draw_times_any_number_stays_below_it() -> None:
    largest = np.float32(1 - 2.0**-24)
    whole = np.arange(1, 5000, dtype=np.float32)
    assert (np.floor(largest * whole) < whole).all()


@pytest.mark.parametrize(("seed", "epoch", "position"), [(0, 0, 0), (7, 3, 1_281_166), (2**63 + 5, 89, 12)])
def test_a_sample_has_the_stream_of_its_key_and_position(seed: int, epoch: int, position: int) -> None:
    key, counter = np.array([seed, epoch], np.uint64), np.array([0, position, 0, 7], np.uint64)
    plain = np.random.Generator(np.random.Philox(key=key, counter=counter))
    assert np.array_equal(sample_generator(seed, epoch, position).random(50), plain.random(50))
