"""Sample order and draws are pure functions of (seed, epoch, position)."""

from __future__ import annotations

import numpy as np
import pytest

from viaduct.data.order import (
    Purpose,
    draw_permutation,
    draw_uniforms,
    draw_words,
    list_rank_positions,
    make_image_generator,
)
from viaduct.errors import BadValue


def test_golden_order() -> None:
    """These numbers are part of every result ever measured; with others, resumed runs see other samples."""
    assert draw_permutation(seed=1, epoch=0, count=10).tolist() == [4, 0, 5, 6, 2, 7, 8, 3, 9, 1]
    assert draw_permutation(seed=1, epoch=1, count=10).tolist() == [0, 3, 6, 8, 2, 5, 1, 7, 9, 4]


def test_golden_draws() -> None:
    drawn = draw_uniforms(seed=1, epoch=0, count=2, draws=3)
    assert (drawn * 2**24).astype(np.int64).tolist() == [
        [12609925, 16008961, 13027615],
        [13701461, 9561432, 4093790],
    ]
    assert drawn.dtype == np.float32


def test_every_image_is_visited_exactly_once() -> None:
    assert sorted(draw_permutation(7, 3, 1000)) == list(range(1000))


def test_seeds_epochs_and_purposes_do_not_share_words() -> None:
    streams = [draw_words(seed, epoch, purpose, 100) for seed in (0, 1, -1) for epoch in (0, 1) for purpose in Purpose]
    assert len(np.unique(np.concatenate(streams))) == 100 * len(streams)


def test_a_row_of_draws_does_not_depend_on_how_many_there_are() -> None:
    assert np.array_equal(draw_uniforms(5, 2, 10, 4), draw_uniforms(5, 2, 1000, 4)[:10])


def test_draws_are_uniform_and_never_one() -> None:
    drawn = draw_uniforms(0, 0, 20_000, 5)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, bins=10, range=(0, 1))[0]
    assert abs(counts - 10_000).max() < 500  # five standard deviations


def test_the_largest_draw_times_any_number_stays_below_it() -> None:
    largest = np.float32(1 - 2.0**-24)
    numbers = np.arange(1, 5000, dtype=np.float32)
    assert (np.floor(largest * numbers) < numbers).all()


@pytest.mark.parametrize(("seed", "epoch", "position"), [(0, 0, 0), (7, 3, 1_281_166), (2**63 + 5, 89, 12)])
def test_a_sample_has_the_stream_of_its_key_and_position(seed: int, epoch: int, position: int) -> None:
    key, counter = np.array([seed, epoch], np.uint64), np.array([0, position, 0, 7], np.uint64)
    plain = np.random.Generator(np.random.Philox(key=key, counter=counter))
    assert np.array_equal(make_image_generator(seed, epoch, position).random(50), plain.random(50))


@pytest.mark.parametrize(("ranks", "parts"), [(1, 1), (2, 1), (3, 1), (5, 1), (2, 4), (3, 2)])
def test_the_shares_of_all_ranks_are_the_batch(ranks: int, parts: int) -> None:
    shares = [list_rank_positions(24, rank, ranks, parts) for rank in range(ranks)]
    assert sorted(np.concatenate(shares)) == list(range(24))
    assert max(map(len, shares)) - min(map(len, shares)) <= parts
    for mine in shares:
        assert np.array_equal(mine, np.sort(mine))
        counts = np.bincount(mine // (24 // parts), minlength=parts)
        assert len(set(counts)) == 1, "each part has as many of a rank's images"


@pytest.mark.parametrize(("ranks", "parts"), [(2, 1), (3, 2), (4, 3)])
def test_a_mirrored_share_holds_both_of_a_pair(ranks: int, parts: int) -> None:
    shares = [list_rank_positions(24, rank, ranks, parts, keeps_mixup_pairs=True) for rank in range(ranks)]
    assert sorted(np.concatenate(shares)) == list(range(24))
    for mine in shares:
        assert np.array_equal(mine[::-1], 23 - mine), "the mirror of the share is the mirror of the batch"


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(BadValue, match="a global batch of 8 in 4 parts leaves some of 3 ranks"):
        list_rank_positions(8, 0, 3, parts=4)
