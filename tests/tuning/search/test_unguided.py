"""Searches that do not learn from times."""

from __future__ import annotations

import pytest

from tuning.recorded_space import RecordedSpace
from tuning.search.small_spaces import SMALL
from viaduct.tuning.search import make_searcher


def test_exhaustive_search_finds_the_best(recorded: RecordedSpace) -> None:
    assert recorded.replay("exhaustive", 0, recorded.space.size) == 0


@pytest.mark.parametrize("mode", ["random", "exhaustive"])
def test_the_default_comes_first(mode: str) -> None:
    searcher = make_searcher(mode, SMALL, seed=3)
    assert searcher.ask() == {"a": 2, "b": 1}


def test_exhaustive_search_keeps_the_order_of_the_space() -> None:
    searcher = make_searcher("exhaustive", SMALL, seed=0)
    points = [searcher.ask() for _ in range(SMALL.size)]
    assert points[1:] == [point for point in SMALL.points() if point != SMALL.default]
    assert searcher.ask() is None
