from __future__ import annotations

import pytest

from viaduct.benching.starts import Failed, Order, begin, measure


def test_a_start_that_fails_says_its_last_words() -> None:
    with pytest.raises(Failed, match="no recipe called 'nobody'"):
        begin(Order("nobody", [], "cpu", "synthetic"))


def test_a_variant_whose_start_fails_is_named_and_has_no_times() -> None:
    told: list[str] = []
    found, failed = measure([("ours", Order("shapes_taster", [("mode", "slow")], "cpu", "synthetic"))], told.append)
    assert found == {}
    assert "mode=slow" in failed["ours"]
    assert told == ["ours: start 1 of 2, in a process of its own"]
