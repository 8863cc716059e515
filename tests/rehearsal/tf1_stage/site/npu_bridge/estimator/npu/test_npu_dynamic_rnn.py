"""Recurrent layers, compared with TensorFlow's and Keras' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rehearsal.tf1_scripts import needs_tensorflow

pytestmark = needs_tensorflow


def test_an_lstm_is_that_of_tensorflow(check_answers: dict[str, Any]) -> None:
    assert check_answers["rnn_outputs"] == 8
    for mine, theirs in (("rnn", "rnn_expected"), ("rnn_h", "rnn_last_h"), ("rnn_c", "rnn_last_c")):
        assert np.allclose(check_answers[mine], check_answers[theirs], atol=1e-6), mine


def test_recurrent_layers_are_those_of_keras(layer_answers: dict[str, Any]) -> None:
    for after in ("True", "False"):
        mine, theirs = layer_answers[f"gru {after}"]
        assert np.allclose(mine, theirs, atol=1e-6), after
    assert layer_answers["gru_outputs"] == 6
    assert np.allclose(layer_answers["ended"], 0), "behind the end of a sequence"
    assert np.allclose(*layer_answers["swapped"], atol=1e-6), "rzh: the second third is the update gate"
    assert "zrh" in layer_answers["order"]


def test_attention_weakens_the_update_gate(layer_answers: dict[str, Any]) -> None:
    outputs, all_new, unchanged = layer_answers["augru"]
    assert outputs == 7
    assert all_new == pytest.approx(0, abs=1e-6), "full attention forgets the state"
    assert unchanged == 0, "no attention is a GRU"
    assert layer_answers["learns"] == [True] * 4
