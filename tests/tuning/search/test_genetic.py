"""Genetic search: what a child can be."""

from __future__ import annotations

import pytest

from viaduct.search_space import Parameter, Point, Space
from viaduct.tuning.search import genetic
from viaduct.tuning.search.genetic import GeneticSearcher


def forbid_large(point: Point) -> str | None:
    return "too large" if int(point["a"]) + int(point["b"]) > 6 else None


SPACE = Space(
    [Parameter("a", (0, 1, 2, 3, 4)), Parameter("b", (0, 1, 2, 3, 4)), Parameter("only", (7,))],
    [forbid_large],
    default={"a": 0, "b": 0, "only": 7},
)


def test_a_mutation_stays_in_the_lists_and_leaves_a_single_value_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = GeneticSearcher(SPACE, seed=1)
    children = {searcher.mutate((4, 0, 0), changes=3.0) for _ in range(300)}
    assert {code[2] for code in children} == {0}
    assert {code[0] for code in children} == {0, 1, 2, 3}, "with three changes of three every value is another one"
    assert {code[1] for code in children} == {1, 2, 3, 4}
    monkeypatch.setattr(genetic, "ADJACENT", 1.0)
    assert {searcher.mutate((4, 0, 0), changes=3.0) for _ in range(30)} == {(3, 1, 0)}


def test_each_value_of_a_child_is_that_of_a_parent() -> None:
    searcher = GeneticSearcher(SPACE, seed=2)
    children = {searcher.cross([(0, 1, 0), (2, 3, 0)]) for _ in range(100)}
    assert children == {(0, 1, 0), (0, 3, 0), (2, 1, 0), (2, 3, 0)}


def test_children_are_valid_and_new_until_there_are_none() -> None:
    searcher = GeneticSearcher(SPACE, seed=3)
    for code in SPACE.codes:
        searcher.record_asked(code)
    assert searcher.breed([(0, 0, 0), (1, 1, 0)]) is None
    searcher.asked.remove((2, 2, 0))
    assert searcher.breed([(2, 1, 0), (1, 2, 0)]) == (2, 2, 0)


def test_the_better_of_a_population_are_picked_more_often() -> None:
    searcher = GeneticSearcher(SPACE, seed=4)
    population = [(number, 0, 0) for number in range(5)]
    picked = [searcher.select(population)[0] for _ in range(500)]
    assert picked.count(0) > 2 * picked.count(2) > 2 * picked.count(4)
