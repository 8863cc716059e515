"""Spaces: what is a point, what rules prune, and which declarations are refused."""

from __future__ import annotations

import pytest

from viaduct.errors import BadValue
from viaduct.search_space import Parameter, Point, Space

ROWS = Parameter("rows", (8, 16, 32))
WARPS = Parameter("warps", (1, 2, 4))


def limit_threads(point: Point) -> str | None:
    threads = int(point["rows"]) * int(point["warps"])
    return f"{threads} threads are more than 64" if threads > 64 else None


def test_points_are_all_combinations_that_no_rule_forbids() -> None:
    space = Space([ROWS, WARPS], [limit_threads], default={"rows": 8, "warps": 1})
    assert space.size == len(list(space.points())) == 8
    assert space.combinations == 9
    assert {"rows": 32, "warps": 4} not in list(space.points())
    assert space.explain_invalid({"rows": 32, "warps": 4}) == "128 threads are more than 64"
    assert space.explain_invalid({"rows": 32, "warps": 2}) is None


def test_points_of_another_kind_are_explained() -> None:
    space = Space([ROWS, Parameter("flag", (False, True))], default={"rows": 8, "flag": True})
    assert space.explain_invalid({"rows": 8}) == "'flag' is missing"
    assert space.explain_invalid({"rows": 9, "flag": True}) == "rows = 9 is none of (8, 16, 32)"
    assert space.explain_invalid({"rows": 8, "flag": True, "x": 1}) == "there is no parameter 'x'"
    assert "flag = 1" in str(space.explain_invalid({"rows": 8, "flag": 1}))


def test_codes_and_points_are_inverse() -> None:
    space = Space([ROWS, WARPS], [limit_threads], default={"rows": 8, "warps": 1})
    assert [space.encode(space.decode(code)) for code in space.codes] == list(space.codes)
    with pytest.raises(BadValue, match="not a point"):
        space.encode({"rows": 32, "warps": 4})


def test_a_neighbour_is_moved_to_the_closest_values() -> None:
    space = Space([ROWS, WARPS], [limit_threads], default={"rows": 8, "warps": 2})
    assert space.adapt({"rows": 20}) == {"rows": 16, "warps": 2}
    assert space.adapt({"rows": 64, "warps": 8}) is None  # the closest point breaks a rule
    assert space.adapt({"rows": "many"}) is None


def test_hints_that_a_rule_forbids_are_left_out() -> None:
    hints = ({"rows": 32, "warps": 4}, {"rows": 16, "warps": 4})
    space = Space([ROWS, WARPS], [limit_threads], default={"rows": 8, "warps": 1}, hints=hints)
    assert space.hints == ({"rows": 16, "warps": 4},)


def test_bad_spaces_are_refused() -> None:
    default = {"rows": 8, "warps": 1}
    with pytest.raises(BadValue, match="no values"):
        Parameter("rows", ())
    with pytest.raises(BadValue, match="a value twice"):
        Parameter("rows", (8, 8))
    with pytest.raises(BadValue, match="no parameters"):
        Space([], default={})
    with pytest.raises(BadValue, match="two parameters called 'rows'"):
        Space([ROWS, ROWS], default=default)
    with pytest.raises(BadValue, match="default of the tuning space is not in it: rows = 7"):
        Space([ROWS, WARPS], default={"rows": 7, "warps": 1})
    with pytest.raises(BadValue, match="hint of the tuning space is not in it"):
        Space([ROWS, WARPS], default=default, hints=({"rows": 8},))
    with pytest.raises(BadValue, match=r"default .* is not valid: 128 threads"):
        Space([ROWS, WARPS], [limit_threads], default={"rows": 32, "warps": 4})
    with pytest.raises(BadValue, match="no valid point"):
        Space([ROWS, WARPS], [lambda point: "never"], default=default)
    with pytest.raises(BadValue, match="combinations"):
        Space([Parameter(f"p{i}", tuple(range(10))) for i in range(7)], default={f"p{i}": 0 for i in range(7)})
