"""Batch norm over all ranks: mean and variance are those of the whole global batch.

    synchronise_norms(model, "cpu")     in place; names, parameters and buffers stay the same

On accelerators torch's SyncBatchNorm is used, which refuses tensors on the CPU. On the CPU `RankSyncNorm` is used: each
rank sends (count, mean, sum of squared deviations) of every channel in one message. They are merged by the method of
Chan, Golub and LeVeque (1979), which is accurate for large means. In the backward pass the two sums that the input's
gradient needs are all-reduced in one message. Either norm is also an instance of `nn.BatchNorm1d`, 2d or 3d.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from viaduct.errors import BadValue
from viaduct.torch_compat import disable_dynamo


class Normalise(torch.autograd.Function):
    """(x - mean) / sqrt(variance + epsilon) over all ranks, times weight, plus bias; in fp32, fp64 inputs in fp64.

    Also returns the mean, the variance, and the number of values of a channel over all ranks.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float) -> Any:
        total, mean, variance = merge_statistics(x)
        scale = torch.rsqrt(variance + epsilon)
        normed = (to_float32(x) - broadcast_channels(mean, x)) * broadcast_channels(scale, x)
        ctx.save_for_backward(normed, scale, weight)
        ctx.total, ctx.with_bias = total, bias is not None
        ctx.mark_non_differentiable(mean, variance)
        # A copy, because the backward pass needs `normed` and the next layer may work in place.
        result = normed.clone() if weight is None else normed * broadcast_channels(to_float32(weight), x)
        result = result if bias is None else result + broadcast_channels(to_float32(bias), x)
        return result.to(x.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        normed, scale, weight = ctx.saved_tensors
        gradient = to_float32(gradients[0])
        dimensions = list_reduced_dimensions(gradient)
        local_sums = torch.stack([gradient.sum(dimensions), (gradient * normed).sum(dimensions)])
        sums = local_sums.clone()
        distributed.all_reduce(sums)
        mean, slope = (sums / ctx.total).unbind()
        residual = gradient - broadcast_channels(mean, gradient) - normed * broadcast_channels(slope, gradient)
        result = residual * broadcast_channels(scale if weight is None else scale * to_float32(weight), gradient)
        # Gradients of weight and bias are this rank's: DistributedDataParallel averages them with all others.
        d_weight = None if weight is None else local_sums[1].to(weight.dtype)
        d_bias = local_sums[0].to(weight.dtype if weight is not None else local_sums.dtype) if ctx.with_bias else None
        return result.to(gradients[0].dtype), d_weight, d_bias, None


def merge_statistics(x: Tensor) -> tuple[float, Tensor, Tensor]:
    """Return the number of values of a channel over all ranks, their mean and their biased variance."""
    local = to_float32(x)
    variance, mean = torch.var_mean(local, list_reduced_dimensions(x), correction=0)
    count = local.numel() // local.shape[1]
    message = torch.stack([torch.full_like(mean, count), mean, variance * count])
    received = [torch.empty_like(message) for _ in range(distributed.get_world_size())]
    distributed.all_gather(received, message)
    counts, means, squared_deviations = torch.stack(received).unbind(1)  # a row for each rank
    total = counts.sum(0)
    mean = (counts * means).sum(0) / total
    squared_deviations = (squared_deviations + counts * (means - mean).square()).sum(0)
    return float(total[0]), mean, squared_deviations / total


def to_float32(x: Tensor) -> Tensor:
    """Return the tensor in fp32; an fp64 tensor stays fp64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def list_reduced_dimensions(x: Tensor) -> list[int]:
    """Return all dimensions but the channel's."""
    return [dimension for dimension in range(x.ndim) if dimension != 1]


def broadcast_channels(channels: Tensor, x: Tensor) -> Tensor:
    """Return values of the channels in a shape that broadcasts with `x`."""
    return channels.view(1, -1, *([1] * (x.ndim - 2)))


class RankSyncNorm(_BatchNorm):
    """Batch norm that normalises over all ranks in training, and by its running statistics in evaluation."""

    @disable_dynamo  # a compiled network calls it between its parts
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)  # type: ignore[no-untyped-call]
        if not self.training or not distributed.is_initialized():
            return super().forward(input)
        result, mean, variance, total = Normalise.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps
        )
        self.update_running_statistics(mean, variance, total)
        normed: Tensor = result
        return normed

    @torch.no_grad()
    def update_running_statistics(self, mean: Tensor, variance: Tensor, total: float) -> None:
        """Update the running statistics, with the unbiased variance."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        unbiased = variance * (total / max(total - 1, 1))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


# For each of torch's batch norms, the synchronised norm that replaces it: on the CPU, and on accelerators.
TORCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ON_CPU = {norm: type(f"RankSync{norm.__name__}", (RankSyncNorm, norm), {}) for norm in TORCH_NORMS}
ON_DEVICE = {norm: type(f"Sync{norm.__name__}", (nn.SyncBatchNorm, norm), {}) for norm in TORCH_NORMS}


def synchronise_norms(model: nn.Module, device: str) -> None:
    """Let every batch norm of a model compute over all ranks, in place; raise BadValue for an unknown subclass."""
    kinds: dict[Any, Any] = ON_CPU if device == "cpu" else ON_DEVICE
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm) or isinstance(module, RankSyncNorm | nn.SyncBatchNorm):
            continue
        if type(module) not in kinds:
            message = f"parallel.sync_norm: {name} is a {type(module).__name__}, which may compute in a way of its own."
            raise BadValue(
                message, "Only nn.BatchNorm1d, 2d and 3d themselves can be synchronised; leave sync_norm off."
            )
        module.process_group = None  # type: ignore[assignment]  # all ranks
        module.__class__ = kinds[type(module)]
