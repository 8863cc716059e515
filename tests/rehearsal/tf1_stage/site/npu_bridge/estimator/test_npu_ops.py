"""Operators of the NPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


@pytest.mark.parametrize(("call", "reason"), [("dropout int", "floating point tensor"), ("dropout 0", "range (0, 1]")])
def test_dropout_of_integers_or_of_everything_is_refused(check_answers: dict[str, Any], call: str, reason: str) -> None:
    assert reason in check_answers[call]


def test_dropout_scales_what_it_keeps_and_keeping_all_changes_nothing(check_answers: dict[str, Any]) -> None:
    assert check_answers["dropout 1"]
    dropped = np.array(check_answers["dropped"])
    assert set(np.unique(dropped)) == {0.0, 4.0}
    assert 0.2 < (dropped > 0).mean() < 0.3


def test_lars_scales_a_gradient_with_decay_by_the_ratio_of_norms(check_answers: dict[str, Any]) -> None:
    ratio = 0.001 * 5.0 / (1.0 + 0.1 * 5.0)
    assert np.allclose(check_answers["lars"], ratio * (np.array([0.6, 0.8]) + 0.1 * np.array([3.0, 4.0])))


def test_communication_starts_with_the_operator_for_it(check_answers: dict[str, Any]) -> None:
    assert check_answers["rank"] == [1, 0]


def test_what_is_sent_out_of_a_graph_is_received_in_order_and_a_channel_can_be_emptied(
    layer_answers: dict[str, Any],
) -> None:
    assert layer_answers["shapes"] == [[2], [1]]
    assert layer_answers["received"] == [[-4.0, -3.0], [7]]
    assert layer_answers["after_stop"] == [[-4.0, -3.0], [7]], "the second message of before is gone, this is the third"
