"""A Keras model as an NPUEstimator."""

from __future__ import annotations

from typing import Any

import numpy as np

from rehearsal.tf1_scripts import needs_tensorflow
from rehearsal.tf1_stage.site.npu_bridge.estimator.npu.descent import descent

pytestmark = needs_tensorflow


def test_a_keras_model_trains_as_an_npu_estimator(layer_answers: dict[str, Any]) -> None:
    assert layer_answers["converted"] == ["NPUEstimator", 2]
    assert np.allclose(layer_answers["kernel"], descent(2, bias=False)[0])
