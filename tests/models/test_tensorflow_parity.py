"""The same weights and the same images give the same logits in TensorFlow.

The reference is written here from raw TensorFlow operators, in NHWC, and knows nothing of our modules but the
names in their state dict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from viaduct import models
from viaduct.models.resnet import Style

tf = pytest.importorskip("tensorflow", reason="checks networks against TensorFlow; install viaduct[tf]")

Arrays = dict[str, np.ndarray]
Convolve = Callable[[Any, np.ndarray, int], Any]


def official_convolution(features, kernel_HWIO: np.ndarray, stride: int):
    if stride == 1:
        return tf.nn.conv2d(features, kernel_HWIO, 1, "SAME")
    total = kernel_HWIO.shape[0] - 1
    around = (total // 2, total - total // 2)
    return tf.nn.conv2d(tf.pad(features, ((0, 0), around, around, (0, 0))), kernel_HWIO, stride, "VALID")


def book_convolution(features, kernel_HWIO: np.ndarray, stride: int):
    return tf.nn.conv2d(features, kernel_HWIO, stride, "SAME")


class Reference:
    """A ResNet v1 of raw operators; blocks with three convolutions are bottlenecks."""

    def __init__(self, network: nn.Module, convolve: Convolve, epsilon: float) -> None:
        self.arrays: Arrays = {key: value.numpy() for key, value in network.state_dict().items()}
        self.convolve = convolve
        self.epsilon = epsilon

    def __call__(self, images_NHWC: np.ndarray):
        features = tf.nn.relu(self.layer(images_NHWC, "stem.conv", "stem.norm", self.stem_stride()))
        if self.stem_stride() == 2:
            features = tf.nn.max_pool2d(features, 3, 2, "SAME")
        for block in self.blocks():
            features = self.block(features, block)
        mean = tf.reduce_mean(features, (1, 2))
        return tf.matmul(mean, self.arrays["head.weight"], transpose_b=True) + self.arrays["head.bias"]

    def stem_stride(self) -> int:
        return 2 if self.arrays["stem.conv.weight"].shape[2] == 7 else 1

    def blocks(self) -> list[str]:
        ending = ".conv1.weight"
        return [key.removesuffix(ending) for key in self.arrays if key.endswith(ending)]

    def block(self, features, name: str):
        _, stage, index = name.split(".")
        stride = 2 if int(stage) > 0 and index == "0" else 1
        bottleneck = f"{name}.conv3.weight" in self.arrays
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        shortcut = features
        if index == "0":
            shortcut = self.layer(features, f"{name}.shortcut.conv", f"{name}.shortcut.norm", stride)
        for number, step in enumerate(strides, start=1):
            features = self.layer(features, f"{name}.conv{number}", f"{name}.norm{number}", step)
            if number < len(strides):
                features = tf.nn.relu(features)
        return tf.nn.relu(features + shortcut)

    def layer(self, features, conv: str, norm: str, stride: int):
        kernel_HWIO = self.arrays[f"{conv}.weight"].transpose(2, 3, 1, 0)
        keys = ("running_mean", "running_var", "bias", "weight")
        mean, variance, beta, gamma = (self.arrays[f"{norm}.{key}"] for key in keys)
        features = self.convolve(features, kernel_HWIO, stride)
        return tf.nn.batch_normalization(features, mean, variance, beta, gamma, self.epsilon)


def build_with_lively_norms(name: str) -> nn.Module:
    """A network whose norms look as if they had been trained."""
    torch.manual_seed(7)
    network = models.build(name, classes=11).eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
            nn.init.normal_(layer.running_mean, std=0.2)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return network


@pytest.mark.parametrize(
    ("name", "convolve", "epsilon", "size"),
    [
        ("resnet18_v1", official_convolution, 1e-5, (64, 64)),
        ("resnet18_v1", official_convolution, 1e-5, (75, 50)),
        ("resnet50_v1", official_convolution, 1e-5, (64, 64)),
        ("resnet20_cifar", official_convolution, 1e-5, (32, 32)),
        ("resnet50_book", book_convolution, 1e-4, (64, 64)),
        ("resnet50_book", book_convolution, 1e-4, (75, 50)),
    ],
)
def test_logits_are_tensorflows(name: str, convolve: Convolve, epsilon: float, size: tuple[int, int]) -> None:
    network = build_with_lively_norms(name)
    images_NHWC = np.random.default_rng(3).standard_normal((2, *size, 3), dtype=np.float32)
    expected = torch.from_numpy(Reference(network, convolve, epsilon)(images_NHWC).numpy())
    with torch.no_grad():
        logits = network(torch.from_numpy(images_NHWC).permute(0, 3, 1, 2))
    assert (logits - expected).abs().max() < 1e-5 * expected.abs().max()


def test_moving_statistics_are_tensorflows() -> None:
    norm = Style().norm(4)
    nn.init.uniform_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    features_NHWC = np.random.default_rng(5).standard_normal((3, 5, 6, 4), dtype=np.float32)
    _, mean, variance = tf.compat.v1.nn.fused_batch_norm(
        features_NHWC,
        norm.weight.detach().numpy(),
        norm.bias.detach().numpy(),
        norm.running_mean.numpy().copy(),
        norm.running_var.numpy().copy(),
        epsilon=1e-5,
        exponential_avg_factor=1 - 0.997,
    )
    norm(torch.from_numpy(features_NHWC).permute(0, 3, 1, 2))
    torch.testing.assert_close(norm.running_mean, torch.from_numpy(mean.numpy()))
    torch.testing.assert_close(norm.running_var, torch.from_numpy(variance.numpy()))
