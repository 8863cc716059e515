"""AmoebaNet's forward pass in training on our kernels, equivalent to `AmoebaNet.forward`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from viaduct.kernels.cell import CellPass, can_fuse_cell, find_wirings, list_readers
from viaduct.kernels.copies import Weights
from viaduct.kernels.pooling import Pool, apply_pool
from viaduct.kernels.terms import MAX_READERS, Term, sum_terms
from viaduct.models.amoebanet import AmoebaNet
from viaduct.models.amoebanet_cells import Cell, relu_in_place
from viaduct.models.resnet import at_least_float32


def can_fuse_network(network: AmoebaNet) -> bool:
    """Return True if our kernels support every cell, and the stem's output has no more readers than they support."""
    cells = [cell for cell in network.cells.values() if isinstance(cell, Cell) and can_fuse_cell(cell)]
    return len(cells) == len(network.cells) and len(list_stem_readers(cells[0])) <= MAX_READERS


def list_stem_readers(first: Cell) -> list[bool]:
    """Return a list of the operations that read the stem's output: True for those that read it through a ReLU.

    In the first cell it is the second state, and through a ReLU the input; the second cell reads it through a ReLU.
    """
    return [*list_readers(find_wirings(first)[1]), True, True]


def list_convolutions(network: AmoebaNet) -> list[nn.Conv2d]:
    """Return the convolutions whose weights the cells need in the precision of computation."""
    return [layer for layer in network.cells.modules() if isinstance(layer, nn.Conv2d)]


def forward(network: AmoebaNet, weights: Weights, dtype: torch.dtype, images_NCHW: Tensor) -> Any:
    """Return the logits, or (logits, those of the auxiliary head) if there is one."""
    stem = network.stem.conv0(images_NCHW).to(dtype).contiguous(memory_format=torch.channels_last)
    first: Any = next(iter(network.cells.values()))
    # The stem's output for its readers: the first cell's second state, the first cell's input, and the second cell.
    *first_states, x, later = sum_terms([Term(stem, network.stem.conv0_bn)], list_stem_readers(first))
    previous: Tensor | list[Tensor] = first_states
    auxiliary = None
    for index, (name, cell) in enumerate(network.cells.items()):
        assert isinstance(cell, Cell)
        has_auxiliary = network.aux is not None and name == network.aux_after
        keep = network.compute_keep_probability(index)
        # Readers of a cell's output are the next two cells and the auxiliary head.
        outputs = CellPass(cell, weights, 3 if has_auxiliary else 2, keep).run(x, previous)
        previous, (x, later) = later, outputs[:2]
        if has_auxiliary:
            auxiliary = run_auxiliary_head(network.aux, outputs[2])
    logits = at_least_float32(network.head(network.dropout(x.mean((2, 3)))))
    return logits if auxiliary is None else (logits, auxiliary)


def run_auxiliary_head(head: Any, x_NCHW: Tensor) -> Tensor:
    """Return the auxiliary head's logits, with our kernel for its pool."""
    head.check_size(x_NCHW)
    features = apply_pool(x_NCHW, Pool(size=5, stride=3, average=True, valid_only=True))
    features = relu_in_place(head.aux_bn0(head.proj(features)))
    features = relu_in_place(head.aux_bn1(head.conv(features)))
    return at_least_float32(head.head(features.flatten(1)))
