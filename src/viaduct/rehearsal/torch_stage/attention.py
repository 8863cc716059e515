"""torch.nn.functional.scaled_dot_product_attention on the card, by the CPU's kernels, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from viaduct.rehearsal.torch_stage.cards import get_card_index, put_on_card, to_cpu

_aten = torch.ops.aten
_FLASH = 1  # SDPBackend.FLASH_ATTENTION


def _choose_kernel(*args: Any, **options: Any) -> int:
    """Return the number of the kernel that the CPU chooses, flash attention or the composed one ("math").

    CUDA has two more, memory-efficient and cuDNN attention. If a script allows only these, flash attention is allowed
    in their place.
    """
    cuda: Any = torch.backends.cuda
    allows_cuda_kernel = cuda.mem_efficient_sdp_enabled() or cuda.cudnn_sdp_enabled()
    if cuda.flash_sdp_enabled() or cuda.math_sdp_enabled() or not allows_cuda_kernel:
        return int(_aten._fused_sdp_choice.default(*args, **options))
    cuda.enable_flash_sdp(True)
    try:
        return int(_aten._fused_sdp_choice.default(*args, **options))
    finally:
        cuda.enable_flash_sdp(False)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute attention with the kernel that the CPU would choose; with `enable_gqa` always with the composed one.

    By itself PyTorch would always compose attention on the card from matrix products and a softmax.
    """
    tensors = [to_cpu(tensor) for tensor in (query, key, value, attn_mask)]
    options = {"scale": scale, "enable_gqa": enable_gqa}
    if _choose_kernel(*tensors, dropout_p, is_causal, **options) == _FLASH and not enable_gqa:
        mask = attn_mask
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
        # This operator has no enable_gqa. Its kernels for the card are `forward` and `backward` below.
        operator = _aten._scaled_dot_product_fused_attention_overrideable.default
        return operator(query, key, value, mask, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]
    composed = _aten._scaled_dot_product_attention_math.default
    return composed(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]  # type: ignore[no-any-return]


def forward(
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> Any:
    """Compute flash attention by the CPU's kernel; the outputs are those of CUDA's kernel, some of them empty."""
    index = get_card_index(query)
    q, k, v, mask = map(to_cpu, (query, key, value, attn_bias))
    kernel = _aten._scaled_dot_product_flash_attention_for_cpu.default
    output, logsumexp = kernel(q, k, v, dropout_p, is_causal, attn_mask=mask, scale=scale)
    # CUDA's kernel also returns cumulative lengths, a random state and a debug mask; here these are empty.
    empty = [torch.empty(0, dtype=torch.int64, device="cpu") for _ in range(5)]
    cum_seq_q, cum_seq_k, *others = [put_on_card(tensor, index) for tensor in empty]
    lengths = query.shape[-2], key.shape[-2]
    return put_on_card(output, index), put_on_card(logsumexp, index), cum_seq_q, cum_seq_k, *lengths, *others


def backward(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_bias: Any,
    grad_input_mask: Any,
    out: Any,
    logsumexp: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *philox: Any,
    scale: float | None = None,
) -> Any:
    """Compute the gradients of flash attention; the gradient of the mask is None."""
    index = get_card_index(query)
    mask = to_cpu(attn_bias)
    kernel = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    tensors = map(to_cpu, (grad_out, query, key, value, out, logsumexp))
    grads = kernel(*tensors, dropout_p, is_causal, attn_mask=mask, scale=scale)
    return *(put_on_card(grad, index) for grad in grads), None


ATTENTION_KERNELS: dict[str, Callable[..., Any]] = {
    "scaled_dot_product_attention": attention,
    "_scaled_dot_product_fused_attention_overrideable": forward,
    "_scaled_dot_product_fused_attention_overrideable_backward": backward,
}
