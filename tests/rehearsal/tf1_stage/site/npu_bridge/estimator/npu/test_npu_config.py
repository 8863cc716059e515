"""NPURunConfig: the checks of its arguments, and when it saves."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("loops", "iterations_per_loop must be"),
        ("mixed", '"iterations_per_loop" must be 1'),
        ("jit", '"jit_compile" type must be str'),
        ("mode", '"graph_run_mode" value must be 0 or 1'),
        ("dump class", "`DumpConfig`"),
    ],
)
def test_arguments_that_the_real_class_refuses_are_refused(
    check_answers: dict[str, Any], call: str, reason: str
) -> None:
    assert reason in check_answers[call]


def test_without_an_interval_it_saves_every_100_steps_and_seconds_replace_them(check_answers: dict[str, Any]) -> None:
    assert check_answers["checkpoints"] == [100, None]
