"""Loops on the device."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("call", "reason"), [("train op", "instance of tf.Operation")])
def test_a_loop_around_a_tensor_is_refused(check_answers: dict[str, Any], call: str, reason: str) -> None:
    assert reason in check_answers[call]


def test_a_loop_of_five_is_five_steps_and_a_skipped_step_is_one_too(check_answers: dict[str, Any]) -> None:
    assert (check_answers["looped"], check_answers["once"]) == (5.0, 4.0)
    assert check_answers["steps"] == 6 + 5 + 1
