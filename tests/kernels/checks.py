"""Our kernels against the same arithmetic in float64: relative errors of everything that they compute, by case.

    TRITON_INTERPRET=1 python tests/kernels/checks.py        every case on the CPU, as JSON; slow, so cases are small

On a card tests/gpu calls the same cases, larger and in bf16. Inputs are drawn anew for every seed.
"""

from __future__ import annotations

import copy
import json
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.kernels import grouped, norm, stem
from viaduct.kernels.fuse import fuse
from viaduct.models.padding import SameConv2d, max_pool_same, same_padding
from viaduct.models.resnet import Bottleneck, Style
from viaduct.models.resnext import GroupedBottleneck

Errors = dict[str, float]


def apart(ours: Tensor, reference: Tensor) -> float:
    ours, reference = ours.detach().double(), reference.detach().double()
    return float((ours - reference).norm() / reference.norm().clamp_min(1e-30))


def pictures(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=device).to(dtype).contiguous(memory_format=torch.channels_last)


def lively(layer: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """A norm whose weights and statistics are not what they begin with."""
    for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
        nn.init.uniform_(tensor, 0.5, 1.5)
    return layer


def check_stem(
    same: bool, size: int = 16, count: int = 2, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Errors:
    images = pictures(count, 3, size, size, device=device, dtype=dtype)
    conv = SameConv2d(3, 64, 7, 2) if same else nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
    layer = lively(nn.BatchNorm2d(64)).to(device)
    conv = conv.to(device)
    conv.weight.data = conv.weight.data.to(dtype).float()  # so that only the arithmetic differs
    true_conv, true_norm = copy.deepcopy(conv).double(), copy.deepcopy(layer).double()
    padding = same_padding(size, 7, 2)[0] if same else 3
    pool = same_padding(size // 2, 3, 2)[0]
    y = stem.StemFunction.apply(images, conv.weight, layer.weight, layer.bias, layer, padding, pool, dtype)
    true = max_pool_same(F.relu(true_norm(true_conv(images.double()))), 3, 2)
    gradient = pictures(*true.shape, device=device, dtype=dtype)
    y.backward(gradient)
    true.backward(gradient.double())
    return {
        "output": apart(y, true),
        "weight": apart(conv.weight.grad, true_conv.weight.grad),
        "gamma": apart(layer.weight.grad, true_norm.weight.grad),
        "beta": apart(layer.bias.grad, true_norm.bias.grad),
        "running mean": apart(layer.running_mean, true_norm.running_mean),
        "running variance": apart(layer.running_var, true_norm.running_var),
    }


def check_blocks(
    kind: type[Bottleneck], same: bool, filters: int, size: int = 8, count: int = 2, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Errors:  # fmt: skip
    """A strided block with a projection and one without, one behind the other."""
    style = Style(same=same)
    network = nn.Sequential(kind(32, filters, 2, style, True), kind(filters * kind.expansion, filters, 1, style))
    network = network.to(device, memory_format=torch.channels_last)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            lively(layer)
        elif isinstance(layer, nn.Conv2d):
            layer.weight.data = layer.weight.data.to(dtype).float()
    reference = copy.deepcopy(network).double()
    assert fuse(network, dtype) == 2
    x = pictures(count, 32, size, size, device=device, dtype=dtype).requires_grad_()
    true_x = x.detach().double().requires_grad_()
    y, true = network(x), reference(true_x)
    gradient = pictures(*true.shape, device=device, dtype=dtype)
    y.backward(gradient)
    true.backward(gradient.double())
    pairs = zip(network.named_parameters(), reference.parameters(), strict=True)
    buffers = zip(network.named_buffers(), reference.buffers(), strict=True)
    return {
        "output": apart(y, true),
        "input": apart(x.grad, true_x.grad),
        **{name: apart(one.grad, two.grad) for (name, one), two in pairs},
        **{name: apart(one, two) for (name, one), two in buffers},
    }


def check_grouped(
    channels: int, groups: int, stride: int, size: int, same: bool = False, count: int = 2, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Errors:  # fmt: skip
    """The two ways back that are ours, whether or not a network would take them for this layer."""
    conv: nn.Conv2d = nn.Conv2d(channels, channels, 3, stride, 1, groups=groups, bias=False)
    if same:
        conv = SameConv2d(channels, channels, 3, stride, groups)
    conv = conv.to(device)
    weight = conv.weight.detach().to(dtype).contiguous(memory_format=torch.channels_last)
    x = pictures(count, channels, size, size, device=device, dtype=dtype)
    reference = copy.deepcopy(conv).double()
    reference.weight.data = weight.double()
    true_x = x.double().requires_grad_()
    true = reference(true_x)
    gradient = pictures(*true.shape, device=device, dtype=dtype)
    true.backward(gradient.double())
    return {
        "input": apart(grouped.input_gradient(gradient, x, weight, conv), true_x.grad),
        "weight": apart(grouped.weight_gradient(gradient, x, conv), reference.weight.grad),
    }


def check_norm(rows: int, channels: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Errors:
    """Far from zero, where sums of squares would cancel."""
    x = (torch.randn(rows, channels, device=device) + (100 if dtype == torch.float32 else 4)).to(dtype)
    layer = lively(nn.BatchNorm2d(channels)).to(device)
    reference = copy.deepcopy(layer).double()
    found = norm.settle(norm.statistics(x), rows, layer)
    true_x = x.double().requires_grad_()
    true = F.relu(reference(true_x[:, :, None, None])[:, :, 0, 0])
    gradient = torch.randn(rows, channels, device=device).to(dtype)
    true.backward(gradient.double())
    sums = norm.gradient_sums(gradient, x, found)
    return {
        "output": apart(norm.line(x, found), true),
        "input": apart(norm.input_gradient(gradient, x, found, sums, relu=True), true_x.grad),
        "gamma": apart(sums.product, reference.weight.grad),
        "beta": apart(sums.total, reference.bias.grad),
        "running variance": apart(layer.running_var, reference.running_var),
    }


CASES = {
    "stem": lambda: check_stem(same=False),
    "stem SAME": lambda: check_stem(same=True),
    "bottleneck": lambda: check_blocks(Bottleneck, same=False, filters=16),
    "bottleneck SAME, odd size": lambda: check_blocks(Bottleneck, same=True, filters=16, size=7),
    "grouped bottleneck": lambda: check_blocks(GroupedBottleneck, same=True, filters=128, size=6),
    "groups of 4": lambda: check_grouped(128, 32, 1, 7),
    "groups of 4, stride 2, SAME": lambda: check_grouped(128, 32, 2, 8, same=True),
    "groups of 8, stride 2, SAME, odd size": lambda: check_grouped(128, 16, 2, 7, same=True),
    "groups of 32, stride 2": lambda: check_grouped(128, 4, 2, 8),
    "norm": lambda: check_norm(203, 72),
    "norm of one row tile": lambda: check_norm(5, 8),
}

if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    torch.set_num_threads(1)
    json.dump({name: case() for name, case in CASES.items()}, sys.stdout, indent=1)
