"""The same weights and the same images give the same logits as a TensorFlow graph that was written apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from viaduct import models

tensorflow = pytest.importorskip("tensorflow", reason="checks networks against TensorFlow; install viaduct[tf]")

from references import tf_networks  # noqa: E402
from references.carry_values import Values, carry  # noqa: E402

tf = tensorflow.compat.v1

CLASSES = 11
RESNETS = {
    "resnet18_v1": {"blocks": (1, 2), "filters": (8, 16)},
    "resnet50_v1": {"blocks": (2, 1), "filters": (8, 16)},
    "resnet18_v2": {"blocks": (1, 2), "filters": (8, 16)},
    "resnet50_v2": {"blocks": (2, 1), "filters": (8, 16)},
    "resnet20_cifar": {"blocks": (1, 2, 1)},
    "resnet20_cifar_v2": {"blocks": (1, 2, 1)},
    "resnet50_v15": {"blocks": (2, 1), "filters": (8, 16)},
    "resnext50": {"blocks": (2, 1), "filters": (32, 64), "stem_filters": 8},
}
AMOEBANET = {"cells": 3, "filters": 16, "stem_filters": 8}


def images(height: int, width: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(height * width).standard_normal((count, height, width, 3), dtype=np.float32)


def reference(name: str, images_NHWC: np.ndarray, **options: Any) -> tuple[list[np.ndarray], Values]:
    """Return the output of a fresh random graph, and the values of its variables."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(7)
        build = tf_networks.build_amoebanet if name == "amoebanet_d" else one_answer(name)
        answers = [answer for answer in build(tf.constant(images_NHWC), CLASSES, **options) if answer is not None]
        session.run(tf.global_variables_initializer())
        variables = {variable.op.name: variable for variable in tf.global_variables()}
        logits, values = session.run((answers, variables))
    return logits, {name: values[name] for name in variables}


def one_answer(name: str) -> Any:
    return lambda images, classes, **options: [tf_networks.build(name, images, classes, **options)]


def ours(network: nn.Module, images_NHWC: np.ndarray) -> list[Tensor]:
    with torch.no_grad():
        answer = network(torch.from_numpy(images_NHWC).permute(0, 3, 1, 2))
    return list(answer) if isinstance(answer, tuple) else [answer]


def error(ours: Tensor, theirs: np.ndarray) -> float:
    expected = torch.from_numpy(theirs)
    return ((ours - expected).abs().max() / expected.abs().max()).item()


def assert_alike(name: str, size: tuple[int, int], build: dict[str, Any], **options: Any) -> None:
    images_NHWC = images(*size)
    (theirs, *_), values = reference(name, images_NHWC, training=False, **build, **options)
    network = models.build(name, CLASSES, **build).eval()
    carry(values, network)
    (logits,) = ours(network, images_NHWC)
    assert error(logits, theirs) < 1e-5


@pytest.mark.parametrize("size", [(32, 32), (45, 38), (47, 33)])
@pytest.mark.parametrize("name", RESNETS)
def test_small_networks_have_the_logits_of_tensorflow(name: str, size: tuple[int, int]) -> None:
    assert_alike(name, size, RESNETS[name])


@pytest.mark.parametrize("size", [(32, 32), (47, 33)])
def test_resnexts_older_layout_holds_the_same_kernels(size: tuple[int, int]) -> None:
    assert_alike("resnext50", size, RESNETS["resnext50"], layout="b")


@pytest.mark.parametrize("size", [(64, 64), pytest.param((75, 90), marks=pytest.mark.slow)])
def test_amoebanet_has_the_logits_of_tensorflow(size: tuple[int, int]) -> None:
    assert_alike("amoebanet_d", size, {**AMOEBANET, "aux": False})


@pytest.mark.parametrize("size", [75, pytest.param(131, marks=pytest.mark.slow)])
def test_amoebanets_two_heads_have_the_logits_of_tensorflow_in_training(size: int) -> None:
    # In double precision: over a batch of a few cells, norms magnify what rounding leaves.
    images_NHWC = images(size, size).astype(np.float64)
    theirs, values = reference("amoebanet_d", images_NHWC, training=True, **AMOEBANET)
    network = models.build("amoebanet_d", CLASSES, image=size, dropout_keep=1.0, **AMOEBANET).double().train()
    carry(values, network)
    logits = ours(network, images_NHWC)
    assert len(logits) == len(theirs) == 2
    for mine, other in zip(logits, theirs, strict=True):
        assert error(mine, other) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("size", [(96, 96), (75, 75)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet18_v1", {}),
        ("resnet50_v1", {}),
        ("resnet50_v2", {}),
        ("resnet50_v15", {}),
        ("resnext50", {"layout": "a"}),
        ("resnext50", {"layout": "b"}),
        ("amoebanet_d", {"aux": False}),
    ],
)
def test_whole_networks_have_the_logits_of_tensorflow(
    name: str, options: dict[str, Any], size: tuple[int, int]
) -> None:
    shared = {key: value for key, value in options.items() if key != "layout"}
    assert_alike(name, size, shared, **{key: value for key, value in options.items() if key == "layout"})
