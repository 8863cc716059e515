"""AmoebaNet's training pass on our kernels; it computes what `AmoebaNet.forward` does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels.cell import Pass, cell_fits, find_wirings, readers_of
from viaduct.kernels.copies import Weights
from viaduct.kernels.pooling import Pool, apply_pool
from viaduct.kernels.terms import MOST_READERS, Term, state
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.amoebanet_cells import Cell, activated
from viaduct.models.resnet import at_least_float32


def network_fits(network: AmoebaNet) -> bool:
    cells = [cell for cell in network.cells.values() if isinstance(cell, Cell) and cell_fits(cell)]
    return len(cells) == len(network.cells) and len(stem_readers(cells[0])) <= MOST_READERS


def stem_readers(first: Cell) -> list[bool]:
    """The first cell reads the stem as its second state, and with a ReLU as its input; so does the second cell."""
    return [*readers_of(find_wirings(first)[1]), True, True]


def convolutions(network: AmoebaNet) -> list[nn.Conv2d]:
    """Return the convolutions whose weights the cells need in the precision of computation."""
    return [layer for layer in network.cells.modules() if isinstance(layer, nn.Conv2d)]


def forward(network: AmoebaNet, weights: Weights, dtype: torch.dtype, images_NCHW: Tensor) -> Any:
    stem = network.stem.conv0(images_NCHW).to(dtype).contiguous(memory_format=torch.channels_last)
    first: Any = next(iter(network.cells.values()))
    *given, x, later = state([Term(stem, network.stem.conv0_bn)], stem_readers(first))
    previous: Tensor | list[Tensor] = given
    auxiliary = None
    for index, (name, cell) in enumerate(network.cells.items()):
        assert isinstance(cell, Cell)
        watched = network.aux is not None and name == network.aux_after
        made = Pass(cell, weights, 3 if watched else 2, network.keep(index)).run(x, previous)
        previous, (x, later) = later, made[:2]
        if watched:
            auxiliary = auxiliary_head(network.aux, made[2])
    logits = at_least_float32(network.head(network.dropout(x.mean((2, 3)))))
    return logits if auxiliary is None else (logits, auxiliary)


def auxiliary_head(head: Any, x_NCHW: Tensor) -> Tensor:
    head.refuse_another_size(x_NCHW)
    features = apply_pool(x_NCHW, Pool(5, 3, average=True, whole=True))
    features = activated(head.aux_bn0(head.proj(features)))
    features = activated(head.aux_bn1(head.conv(features)))
    return at_least_float32(head.head(features.flatten(1)))
