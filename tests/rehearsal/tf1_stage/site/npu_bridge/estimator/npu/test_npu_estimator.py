"""Estimators of the NPU: params, host calls, multiples of the loop."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.tf1_scripts import needs_tensorflow
from rehearsal.tf1_stage.site.npu_bridge.estimator.npu.descent import descent

pytestmark = needs_tensorflow


def test_params_for_a_model_function_without_them_are_refused(layer_answers: dict[str, Any]) -> None:
    assert "ValueError" in layer_answers["params"]
    assert "does not include params argument" in layer_answers["params"]


@pytest.mark.parametrize(("call", "reason"), [("host call", "length of tensors does not match")])
def test_a_host_call_whose_function_takes_other_tensors_is_refused(
    check_answers: dict[str, Any], call: str, reason: str
) -> None:
    assert reason in check_answers[call]


def test_the_host_call_runs_after_every_step(layer_answers: dict[str, Any]) -> None:
    _, losses = descent(4, bias=True)
    trained = [[float(number), pytest.approx(loss, rel=1e-5)] for number, loss in enumerate(losses[:3], 1)]
    assert layer_answers["heard"] == [*trained, *[[3.0, pytest.approx(losses[3], rel=1e-5)]] * 2], (
        "and of each evaluation"
    )
    assert layer_answers["evaluated"] == pytest.approx(losses[3], rel=1e-5)
