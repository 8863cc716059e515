"""Inputs and outputs of a graph, which all formats share."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.handover.classifier import Classifier
from viaduct.handover.exporting.format import describe_tensors, load_format
from viaduct.handover.exporting.request import INPUTS, ExportRequest


def test_a_shape_names_the_sizes_that_are_not_fixed(classifier: Classifier) -> None:
    port, outputs = describe_tensors(classifier, ExportRequest("pt2", Path("m.pt2"), "pixels"), None)
    assert str(port) == "pixels: uint8 batch x height x width x 3"
    assert [str(output) for output in outputs] == ["probabilities: float32 batch x 10", "classes: int64 batch"]


def test_fixed_sizes_are_numbers(classifier: Classifier) -> None:
    port, outputs = describe_tensors(classifier, ExportRequest("pt2", Path("m.pt2"), "pixels", batch=4), (32, 30))
    assert (port.shape, outputs[1].shape) == ((4, 32, 30, 3), (4,))
    port, _ = describe_tensors(classifier, ExportRequest("pt2", Path("m.pt2"), "tensor", batch=4), None)
    assert port.shape == (4, 3, 32, 32)


@pytest.mark.parametrize("form", sorted(INPUTS))
def test_every_format_says_what_it_needs_without_needing_it(form: str) -> None:
    needed = {"onnx": "onnx", "savedmodel": "tensorflow", "frozen-pb": "tensorflow"}
    assert load_format(form).WRITER_PACKAGES[:1] == ((needed[form],) if form in needed else ())
