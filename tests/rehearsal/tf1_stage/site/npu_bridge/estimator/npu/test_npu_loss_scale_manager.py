"""Managers of the loss scale."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("call", "reason"), [("small scale", "at least 1")])
def test_a_scale_below_one_is_refused(check_answers: dict[str, Any], call: str, reason: str) -> None:
    assert reason in check_answers[call]
