"""TensorFlow 1 graphs: how loops are written, and what goes in and out. What they compute: test_savedmodel.py."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from viaduct import recipes
from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.tf_graph import convert_batch, convert_outputs, describe_strings, use_control_flow_v1


class ControlFlow:
    """The switch of tf.compat.v1 between loops of TensorFlow 2 and those of TensorFlow 1."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.compat = SimpleNamespace(v1=self)

    def control_flow_v2_enabled(self) -> bool:
        return self.enabled

    def disable_control_flow_v2(self) -> None:
        self.enabled = False

    def enable_control_flow_v2(self) -> None:
        self.enabled = True


@pytest.mark.parametrize("enabled", [True, False])
def test_the_callers_control_flow_setting_is_restored_after_an_error(enabled: bool) -> None:
    tf = ControlFlow(enabled)
    with suppress(KeyError), use_control_flow_v1(tf):
        assert not tf.enabled
        raise KeyError
    assert tf.enabled is enabled


def test_encoded_images_of_one_length_stay_separate() -> None:
    strings = convert_batch([b"ab\0", b"cd\0"])  # NumPy's own strings drop the zero at the end
    assert strings.tolist() == [b"ab\0", b"cd\0"]
    pixels = np.zeros((1, 2, 2, 3), np.float32)
    assert convert_batch(pixels) is pixels


def test_a_graph_that_takes_images_of_one_size_says_so(classifier: Classifier) -> None:
    assert describe_strings(classifier) == "string (JPEG, PNG of 32x32 pixels, no other)"
    records: Any = replace(classifier, recipe=recipes.load("resnet18_imagenet").recipe)
    assert describe_strings(records) == "string (JPEG, PNG)"


def test_results_come_in_the_order_of_every_runtime() -> None:
    probabilities, classes = convert_outputs({"classes": [1], "probabilities": [[0.25, 0.75]]})
    assert (probabilities.tolist(), classes.tolist()) == ([[0.25, 0.75]], [1])
