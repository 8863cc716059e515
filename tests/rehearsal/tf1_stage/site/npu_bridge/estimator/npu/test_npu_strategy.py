"""The strategy of one device whose replicas are the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from rehearsal.tf1_scripts import needs_tensorflow
from rehearsal.tf1_stage.site.npu_bridge.estimator.npu.descent import descent

pytestmark = needs_tensorflow


def test_a_keras_model_fits_on_the_strategy_and_is_broadcast_once(layer_answers: dict[str, Any]) -> None:
    assert layer_answers["strategy"] == [1, True]
    assert np.allclose(layer_answers["fitted"], descent(2, bias=False)[0])
