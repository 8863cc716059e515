"""torch_npu.npu_fusion_attention by its formula; transformers and Megatron call it on an NPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.nn import functional

_TOP_LEFT, _DOWN_RIGHT = 2, 3  # values of sparse_mode: causal masks aligned to this corner


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = 2147483647,
    next_tockens: int = 2147483647,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple[Any, ...]:
    """Return the attention's output, and empty tensors and zeros in place of the kernel's state for its backward.

    The parameters that are not used repeat what `atten_mask` contains, or choose how the kernel computes.
    """
    if sparse_mode not in (0, 1, _TOP_LEFT, _DOWN_RIGHT) or prefix is not None:
        unsupported = f"sparse_mode {sparse_mode}" if prefix is None else "prefix"
        raise NotImplementedError(
            f"The stand-in for npu_fusion_attention does not compute {unsupported}; "
            "it has sparse_mode 0 to 3 without prefix."
        )
    attend = functools.partial(
        _attend, heads=head_num, pse=pse, mask=atten_mask, scale=scale, dropout=1 - keep_prob, mode=sparse_mode
    )
    if input_layout == "TND":  # the sequences of a batch are concatenated, without padding
        spans = zip(_make_slices(actual_seq_qlen), _make_slices(actual_seq_kvlen), strict=True)
        output = torch.cat([attend(query[q][None], key[k][None], value[k][None], "BSND")[0] for q, k in spans])
    else:
        output = attend(query, key, value, input_layout)
    return output, *(query.new_empty(0) for _ in range(3)), 0, 0, 0


def _make_slices(ends: Any) -> list[slice]:
    """Return the slices of concatenated sequences, given their ends."""
    ends = [int(end) for end in ends]
    return [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: str,
    *,
    heads: int,
    pse: torch.Tensor | None,
    mask: torch.Tensor | None,
    scale: float,
    dropout: float,
    mode: int,
) -> torch.Tensor:
    """Return the attention of a batch with axes as in `layout` (BSND). `mask` is True at positions to ignore."""
    width = query.shape[-1] if layout in ("BNSD", "BSND") else query.shape[-1] // heads
    q, k, v = (_split_heads(tensor, layout, width) for tensor in (query, key, value))
    if mode in (_TOP_LEFT, _DOWN_RIGHT):
        offset = 1 + (k.shape[2] - q.shape[2] if mode == _DOWN_RIGHT else 0)
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(offset)
    bias = None if mask is None else ~mask.bool()  # for scaled_dot_product_attention: True at positions to attend to
    if pse is not None:  # added to the scores
        bias = pse if mask is None else pse.masked_fill(mask.bool(), float("-inf"))
    grouped = q.shape[1] != k.shape[1]  # grouped-query attention: fewer heads of keys
    output = functional.scaled_dot_product_attention(q, k, v, bias, dropout, scale=scale, enable_gqa=grouped)
    return _join_heads(output, layout)


def _split_heads(tensor: torch.Tensor, layout: str, width: int) -> torch.Tensor:
    """Return a tensor as batch, heads, sequence, width."""
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    if layout == "BSH":
        return tensor.reshape(*tensor.shape[:2], -1, width).transpose(1, 2)
    if layout == "SBH":
        return tensor.reshape(*tensor.shape[:2], -1, width).permute(1, 2, 0, 3)
    raise ValueError(f"npu_fusion_attention has no input_layout {layout!r}: BSH, SBH, BNSD, BSND or TND.")


def _join_heads(output: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "BNSD":
        return output
    if layout == "BSND":
        return output.transpose(1, 2)
    return output.transpose(1, 2).flatten(2) if layout == "BSH" else output.permute(2, 0, 1, 3).flatten(2)
