"""Replace the forward method of known modules of a network by one that uses our kernels.

Weights, names and checkpoints stay the same. Only passes in training mode change; evaluation runs the original
forward. Before each training pass all weights of convolutions are cast to the precision of computation at once.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import amoebanet
from viaduct.kernels.bottleneck import BottleneckFunction, Weights, list_layers, list_parameters
from viaduct.kernels.stem import StemFunction
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.padding import SameConv2d, same_padding
from viaduct.models.resnet import Bottleneck, Stem

MAX_ELEMENTS = 2**31 - 1  # of a tensor: kernels compute offsets in 32 bits


def fuse(network: nn.Module, dtype: torch.dtype) -> int:
    """Make known modules of the network run on our kernels, computing in `dtype`; return their number."""
    weights: Weights = {}
    fused = 0
    for module in network.modules():
        if isinstance(module, Bottleneck) and can_fuse_block(module):
            weights |= {conv: make_cast_copy(conv.weight, dtype) for conv, _ in list_layers(module)}
            module.forward = partial(bottleneck_forward, module, weights)  # type: ignore[method-assign]
        elif isinstance(module, Stem) and can_fuse_stem(module):
            module.forward = partial(stem_forward, module, dtype)  # type: ignore[method-assign]
        elif isinstance(module, AmoebaNet) and has_plain_norms(module) and amoebanet.can_fuse_network(module):
            weights |= {conv: make_cast_copy(conv.weight, dtype) for conv in amoebanet.convolutions(module)}
            module.forward = partial(amoebanet_forward, module, weights, dtype)  # type: ignore[method-assign]
            fused += len(module.cells)  # the stem's norm is counted below
        else:
            continue
        fused += 1
    if weights:
        network.register_forward_pre_hook(partial(update_cast_copies, weights))
    return fused


def make_cast_copy(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight itself if it has the dtype, else an empty copy that `update_cast_copies` fills."""
    return weight.detach() if weight.dtype == dtype else torch.empty_like(weight, dtype=dtype, requires_grad=False)


@torch.no_grad()
def update_cast_copies(weights: Weights, network: nn.Module, inputs: Any) -> None:
    """Copy the weights into their casts before a training pass (a forward pre-hook)."""
    outdated = [(copy, conv.weight) for conv, copy in weights.items() if copy.dtype != conv.weight.dtype]
    if network.training and outdated:
        torch._foreach_copy_([copy for copy, _ in outdated], [weight for _, weight in outdated])


def has_plain_norms(module: nn.Module) -> bool:
    """Return True for plain batch norms with weights and a fixed momentum; SyncBN needs other ranks."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    return all(type(layer) is nn.BatchNorm2d and layer.affine and layer.momentum is not None for layer in norms)


def can_fuse_block(block: Bottleneck) -> bool:
    """Return True for 1x1, any and 1x1 convolution, with multiples of 16 channels and plain norms."""
    pointwise = block.conv1.kernel_size == block.conv3.kernel_size == (1, 1) and block.conv1.stride == (1, 1)
    has_aligned_channels = all(conv.out_channels % 16 == 0 for conv in (block.conv1, block.conv3))
    return pointwise and has_aligned_channels and has_plain_norms(block)


def can_fuse_stem(stem: Stem) -> bool:
    """Return True for a 7x7 convolution with stride 2 from 3 to 64 channels, a plain norm and a pool."""
    conv = stem.conv
    has_known_shape = (
        conv.kernel_size == (7, 7) and conv.stride == (2, 2) and conv.in_channels == 3 and conv.out_channels == 64
    )
    return has_known_shape and not isinstance(stem.pool, nn.Identity) and has_plain_norms(stem)


def bottleneck_forward(block: Any, weights: Weights, x: Tensor) -> Tensor:
    """Run a bottleneck on our kernels; in evaluation, or if a tensor is too large, its own forward."""
    if not block.training or x.shape[0] * block.conv3.out_channels * x.shape[2] * x.shape[3] > MAX_ELEMENTS:
        return type(block).forward(block, x)  # type: ignore[no-any-return]
    y: Tensor = BottleneckFunction.apply(x, block, weights, *list_parameters(block))  # type: ignore[no-untyped-call]
    return y


def stem_forward(stem: Any, dtype: torch.dtype, images: Tensor) -> Tensor:
    """Run a stem on our kernels; in evaluation, or if the size is not supported, its own forward."""
    height, width = images.shape[2:]
    is_too_large = images.shape[0] * 64 * height * width // 4 > MAX_ELEMENTS
    if not stem.training or images.requires_grad or height % 4 or height != width or is_too_large:
        return type(stem).forward(stem, images)  # type: ignore[no-any-return]
    padding = same_padding(height, 7, 2)[0] if isinstance(stem.conv, SameConv2d) else int(stem.conv.padding[0])
    pool = same_padding(height // 2, 3, 2)[0]
    output: Tensor = StemFunction.apply(  # type: ignore[no-untyped-call]
        images, stem.conv.weight, stem.norm.weight, stem.norm.bias, stem.norm, padding, pool, dtype
    )
    return output


def amoebanet_forward(network: Any, weights: Weights, dtype: torch.dtype, images: Tensor) -> Any:
    """Run AmoebaNet on our kernels; in evaluation, or if a tensor is too large, its own forward."""
    largest = images.shape[0] * images.shape[2] * images.shape[3] // 4 * count_widest_channels(network)
    if not network.training or largest > MAX_ELEMENTS:
        return type(network).forward(network, images)
    return amoebanet.forward(network, weights, dtype, images)


def count_widest_channels(network: AmoebaNet) -> int:
    """Return the most channels at the stem's image size; cells of half the size have twice as many channels."""
    first = next(iter(network.cells.values()))
    return max(int(first.outputs), network.stem.conv0.out_channels)  # type: ignore[arg-type]
