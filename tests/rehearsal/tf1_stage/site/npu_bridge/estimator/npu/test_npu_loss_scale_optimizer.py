"""Steps that overflow are skipped, and the scale follows them."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_a_step_that_overflows_is_skipped_and_changes_the_scale(check_answers: dict[str, Any]) -> None:
    # Good, two bad (skipped; the scale falls to 0.8 of it), two good (it doubles), good.
    assert check_answers["history"] == [
        [pytest.approx(expected) for expected in row]
        for row in ([0.75, 16, 1], [0.75, 16, 1], [0.75, 12.8, 1], [0.25, 12.8, 2], [-0.25, 25.6, 3], [-1.25, 25.6, 4])
    ]


def test_attributes_are_those_of_the_inner_optimizer(check_answers: dict[str, Any]) -> None:
    assert check_answers["forwarded"] == 0.25
