"""Marks of operators for the NPU's compiler."""

from __future__ import annotations

from typing import Any

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_operators_made_in_the_scope_are_marked_for_the_host(check_answers: dict[str, Any]) -> None:
    assert check_answers["mark"] is True
