"""Points left out of a long line: never its spikes, its gaps or its ends."""

import numpy as np
import pytest

from viaduct.reporting.thinning import choose_points


def test_a_line_of_as_many_points_as_allowed_stays_whole():
    assert choose_points(np.zeros(20), most=20).tolist() == list(range(20))


@pytest.mark.parametrize("most", [10, 11, 100, 1500])
def test_no_more_points_are_kept_than_allowed_and_both_ends_are(most):
    kept = choose_points(np.sin(np.arange(9_999.0)), most)
    assert len(kept) <= most
    assert (kept[0], kept[-1]) == (0, 9_998)
    assert (np.diff(kept) > 0).all()


def test_a_spike_in_each_direction_and_a_gap_survive():
    y = np.zeros(10_000)
    y[[3_333, 3_334, 7_777]] = 9.0, -9.0, np.nan
    assert {3_333, 3_334, 7_777} <= set(choose_points(y, 100))


def test_a_line_of_nothing_but_gaps_is_thinned_too():
    assert len(choose_points(np.full(10_000, np.nan), 100)) <= 100
