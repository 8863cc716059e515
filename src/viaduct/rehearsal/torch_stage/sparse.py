"""Sparse tensors on a card (COO, CSR, CSC, BSR, BSC), with the CPU's kernels.

A sparse tensor consists of parts, its indices and values, which are dense tensors. PyTorch has separate dispatch keys
for sparse tensors. Operators that need no values (STRUCTURE_OPERATORS) run the CPU's kernels on the card's tensors,
since these kernels do not check the device. All other operators use the fallback of `kernels.py`, on sparse CPU tensors
over the same memory. Quantized tensors are refused, and nested tensors other than jagged ones, which PyTorch composes
of ordinary tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import cards, get_card_index, put_on_card, view_on_cpu

_aten = torch.ops.aten
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)  # compressed by rows, the other two by columns
# Dispatch key of the CPU's sparse tensors by the key of a card's.
CPU_KEYS = {"SparsePrivateUse1": "SparseCPU", "SparseCsrPrivateUse1": "SparseCsrCPU"}
# Operators that make a sparse tensor from its parts, return a part or a fact, or change shape or flags; none computes
# with the values.
STRUCTURE_OPERATORS = (
    "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_indices", "_values", "indices",
    "values", "_nnz", "_dimI", "_dimV", "sparse_dim", "dense_dim", "is_coalesced", "_coalesced_", "crow_indices",
    "col_indices", "ccol_indices", "row_indices", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_",
)  # fmt: skip


def lower_sparse(tensor: torch.Tensor) -> torch.Tensor:
    """Return a card's sparse tensor as a sparse CPU tensor over the same memory."""
    return _join([view_on_cpu(part) for part in _split(tensor)], tensor)


def lift_sparse(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """Return a sparse tensor of card `index` over the memory of a sparse CPU tensor, counted as newly allocated."""
    if tensor.layout is not torch.sparse_coo and tensor.layout not in _COMPRESSED:
        raise NotImplementedError(f"A rehearsal has no tensors with the layout {tensor.layout} on a card.")
    return _join([put_on_card(part, index) for part in _split(tensor)], tensor)


def _split(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a sparse tensor's indices and values."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _BY_ROWS:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def _join(parts: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Return a sparse tensor of these parts on their device, with layout, dtype and shape of `like`."""
    index = get_card_index(parts[-1])
    device = torch.device(cards.device_name, index) if index >= 0 else torch.device("cpu")
    options = {"dtype": like.dtype, "layout": like.layout, "device": device}
    if like.layout is torch.sparse_coo:
        make = _aten._sparse_coo_tensor_unsafe.default
        return make(*parts, list(like.shape), is_coalesced=like.is_coalesced(), **options)  # type: ignore[no-any-return]
    return _aten._sparse_compressed_tensor_unsafe.default(*parts, list(like.shape), **options)  # type: ignore[no-any-return]


def reduce_products(self: torch.Tensor, other: torch.Tensor, reduce: str) -> tuple[torch.Tensor, ...]:
    """Compute torch.sparse.mm(self, other, reduce), for example with "amax" in place of the product's sums.

    Return the result and the indices that its backward pass needs.
    """
    with torch.enable_grad():  # without a gradient the CPU does not return the indices
        dense = view_on_cpu(other).requires_grad_()
        results = _aten._sparse_mm_reduce_impl.default(lower_sparse(self), dense, reduce)
    return tuple(put_on_card(result.detach(), get_card_index(other)) for result in results)


def refuse_nested(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f"A rehearsal has no nested tensors on the {cards.name_in_script}: pad the batch and give a mask, or, for "
        "torch.nested.nested_tensor, use layout=torch.jagged."
    )


def refuse_quantized(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(
        f"A rehearsal has no quantized tensors on the {cards.name_in_script}: quantize on the host, or leave it out."
    )


# Operators that make nested or quantized tensors, with the function that refuses them. DLPack, by which `put_on_card`
# makes a card's tensors, has neither.
REFUSED_OPERATORS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        ("_nested_tensor_from_mask", "_nested_tensor_from_tensor_list", "_nested_from_padded"), refuse_nested
    ),
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic"), refuse_quantized),
}
