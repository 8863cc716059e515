"""Weights are recognised without building a network, and those of other networks are not."""

from __future__ import annotations

import pytest

from viaduct.weights import recognise
from viaduct.weights.fingerprints import (
    Shape,
    compute_fingerprints,
    has_known_names,
    load_fingerprints,
    recognise_exactly,
)

TENSORFLOW, FILE = "TensorFlow checkpoint", "safetensors file"


def torch_shapes(name: str, classes: int) -> dict[str, Shape]:
    return {key: tuple(value.shape) for key, value in recognise.build_on_meta(name, classes).state_dict().items()}


def tensorflow_shapes(name: str, classes: int, layout: str = "") -> dict[str, Shape]:
    return recognise.list_tf_variables(recognise.build_on_meta(name, classes), layout)


@pytest.mark.lengthy
def test_the_table_is_that_of_the_networks() -> None:
    assert load_fingerprints() == compute_fingerprints(), "run `python -m viaduct.weights.fingerprints`"


@pytest.mark.parametrize(
    ("name", "layout"),
    [("resnet50_v1", ""), ("resnet20_cifar_v2", ""), ("resnext50", "a"), ("resnext50", "b"), ("amoebanet_d", "")],
)
def test_the_answer_is_that_of_comparing_with_every_network(name: str, layout: str) -> None:
    shapes = tensorflow_shapes(name, 7, layout)
    slots = {f"{key}/Momentum": shape for key, shape in shapes.items()}
    assert recognise_exactly(TENSORFLOW, {**shapes, **slots, "global_step": ()}) == [(name, 7)]
    assert [(guess.model, guess.classes) for guess in recognise.recognise_tensorflow(shapes)] == [(name, 7)]
    own = torch_shapes(name, 7)
    assert recognise_exactly(FILE, own) == [(guess.model, guess.classes) for guess in recognise.recognise_torch(own)]


def test_an_auxiliary_head_may_be_absent() -> None:
    shapes = {key: shape for key, shape in torch_shapes("amoebanet_d", 10).items() if not key.startswith("aux.")}
    assert recognise_exactly(FILE, shapes) == [("amoebanet_d", 10)]


def test_what_nearly_fits_is_left_to_the_comparison() -> None:
    shapes = tensorflow_shapes("resnet18_v1", 10)
    one_less = dict(list(shapes.items())[1:])
    misshaped = {**shapes, "resnet_model/conv2d/kernel": (7, 7, 3, 65)}
    more = {**shapes, "resnet_model/conv2d_99/kernel": (1, 1, 1, 1)}
    for other in (one_less, misshaped, more):
        assert recognise_exactly(TENSORFLOW, other) == []
        assert has_known_names(TENSORFLOW, other)


@pytest.mark.parametrize("shapes", [{}, {"fc.weight": (10, 512)}, {"dense/bias": ()}, {"": ()}])
def test_weights_of_other_networks_are_not_recognised(shapes: dict[str, Shape]) -> None:
    for kind in (TENSORFLOW, FILE):
        assert recognise_exactly(kind, shapes) == []
        assert not has_known_names(kind, shapes)


def test_a_head_without_axes_is_no_head() -> None:
    assert recognise_exactly(FILE, {"head.bias": (), "head.weight": ()}) == []
    assert recognise_exactly(TENSORFLOW, {"resnet_model/dense/bias": ()}) == []
