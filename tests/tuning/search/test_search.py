"""Search methods on landscapes whose best point is known: what every method keeps to, and that guided ones find it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from tuning.search.small_spaces import DEFAULT, PARAMETERS, SMALL, SPACE
from viaduct.errors import UnknownName
from viaduct.search_space import Code, Point, Space
from viaduct.tuning.search import MODES, make_searcher

Landscape = Callable[[Code], float | None]


def make_separable(seed: int) -> Landscape:
    """Return a landscape in which every parameter has its own best value."""
    draws = np.random.default_rng(seed)
    tables = [draws.uniform(0, 1, len(parameter.values)) for parameter in PARAMETERS]
    return lambda code: 100 * math.exp(sum(table[i] for table, i in zip(tables, code, strict=True)))


def make_deceptive(seed: int) -> Landscape:
    """Return a landscape with strong interactions of pairs: the best values one by one are not the best together."""
    draws = np.random.default_rng(seed)
    sizes = [len(parameter.values) for parameter in PARAMETERS]
    pairs = {(i, j): draws.normal(0, 0.25, (sizes[i], sizes[j])) for i in range(len(sizes)) for j in range(i)}
    single = make_separable(seed + 1)
    return lambda code: (single(code) or 0) ** 0.6 * math.exp(sum(t[code[i], code[j]] for (i, j), t in pairs.items()))


def make_failing(seed: int) -> Landscape:
    """Return a landscape a third of which fails, next to its best points, too."""
    smooth = make_separable(seed)
    return lambda code: None if (code[0] + code[1] + code[3]) % 3 == 1 else smooth(code)


def search(mode: str, landscape: Landscape, seed: int, measurements: int, space: Space = SPACE) -> list[Point]:
    searcher = make_searcher(mode, space, seed, measurements)
    asked = []
    while (point := searcher.ask()) is not None:
        searcher.tell(point, landscape(space.encode(point)))
        asked.append(point)
    return asked


def find_best(landscape: Landscape, points: list[Point]) -> float:
    times = [landscape(SPACE.encode(point)) for point in points]
    return min(time for time in times if time is not None)


@pytest.mark.parametrize("make_landscape", [make_separable, make_deceptive, make_failing])
@pytest.mark.parametrize("mode", ["GA", "RL", "RL,GA"])
def test_guided_search_is_within_3_percent_of_the_best(mode: str, make_landscape: Callable[[int], Landscape]) -> None:
    gaps = []
    for seed in (1, 2, 3):
        landscape = make_landscape(seed)
        found = find_best(landscape, search(mode, landscape, seed, SPACE.size // 10))
        gaps.append(found / find_best(landscape, list(SPACE.points())) - 1)
    assert sorted(gaps)[1] < 0.03, gaps


@pytest.mark.parametrize("mode", MODES)
def test_the_budget_is_kept_and_only_valid_points_are_requested(mode: str) -> None:
    asked = search(mode, make_separable(5), 5, 50)
    assert len(asked) == 50
    assert all(SPACE.explain_invalid(point) is None for point in asked)
    assert asked[0] == DEFAULT


@pytest.mark.parametrize("mode", ["GA", "RL", "RL,GA", "random"])
def test_a_search_repeats_for_its_seed_and_resumes_from_its_journal(mode: str) -> None:
    landscape = make_deceptive(7)
    complete = search(mode, landscape, 7, 90)
    np.random.seed(99)  # the global random state plays no part
    resumed = make_searcher(mode, SPACE, 7, 90)
    for point in complete[:60]:
        assert resumed.ask() == point
        resumed.tell(point, landscape(SPACE.encode(point)))
    remaining = []
    while (point := resumed.ask()) is not None:
        resumed.tell(point, landscape(SPACE.encode(point)))
        remaining.append(point)
    assert remaining == complete[60:]
    assert search(mode, landscape, 8, 90) != complete


@pytest.mark.parametrize("mode", ["GA", "RL", "RL,GA"])
def test_a_space_where_everything_fails_ends(mode: str) -> None:
    searcher = make_searcher(mode, SPACE, 1, 60)
    while (point := searcher.ask()) is not None:
        searcher.tell(point, None)
    assert searcher.best is None
    assert len(searcher.asked) == 60


def test_modes_have_the_names_of_the_ascend_documents_and_others_are_refused() -> None:
    assert type(make_searcher("ga", SMALL, 0)) is MODES["GA"]
    assert type(make_searcher("GA|RL", SMALL, 0)) is type(make_searcher("RL, GA", SMALL, 0)) is MODES["RL,GA"]
    with pytest.raises(UnknownName, match="no search mode called 'annealing'"):
        make_searcher("annealing", SMALL, 0)


@pytest.mark.process
def test_searching_does_not_import_torch() -> None:
    command = "import sys, viaduct.tuning.search; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command]).returncode == 0
