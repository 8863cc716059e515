"""Tree search: which decisions a state offers, which of them is tried, and what the network learns from times."""

from __future__ import annotations

import pytest

from viaduct.search_space import Parameter, Point, Space
from viaduct.tuning.search.tree import Node, TreeSearcher


def forbid_sum(point: Point) -> str | None:
    return "forbidden" if point["a"] == 3 and point["b"] == 2 else None


SPACE = Space([Parameter("a", (1, 2, 3)), Parameter("b", (1, 2))], [forbid_sum], default={"a": 1, "b": 1})


def test_decisions_that_lead_to_no_new_point_are_not_offered() -> None:
    searcher = TreeSearcher(SPACE, seed=0)
    searcher.record_asked((2, 0))  # a=3: its other point is forbidden
    searcher.record_asked((0, 1))
    tree: dict[tuple[int, ...], Node] = {}
    assert searcher.expand(tree, ()).actions == [0, 1]
    assert searcher.expand(tree, (0,)).actions == [0]
    assert searcher.expand(tree, (1,)).actions == [0, 1]
    assert sum(tree[()].priors) == pytest.approx(1)


def test_a_decision_never_tried_is_preferred_until_its_prior_is_used_up() -> None:
    searcher = TreeSearcher(SPACE, seed=0)
    node = Node([0, 1], [0.5, 0.5], [0.5, 0.5], [9, 0], [4.5, 0.0], [0.5, -1.0])
    assert searcher.select(node) == 1
    node = Node([0, 1], [0.5, 0.5], [0.5, 0.5], [9, 9], [8.1, 0.9], [0.9, 0.1])
    assert searcher.select(node) == 0


def test_a_prefix_is_worth_its_best_point() -> None:
    searcher = TreeSearcher(SPACE, seed=0)
    assert searcher.label_states({(0, 0): 0.5, (0, 1): 1.0, (1, 0): 0.0}) == {(): 1.0, (0,): 1.0, (1,): 0.0}


def test_features_tell_decided_from_undecided_parameters() -> None:
    searcher = TreeSearcher(SPACE, seed=0)
    one_hot, positions, decided = (slice(0, 5), slice(5, 7), slice(7, 9))
    features = searcher.encode_state((2,))
    assert features[one_hot].tolist() == [0, 0, 1, 0, 0]
    assert features[positions].tolist() == [1, 0]
    assert features[decided].tolist() == [1, 0]


def test_a_search_of_the_tree_ends_at_a_point_not_requested() -> None:
    searcher = TreeSearcher(SPACE, seed=0)
    for code in SPACE.codes[:-1]:
        searcher.record_asked(code)
    assert searcher.search_tree() == SPACE.codes[-1]
