"""Put the kernels of this folder into a network: known parts get another forward pass.

Weights, names and checkpoints stay as they are. Only training passes change: an evaluation runs as it is written.
Before each of them the weights of convolutions are brought to the precision of computation, all at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import amoebanet
from viaduct.kernels.bottleneck import BottleneckFunction, Weights, layers_of, parameters_of
from viaduct.kernels.stem import StemFunction
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.padding import SameConv2d, same_padding
from viaduct.models.resnet import Bottleneck, Stem

MOST = 2**31 - 1  # numbers in a tensor: kernels compute offsets in 32 bits


def fuse(network: nn.Module, dtype: torch.dtype) -> int:
    """Make known parts of the network run on our kernels, computing in `dtype`; return how many."""
    weights: Weights = {}
    parts = 0
    for module in network.modules():
        if isinstance(module, Bottleneck) and block_fits(module):
            weights |= {conv: in_precision(conv.weight, dtype) for conv, _ in layers_of(module)}
            module.forward = partial(bottleneck_forward, module, weights)  # type: ignore[method-assign]
        elif isinstance(module, Stem) and stem_fits(module):
            module.forward = partial(stem_forward, module, dtype)  # type: ignore[method-assign]
        elif isinstance(module, AmoebaNet) and norms_fit(module) and amoebanet.network_fits(module):
            weights |= {conv: in_precision(conv.weight, dtype) for conv in amoebanet.convolutions(module)}
            module.forward = partial(amoebanet_forward, module, weights, dtype)  # type: ignore[method-assign]
            parts += len(module.cells)  # and the stem's norm
        else:
            continue
        parts += 1
    if weights:
        network.register_forward_pre_hook(partial(refresh, weights))
    return parts


def in_precision(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.detach() if weight.dtype == dtype else torch.empty_like(weight, dtype=dtype, requires_grad=False)


@torch.no_grad()
def refresh(weights: Weights, network: nn.Module, inputs: Any) -> None:
    stale = [(copy, conv.weight) for conv, copy in weights.items() if copy.dtype != conv.weight.dtype]
    if network.training and stale:
        torch._foreach_copy_([copy for copy, _ in stale], [weight for _, weight in stale])


def norms_fit(module: nn.Module) -> bool:
    """Return True for plain batch norms with weights and a fixed momentum; SyncBN needs other ranks."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    return all(type(layer) is nn.BatchNorm2d and layer.affine and layer.momentum is not None for layer in norms)


def block_fits(block: Bottleneck) -> bool:
    pointwise = block.conv1.kernel_size == block.conv3.kernel_size == (1, 1) and block.conv1.stride == (1, 1)
    sixteens = all(conv.out_channels % 16 == 0 for conv in (block.conv1, block.conv3))
    return pointwise and sixteens and norms_fit(block)


def stem_fits(stem: Stem) -> bool:
    conv = stem.conv
    shaped = conv.kernel_size == (7, 7) and conv.stride == (2, 2) and conv.in_channels == 3 and conv.out_channels == 64
    return shaped and not isinstance(stem.pool, nn.Identity) and norms_fit(stem)


def bottleneck_forward(block: Any, weights: Weights, x: Tensor) -> Tensor:
    if not block.training or x.shape[0] * block.conv3.out_channels * x.shape[2] * x.shape[3] > MOST:
        return type(block).forward(block, x)  # type: ignore[no-any-return]
    y: Tensor = BottleneckFunction.apply(x, block, weights, *parameters_of(block))  # type: ignore[no-untyped-call]
    return y


def stem_forward(stem: Any, dtype: torch.dtype, images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    large = images.shape[0] * 64 * height * width // 4 > MOST
    if not stem.training or images.requires_grad or height % 4 or height != width or large:
        return type(stem).forward(stem, images)  # type: ignore[no-any-return]
    padding = same_padding(height, 7, 2)[0] if isinstance(stem.conv, SameConv2d) else int(stem.conv.padding[0])
    pool = same_padding(height // 2, 3, 2)[0]
    made: Tensor = StemFunction.apply(  # type: ignore[no-untyped-call]
        images, stem.conv.weight, stem.norm.weight, stem.norm.bias, stem.norm, padding, pool, dtype
    )
    return made


def amoebanet_forward(network: Any, weights: Weights, dtype: torch.dtype, images: Tensor) -> Any:
    largest = images.shape[0] * images.shape[2] * images.shape[3] // 4 * widest(network)
    if not network.training or largest > MOST:
        return type(network).forward(network, images)
    return amoebanet.forward(network, weights, dtype, images)


def widest(network: AmoebaNet) -> int:
    """Return the most channels of images as large as the stem's: cells of half the size have twice as many."""
    first = next(iter(network.cells.values()))
    return max(int(first.outputs), network.stem.conv0.out_channels)  # type: ignore[arg-type]
