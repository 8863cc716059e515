"""Values of a TensorFlow graph into one of our networks, for comparisons.

ResNets match by order alone: both sides list their layers as TensorFlow creates them. AmoebaNet matches by
name. The maps that people use are elsewhere and know more; these are kept simple so that one can check the other.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

Values = dict[str, np.ndarray]  # by TensorFlow's names, in the order of creation

NORM = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


def carry(values: Values, network: nn.Module) -> None:
    """Fill every parameter and every statistic of the network; fail on anything left over."""
    state = by_name(values) if "stem/conv0/weights" in values else by_order(values, network)
    lacking = network.load_state_dict(state, strict=False).missing_keys
    assert all(key.endswith("num_batches_tracked") for key in lacking), lacking


def by_order(values: Values, network: nn.Module) -> dict[str, Tensor]:
    kernels = [value for value in merge_groups(values) if value.ndim == 4]
    convs = [f"{name}.weight" for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)]
    state = {key: kernel(value) for key, value in zip(convs, kernels, strict=True)}
    norms = [name for name, layer in network.named_modules() if isinstance(layer, nn.BatchNorm2d)]
    for leaf, ours in NORM.items():
        leaves = [value for name, value in values.items() if name.endswith(f"/{leaf}")]
        state |= {f"{name}.{ours}": torch.from_numpy(value) for name, value in zip(norms, leaves, strict=True)}
    (weight,), (bias,) = ([value for name, value in values.items() if name.endswith(end)] for end in ENDS)
    return {**state, "head.weight": torch.from_numpy(weight.T.copy()), "head.bias": torch.from_numpy(bias)}


ENDS = ("dense/kernel", "dense/bias")


def merge_groups(values: Values) -> list[np.ndarray]:
    """ResNeXt's older layout has 32 kernels of 3x3 in a row where the newer one has one."""
    arrays = list(values.values())
    small = [
        index for index, value in enumerate(arrays) if value.ndim == 4 and value.shape[:3] == (3, 3, value.shape[3])
    ]
    if not small or not any(name.startswith("fp32_vars") for name in values):
        return arrays
    for first in reversed(small[::32]):
        arrays[first : first + 32] = [np.concatenate(arrays[first : first + 32], axis=3)]
    return arrays


def by_name(values: Values) -> dict[str, Tensor]:
    return {amoebanet_name(name): kernel(value) for name, value in values.items()}


def amoebanet_name(name: str) -> str:
    *scopes, leaf = name.split("/")
    leaf = NORM.get(leaf) or {"weights": "weight", "biases": "bias"}[leaf]
    if scopes[0] == "final_layer":
        return f"head.{leaf}"
    if scopes[0].startswith("aux_"):
        words = {"FC": "head", "Conv": "conv"}
        return ".".join(("aux", words.get(scopes[2], scopes[2]), leaf))
    if scopes[0] == "stem":
        return ".".join((*scopes, leaf))
    if len(scopes) == 2:
        scopes.insert(1, "entry" if scopes[1] in ("1x1", "beginning_bn") else "previous")
    scopes[-1] = f"conv_{scopes[-1]}" if scopes[-1][0].isdigit() else scopes[-1]
    if scopes[1].startswith("comb_iter_"):
        scopes[1:2] = ["combinations", scopes[1].removeprefix("comb_iter_")]
    return ".".join(("cells", *scopes, leaf))


def kernel(value: np.ndarray) -> Tensor:
    order = {4: (3, 2, 0, 1), 2: (1, 0)}.get(value.ndim, tuple(range(value.ndim)))
    return torch.from_numpy(np.ascontiguousarray(value.transpose(order)))
