"""Put the kernels of this folder into a network: known parts get another forward pass.

Weights, names and checkpoints stay as they are. Only training passes change: an evaluation runs as it is written, and
so does a pass in another precision. Bottleneck blocks are known by their structure (parts.py), and one that is not of
our own classes is run beside the known arithmetic before it is taken over (self_check.py).
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
MOST = 2**31 - 1  # numbers in a tensor: kernels compute offsets in 32 bits
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton's kernels run on the CPU, for tests
SEPARATE_STEM = "the layers of the stem are no module of their own, which our kernel would need"


def fuse(network: nn.Module, dtype: torch.dtype) -> int:
    """Make known parts of the network run on our kernels, computing in `dtype`; return how many."""
    return len(fuse_parts(network, dtype).fused)


def fuse_parts(network: nn.Module, dtype: torch.dtype) -> FuseReport:
    """Do the same, and return which parts these are and which are not; the network keeps the report."""
    unfuse(network)
    copies = Copies(dtype)
    fused, unfused = [], []
    for name, outcome in visit(network, copies):
        if outcome is None:
            fused.append(name)
        else:
            unfused.append((name, outcome))
    if copies.weights:
        copies.attach(network)
    obstacle = None if fused or unfused else "it has no bottleneck block, which they are for"
    return set_report(network, FuseReport(tuple(fused), tuple(unfused), obstacle))


def visit(network: nn.Module, copies: Copies) -> Iterator[tuple[str, str | None]]:
    """Put kernels into the parts that they fit; yield names of parts, with a reason where they do not fit."""
    for name, module in network.named_modules():
        if isinstance(module, Stem):
            if stem_fits(module):
                module.forward = partial(stem_forward, module, copies.dtype)  # type: ignore[method-assign]
                yield name, None
        elif isinstance(module, AmoebaNet):
            if norms_fit(module) and amoebanet.network_fits(module):
                copies.add(amoebanet.convolutions(module))
                module.forward = partial(amoebanet_forward, module, copies)  # type: ignore[method-assign]
                yield from ((f"{name}.cells.{cell}".lstrip("."), None) for cell in module.cells)
                yield name, None  # and the stem's norm
        elif has_separate_stem(module):
            yield f"{name}.conv1".lstrip("."), SEPARATE_STEM
        elif (outcome := check_block(module)) is not None:
            if isinstance(outcome, BottleneckParts):
                copies.add(outcome.convolutions)
                module.forward = partial(bottleneck_forward, module, outcome, copies)
            yield name, outcome if isinstance(outcome, str) else None


def has_separate_stem(module: nn.Module) -> bool:
    """Return True for a network whose stem is a few layers beside its stages, as torchvision's and timm's."""
    conv, pool = getattr(module, "conv1", None), getattr(module, "maxpool", None)
    return isinstance(conv, nn.Module) and isinstance(pool, nn.Module) and hasattr(module, "layer1")


def norms_fit(module: nn.Module) -> bool:
    """Return True for plain batch norms with weights and a fixed momentum; SyncBN needs other ranks."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    return all(type(layer) is nn.BatchNorm2d and layer.affine and layer.momentum is not None for layer in norms)


def stem_fits(stem: Stem) -> bool:
    conv = stem.conv
    shaped = conv.kernel_size == (7, 7) and conv.stride == (2, 2) and conv.in_channels == 3 and conv.out_channels == 64
    return shaped and not isinstance(stem.pool, nn.Identity) and norms_fit(stem)


def bottleneck_forward(block: Any, parts: BottleneckParts, copies: Copies, *inputs: Any, **named: Any) -> Any:
    if named or len(inputs) != 1 or not can_compute(block, parts, copies, inputs[0]):
        return type(block).forward(block, *inputs, **named)
    (x,) = inputs
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        return BottleneckFunction.apply(x, parts, copies.get(parts.convolutions), *parts.parameters)  # type: ignore[no-untyped-call]


def can_compute(block: nn.Module, parts: BottleneckParts, copies: Copies, x: Tensor) -> bool:
    """Return True if our kernels compute this pass: in training, on the card, in their precision, of usual sizes."""
    if not block.training or not all(norm.training for _, norm in parts.layers):
        return False
    if not (x.is_cuda or INTERPRETED) or x.ndim != 4:
        return False
    count, channels, height, width = x.shape
    widest = max(channels, *(conv.out_channels for conv in parts.convolutions))
    if count * height * width * widest > MOST or count * height * width <= 4:  # the latter: torch's own error
        return False
    return is_in_precision(x, copies)


def is_in_precision(x: Tensor, copies: Copies) -> bool:
    """Return True if the network computes in the precision of the kernels: by autocast, or because its tensors do."""
    kind = x.device.type
    precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    if precision != copies.dtype and not copies.is_precision_noted:
        copies.is_precision_noted = True
        LOGGER.warning(
            "blocks run as written, because they compute in %s here and viaduct's kernels in %s",
            precision,
            copies.dtype,
        )
    return precision == copies.dtype


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


def amoebanet_forward(network: Any, copies: Copies, images: Tensor) -> Any:
    largest = images.shape[0] * images.shape[2] * images.shape[3] // 4 * widest(network)
    if not network.training or largest > MOST:
        return type(network).forward(network, images)
    weights = copies.get(amoebanet.convolutions(network))
    return amoebanet.forward(network, weights, copies.dtype, images)


def widest(network: AmoebaNet) -> int:
    """Return the most channels of images as large as the stem's: cells of half the size have twice as many."""
    first = next(iter(network.cells.values()))
    return max(int(first.outputs), network.stem.conv0.out_channels)  # type: ignore[arg-type]
