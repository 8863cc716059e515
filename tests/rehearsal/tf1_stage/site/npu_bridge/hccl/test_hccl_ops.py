"""Collectives as operators: what is refused when a graph is built."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("call", "reason"), [("broadcast", "Expected list")])
def test_a_broadcast_of_one_tensor_that_is_no_list_is_refused(
    check_answers: dict[str, Any], call: str, reason: str
) -> None:
    assert reason in check_answers[call]
