"""Optimizers of several ranks."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("call", "reason"), [("no manager", "loss_scale_manager can not be None")])
def test_a_loss_scale_without_a_manager_is_refused(check_answers: dict[str, Any], call: str, reason: str) -> None:
    assert reason in check_answers[call]
