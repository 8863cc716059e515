"""Rules for every search method: each point is asked for once, and times are recorded."""

from __future__ import annotations

import pytest

from tuning.search.small_spaces import DEFAULT, PARAMETERS, SMALL, spill_registers
from viaduct.errors import BadValue
from viaduct.search_space import Space
from viaduct.tuning.search import MODES, make_searcher


@pytest.mark.parametrize("mode", MODES)
def test_no_point_is_asked_twice_and_all_are_reached(mode: str) -> None:
    searcher = make_searcher(mode, SMALL, seed=0)
    asked = []
    while (point := searcher.ask()) is not None:
        asked.append(tuple(point.items()))
        searcher.tell(point, None if point["a"] == 3 else 5.0)
    assert len(asked) == len(set(asked)) == SMALL.size


@pytest.mark.parametrize("mode", MODES)
def test_points_told_without_being_requested_are_not_measured_again(mode: str) -> None:
    searcher = make_searcher(mode, SMALL, seed=0)
    searcher.tell({"a": 1, "b": 1}, 3.0)
    asked = []
    while (point := searcher.ask()) is not None:
        asked.append(point)
    assert {"a": 1, "b": 1} not in asked
    assert len(asked) == SMALL.size - 1  # none of them was told: points under way are not given out again
    assert searcher.best == ({"a": 1, "b": 1}, 3.0)


@pytest.mark.parametrize("mode", ["GA", "RL", "RL,GA"])
def test_hints_and_neighbours_are_measured_first(mode: str) -> None:
    hint = DEFAULT | {"rows": 8}
    space = Space(PARAMETERS, [spill_registers], default=DEFAULT, hints=(hint,))
    neighbours = [{"rows": 7, "columns": 4}, {"rows": "none"}, DEFAULT]
    searcher = make_searcher(mode, space, 3, 20, neighbours)
    first = [searcher.ask() for _ in range(3)]
    assert first == [DEFAULT, hint, DEFAULT | {"rows": 8, "columns": 4}]


def test_a_second_time_replaces_the_first() -> None:
    searcher = make_searcher("GA", SMALL, seed=0)
    searcher.tell({"a": 1, "b": 1}, 3.0)
    searcher.tell({"a": 1, "b": 1}, 4.0)
    assert searcher.best == ({"a": 1, "b": 1}, 4.0)


def test_bad_measurements_are_refused() -> None:
    searcher = make_searcher("GA", SMALL, 0)
    with pytest.raises(BadValue, match="not a measurement"):
        searcher.tell({"a": 1, "b": 1}, float("nan"))
    with pytest.raises(BadValue, match="not a point"):
        searcher.tell({"a": 1, "b": 9}, 1.0)
    with pytest.raises(BadValue, match="0 measurements"):
        make_searcher("GA", SMALL, 0, budget_measurements=0)
