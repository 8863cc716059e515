"""Horizontal bars of counts."""

from __future__ import annotations

import pytest

from viaduct.reporting import BarChart


def test_the_longest_bar_has_full_length_and_shares_add_up():
    bars = BarChart("b", ["equal", "1"], [30, 10]).drawing()
    assert [(bar.length, bar.count, bar.share) for bar in bars] == [
        (1.0, "30", "75.0\xa0%"),
        (1 / 3, "10", "25.0\xa0%"),
    ]


def test_labels_without_counts_are_refused():
    with pytest.raises(ValueError, match="2 labels for 1 counts"):
        BarChart("b", ["x", "y"], [1])
