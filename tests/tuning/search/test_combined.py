"""Tree search first, then genetic search."""

from __future__ import annotations

import pytest

from viaduct.search_space import Code, Parameter, Space
from viaduct.tuning.search.combined import CombinedSearcher

SPACE = Space([Parameter("a", tuple(range(10))), Parameter("b", tuple(range(10)))], default={"a": 0, "b": 0})


def test_the_second_half_of_the_budget_is_genetic_and_knows_the_times_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searcher = CombinedSearcher(SPACE, seed=1, budget_measurements=12)
    proposals: list[str] = []
    for name in ("tree", "genetic"):
        part = getattr(searcher, name)

        def propose(name: str = name, original: object = part.propose) -> Code | None:
            proposals.append(name)
            return original()  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(part, "propose", propose)
    points = []
    while (point := searcher.ask()) is not None:
        searcher.tell(point, 1.0 + int(point["a"]))
        points.append(SPACE.encode(point))
    assert proposals == ["tree"] * 6 + ["genetic"] * 6
    assert len(set(points)) == 12, "neither part proposes what the other has proposed"
    assert list(searcher.genetic.times) == points
    assert list(searcher.tree.times) == points[:6]
