"""Replacement of the forward method of known modules of a network by one that uses our kernels.

Weights, names and checkpoints stay the same. Only passes in training mode change; evaluation runs the original forward.
A bottleneck in another precision than that of the kernels runs its original forward, too; stems and AmoebaNet always
compute in the kernels' precision. Bottleneck blocks are recognised by their structure (parts.py); blocks of other
packages are first checked (self_check.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels import amoebanet
from viaduct.kernels.bottleneck import BottleneckFunction
from viaduct.kernels.copies import Copies
from viaduct.kernels.fused import FuseReport, set_report, unfuse
from viaduct.kernels.parts import BottleneckParts
from viaduct.kernels.self_check import check_block
from viaduct.kernels.stem import StemFunction
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.padding import SameConv2d, same_padding
from viaduct.models.resnet import Stem

LOGGER = logging.getLogger("viaduct")
MAX_ELEMENTS = 2**31 - 1  # elements of a tensor: kernels compute offsets in 32 bits
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton's kernels run on the CPU, for tests
SEPARATE_STEM = "the layers of the stem are no module of their own, which our kernel would need"


def fuse(network: nn.Module, dtype: torch.dtype) -> int:
    """Make known parts of the network run on our kernels, computing in `dtype`; return their number."""
    return len(fuse_parts(network, dtype).fused)


def fuse_parts(network: nn.Module, dtype: torch.dtype) -> FuseReport:
    """Make known parts of the network run on our kernels; return the report, which is also stored in the network.

    Kernels of an earlier call are removed first.
    """
    unfuse(network)
    copies = Copies(dtype)
    outcomes = list(replace_forwards(network, copies))
    if copies.weights:
        copies.attach(network)
    fused = tuple(name for name, reason in outcomes if reason is None)
    unfused = tuple((name, reason) for name, reason in outcomes if reason is not None)
    obstacle = None if outcomes else "the model has no bottleneck block, which they are for"
    return set_report(network, FuseReport(fused, unfused, obstacle))


def replace_forwards(network: nn.Module, copies: Copies) -> Iterator[tuple[str, str | None]]:
    """Replace the forward methods of supported parts.

    Yield the name of each replaced part with None, and of each similar part with the reason why it is not replaced.
    """
    for name, module in network.named_modules():
        if isinstance(module, Stem):
            if can_fuse_stem(module):
                module.forward = partial(run_stem, module, copies.dtype)  # type: ignore[method-assign]
                yield name, None
        elif isinstance(module, AmoebaNet):
            if has_plain_norms(module) and amoebanet.can_fuse_network(module):
                copies.add(amoebanet.list_convolutions(module))
                module.forward = partial(run_amoebanet, module, copies)  # type: ignore[method-assign]
                yield from ((f"{name}.cells.{cell}".lstrip("."), None) for cell in module.cells)
                yield name, None
        elif has_separate_stem(module):
            yield f"{name}.conv1".lstrip("."), SEPARATE_STEM
        elif (outcome := check_block(module)) is not None:
            if isinstance(outcome, BottleneckParts):
                copies.add(outcome.convolutions)
                module.forward = partial(run_bottleneck, module, outcome, copies)
            yield name, outcome if isinstance(outcome, str) else None


def has_separate_stem(module: nn.Module) -> bool:
    """Return True for a network whose stem is a few layers beside its stages, as in torchvision and timm."""
    conv, pool = getattr(module, "conv1", None), getattr(module, "maxpool", None)
    return isinstance(conv, nn.Module) and isinstance(pool, nn.Module) and hasattr(module, "layer1")


def has_plain_norms(module: nn.Module) -> bool:
    """Return True if all norms are plain batch norms with weights and a fixed momentum."""
    norms = list_norms(module)
    return all(type(layer) is nn.BatchNorm2d and layer.affine and layer.momentum is not None for layer in norms)


def list_norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def is_training_pass(module: nn.Module, images: Tensor) -> bool:
    """Return True if a module and all its norms are in training mode, and the images are on a card."""
    is_training = module.training and all(norm.training for norm in list_norms(module))
    return is_training and (images.is_cuda or INTERPRETED)


def can_fuse_stem(stem: Stem) -> bool:
    """Return True for a 7x7 convolution with stride 2 from 3 to 64 channels, a plain norm and a pool."""
    conv = stem.conv
    shape = (conv.kernel_size, conv.stride, conv.in_channels, conv.out_channels)
    has_known_shape = shape == ((7, 7), (2, 2), 3, 64)
    return has_known_shape and not isinstance(stem.pool, nn.Identity) and has_plain_norms(stem)


def run_bottleneck(block: Any, parts: BottleneckParts, copies: Copies, *inputs: Any, **kwargs: Any) -> Any:
    """Run a bottleneck on our kernels, or its own forward if they do not support the pass."""
    if kwargs or len(inputs) != 1 or not can_compute(block, parts, copies, inputs[0]):
        return type(block).forward(block, *inputs, **kwargs)
    (x,) = inputs
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        return BottleneckFunction.apply(x, parts, copies.get(parts.convolutions), *parts.parameters)  # type: ignore[no-untyped-call]


def can_compute(block: nn.Module, parts: BottleneckParts, copies: Copies, x: Tensor) -> bool:
    """Return True if our kernels compute this pass: in training, on a card, in their precision, of supported size."""
    if not block.training or not all(norm.training for _, norm in parts.layers):
        return False
    if not (x.is_cuda or INTERPRETED) or x.ndim != 4:
        return False
    count, channels, height, width = x.shape
    widest = max(channels, *(conv.out_channels for conv in parts.convolutions))
    if count * height * width * widest > MAX_ELEMENTS:
        return False
    if count * height * width <= 4:  # after a stride of 2 a channel may have one value, which torch's norm refuses
        return False
    return is_in_precision(x, copies)


def is_in_precision(x: Tensor, copies: Copies) -> bool:
    """Return True if autocast, or else the dtype of x, is the precision of the kernels; log a mismatch once."""
    kind = x.device.type
    precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if precision != copies.dtype and not copies.has_logged_precision:
        copies.has_logged_precision = True
        text = "blocks run as written, because they compute in %s here and viaduct's kernels in %s"
        LOGGER.warning(text, precision, copies.dtype)
    return precision == copies.dtype


def run_stem(stem: Any, dtype: torch.dtype, images: Tensor) -> Tensor:
    """Run a stem on our kernels, or its own forward if they do not support the pass.

    They support training passes on square images that need no gradient, with a side that is a multiple of 4.
    """
    height, width = images.shape[2:]
    is_too_large = images.shape[0] * stem.conv.out_channels * height * width // 4 > MAX_ELEMENTS
    if not is_training_pass(stem, images) or images.requires_grad or height % 4 or height != width or is_too_large:
        return type(stem).forward(stem, images)  # type: ignore[no-any-return]
    padding = same_padding(height, 7, 2)[0] if isinstance(stem.conv, SameConv2d) else int(stem.conv.padding[0])
    pool = same_padding(height // 2, 3, 2)[0]
    output: Tensor = StemFunction.apply(  # type: ignore[no-untyped-call]
        images, stem.conv.weight, stem.norm.weight, stem.norm.bias, stem.norm, padding, pool, dtype
    )
    return output


def run_amoebanet(network: Any, copies: Copies, images: Tensor) -> Any:
    """Run AmoebaNet on our kernels, or its own forward outside of training passes and if a tensor is too large."""
    # The first cell is the widest at the stem's image size; cells of half the size have twice as many channels.
    first = next(iter(network.cells.values()))
    channels = max(int(first.outputs), network.stem.conv0.out_channels)
    largest = images.shape[0] * images.shape[2] * images.shape[3] // 4 * channels
    if not is_training_pass(network, images) or largest > MAX_ELEMENTS:
        return type(network).forward(network, images)
    weights = copies.get(amoebanet.list_convolutions(network))
    return amoebanet.forward(network, weights, copies.dtype, images)
