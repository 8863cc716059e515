"""Copies of convolution weights in the precision of computation, refreshed before each training pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

Weights = dict[nn.Conv2d, Tensor]  # in the precision of computation, channels_last


class Copies:
    """Low-precision weights of a network's convolutions.

    Hooks on the network refresh all of them when its forward pass begins. A block that runs alone, as under activation
    checkpointing or in `network.layer1(x)`, refreshes its own.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.weights: Weights = {}
        self.are_fresh = False  # True during a training pass of the network, which begins by refreshing all
        self.has_logged_precision = False  # set by fuse.is_in_precision, which logs a mismatch once

    def add(self, convolutions: Iterable[nn.Conv2d]) -> None:
        self.weights |= {conv: self.choose_copy(conv, None) for conv in convolutions}

    def attach(self, network: nn.Module) -> None:
        """Add hooks that refresh the copies before the network's training passes."""
        network.register_forward_pre_hook(self.begin_pass)
        network.register_forward_hook(self.end_pass, always_call=True)

    def begin_pass(self, network: nn.Module, inputs: Any) -> None:
        if network.training:
            self.refresh(list(self.weights))
            self.are_fresh = True

    def end_pass(self, network: nn.Module, inputs: Any, outputs: Any) -> None:
        self.are_fresh = False

    def get(self, convolutions: list[nn.Conv2d]) -> Weights:
        """Return all weights, with those of these convolutions up to date."""
        if not self.are_fresh:
            self.refresh(convolutions)
        return self.weights

    @torch.no_grad()
    def refresh(self, convolutions: list[nn.Conv2d]) -> None:
        for conv in convolutions:
            self.weights[conv] = self.choose_copy(conv, self.weights[conv])
        stale = [(self.weights[conv], conv.weight) for conv in convolutions if not self.can_share(conv.weight)]
        if stale:
            torch._foreach_copy_([copy for copy, _ in stale], [weight for _, weight in stale])

    def choose_copy(self, conv: nn.Conv2d, copy: Tensor | None) -> Tensor:
        """Return the weight itself if it can be shared, else `copy` or a new empty tensor."""
        weight = conv.weight
        if self.can_share(weight):
            return weight.detach()
        if copy is not None and copy.device == weight.device:
            return copy
        return torch.empty_like(weight, dtype=self.dtype, requires_grad=False, memory_format=torch.channels_last)

    def can_share(self, weight: Tensor) -> bool:
        """Return True if the kernels can read the weight itself, so that no copy is needed."""
        return weight.dtype == self.dtype and weight.is_contiguous(memory_format=torch.channels_last)
