"""CPU stand-ins for three classes of `torch_npu.contrib`: label smoothing, drop path, prefetching."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from viaduct.rehearsal.torch_stage import streams
from viaduct.rehearsal.torch_stage.cards import cards


class LabelSmoothingCrossEntropy(torch.nn.Module):
    """Mean cross entropy with smoothed labels: all classes but the label's share `smooth_factor` equally."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0) -> None:
        super().__init__()
        self.on_value = 1.0 - smooth_factor
        self.off_value = smooth_factor / (num_classes - 1)

    def forward(self, pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        smoothed = torch.full_like(pred, self.off_value).scatter_(1, target.long()[:, None], self.on_value)
        return -(smoothed * functional.log_softmax(pred, 1)).sum(1).mean(0, dtype=torch.float32)


class NpuDropPath(torch.nn.Module):
    """In training, drops the residual branch of random samples and scales the others up."""

    def __init__(self, drop_prob: float | None = None) -> None:
        super().__init__()
        self.drop_prob = drop_prob or 0.0
        self.keep_prob = 1 - self.drop_prob

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.drop_prob == 0 or not self.training:
            return x
        mask = torch.rand(len(x), *[1] * (x.dim() - 1), dtype=x.dtype, device=x.device).add_(self.keep_prob).floor_()
        return x / self.keep_prob * mask


class Prefetcher:
    """Moves each batch to the card before `next` asks for it; at the end `next` returns (None, None)."""

    def __init__(self, loader: Any, stream: Any = None) -> None:
        self.loader = iter(loader)
        self.stream = stream if stream is not None else streams.Stream()  # for scripts that read it
        self.preload()

    def preload(self) -> None:
        batch = next(self.loader, None)
        if batch is None:
            self.next_input, self.next_target = None, None
        else:
            device = cards.device_name  # "npu": the current card
            self.next_input, self.next_target = (part.to(device, non_blocking=True) for part in batch)

    def next(self) -> tuple[Any, Any]:
        batch = self.next_input, self.next_target
        if self.next_target is not None:
            self.preload()
        return batch


CONTRIBUTED_CLASSES = {part.__name__: part for part in (LabelSmoothingCrossEntropy, NpuDropPath, Prefetcher)}
