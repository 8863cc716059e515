"""Operators of accelerators that have no CPU kernel, computed by their formulas.

They are the five operators of SyncBatchNorm, the fused cells of LSTM and GRU, and matrix products with a wider result
dtype. The operators of SyncBatchNorm compute in float32, as CUDA's fused kernels do for all inputs but float64, and
return normalised values and input gradients in the input's dtype. The cells compute in the dtype of their inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def _per_channel(vector: Tensor, like: Tensor) -> Tensor:
    """Return a vector with one value per channel, shaped to broadcast against a batch."""
    return vector.reshape(1, -1, *[1] * (like.dim() - 2))


def _reduced_dims(x: Tensor) -> list[int]:
    """Return all dimensions except the channels'."""
    return [dim for dim in range(x.dim()) if dim != 1]


def batch_norm_stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(input.float(), _reduced_dims(input), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return mean and inverse standard deviation over all ranks, and update the running statistics."""
    total = counts.sum()
    weight = (counts / total).reshape(-1, 1)  # of each rank
    total_mean = (mean * weight).sum(0)
    variance = ((invstd.pow(-2) - eps + (mean - total_mean).pow(2)) * weight).sum(0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_((momentum * total_mean).to(running_mean.dtype))
    if running_var is not None:
        running_var.mul_(1 - momentum).add_((momentum * variance * total / (total - 1)).to(running_var.dtype))
    return total_mean, torch.rsqrt(variance + eps)


def batch_norm_elemt(input: Tensor, weight: Any, bias: Any, mean: Tensor, invstd: Tensor, eps: float) -> Tensor:
    result = (input.float() - _per_channel(mean, input)) * _per_channel(invstd, input)
    if weight is not None:
        result = result * _per_channel(weight.float(), input)
    if bias is not None:
        result = result + _per_channel(bias.float(), input)
    return result.to(input.dtype)


def batch_norm_backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Any,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return each channel's sums of dy and of dy · (x - mean), and the gradients of weight and bias if requested."""
    grad = grad_out.float()
    sum_dy = grad.sum(_reduced_dims(input))
    sum_dy_xmu = (grad * (input.float() - _per_channel(mean, input))).sum(_reduced_dims(input))
    dtype = mean.dtype if weight is None else weight.dtype
    grad_weight = (sum_dy_xmu * invstd).to(dtype) if weight_g else None
    return sum_dy, sum_dy_xmu, grad_weight, sum_dy.to(dtype) if bias_g else None


def batch_norm_backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Any,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """Return the gradient w.r.t. the input, from the sums of `batch_norm_backward_reduce` over all ranks."""
    total = count.sum()
    centred = input.float() - _per_channel(mean, input)
    grad = grad_out.float() - _per_channel(sum_dy / total, input)
    grad = grad - centred * _per_channel(invstd.pow(2) * sum_dy_xmu / total, input)
    factor = invstd if weight is None else invstd * weight.float()
    return (grad * _per_channel(factor, input)).to(input.dtype)


def _add_biases(inputs: Tensor, hidden: Tensor, input_bias: Any, hidden_bias: Any) -> tuple[Tensor, Tensor]:
    if input_bias is None:
        return inputs, hidden
    return inputs + input_bias, hidden + hidden_bias


def lstm_cell(inputs: Tensor, hidden: Tensor, cx: Tensor, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    """Return the new hidden and cell states and the gates; `inputs` and `hidden` are products with weights."""
    from_inputs, from_hidden = _add_biases(inputs, hidden, input_bias, hidden_bias)
    i, f, g, o = (from_inputs + from_hidden).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(grad_hy: Any, grad_cy: Any, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    tanh_cy = cy.tanh()
    dh = torch.zeros_like(cy) if grad_hy is None else grad_hy
    dc = dh * o * (1 - tanh_cy * tanh_cy) + (0 if grad_cy is None else grad_cy)
    di, df, dg, do = dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g * g), dh * tanh_cy * o * (1 - o)
    grad_gates = torch.cat([di, df, dg, do], 1)
    return grad_gates, dc * f, grad_gates.sum(0) if has_bias else None


def gru_cell(inputs: Tensor, hidden: Tensor, hx: Tensor, input_bias: Any = None, hidden_bias: Any = None) -> Any:
    """Return the new hidden state, and the tensors that the backward pass needs, concatenated.

    r is the reset gate, z the update gate, n the candidate state.
    """
    from_inputs, from_hidden = _add_biases(inputs, hidden, input_bias, hidden_bias)
    (input_r, input_z, input_n), (hidden_r, hidden_z, hidden_n) = from_inputs.chunk(3, 1), from_hidden.chunk(3, 1)
    r, z = (input_r + hidden_r).sigmoid(), (input_z + hidden_z).sigmoid()
    n = (input_n + r * hidden_n).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hidden_n], 1)


def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    r, z, n, hx, hidden_n = workspace.chunk(5, 1)
    dn = grad_hy * (1 - z) * (1 - n * n)
    dz = grad_hy * (hx - n) * z * (1 - z)
    dr = dn * hidden_n * r * (1 - r)
    grad_input, grad_hidden = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    sums = (grad_input.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_input, grad_hidden, grad_hy * z, *sums


def make_wide_product(operator: Any) -> Any:
    """Return a kernel for a matrix product whose last positional argument is the dtype of the result.

    Its keyword arguments are the factors beta and alpha of addmm and baddbmm.
    """

    def multiply(*args: Any, out: Tensor | None = None, **factors: Any) -> Tensor:
        *tensors, dtype = args
        result: Tensor = operator(*(tensor.to(dtype) for tensor in tensors), **factors)
        return result if out is None else out.resize_(result.shape).copy_(result)

    return multiply


_PRODUCTS = {"mm": torch.mm, "bmm": torch.bmm, "addmm": torch.addmm, "baddbmm": torch.baddbmm}

MISSING_CPU_KERNELS: dict[str, Callable[..., Any]] = {
    **{f"{name}.dtype{out}": make_wide_product(product) for name, product in _PRODUCTS.items() for out in ("", "_out")},
    "batch_norm_stats": batch_norm_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats_with_counts,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_backward_reduce": batch_norm_backward_reduce,
    "batch_norm_backward_elemt": batch_norm_backward_elemt,
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
