"""Segments of gradients."""

from __future__ import annotations

import pytest

from viaduct.rehearsal.tf1_stage.site.hccl.split import api


@pytest.mark.parametrize("indices", [[], [3, 3], [5, 2], [-1, 4], list(range(9))])
def test_indices_that_do_not_ascend_or_are_too_many_are_refused(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="set_split_strategy_by_idx"):
        api.set_split_strategy_by_idx(indices)


@pytest.mark.parametrize("shares", [[], [50, 40], [120, -20], [100 / 9] * 9])
def test_shares_that_are_not_the_whole_are_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="set_split_strategy_by_size"):
        api.set_split_strategy_by_size(shares)


def test_segments_of_a_group_that_does_not_exist_are_refused_and_right_ones_are_taken() -> None:
    with pytest.raises(ValueError, match="no group"):
        api.set_split_strategy_by_idx([0], "missing")
    api.set_split_strategy_by_idx([0, 20, 160])
    api.set_split_strategy_by_size([96.54, 3.46])
