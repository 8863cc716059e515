"""Averaged weights: exponential moving averages of a network's weights and batch norm statistics.

    decay   = min(d, (1 + t) / (10 + t))     with `num_updates`, as TensorFlow calls it; t counts updates from 1
    decay   = d                              without it; d is `Ema.decay` of the recipe
    average = decay * average + (1 - decay) * weight

For an evaluation the averages are copied into the network's own tensors, to which compiled code and captured graphs
refer; the weights are copied back afterwards. A checkpoint has both: the weights in `model.safetensors`, the averages
in `ema.safetensors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from viaduct.recipes import Ema
from viaduct.training.precision import Computation


class AveragedWeights:
    """Moving averages of a model's floating-point parameters and buffers, on the device of the model."""

    def __init__(self, settings: Ema, model: nn.Module) -> None:
        self.settings = settings
        self.updates = 0  # number of updates so far
        state = model.state_dict(keep_vars=True)
        self.weights = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}  # the model's own
        self.averages = {name: tensor.detach().clone() for name, tensor in self.weights.items()}

    @torch.no_grad()
    def start(self) -> None:
        """Begin with the current weights, which may have been loaded since this object was created."""
        torch._foreach_copy_(list(self.averages.values()), list(self.weights.values()))

    @property
    def decay(self) -> float:
        """Decay of the latest update."""
        warmup = (1 + self.updates) / (10 + self.updates)
        return min(self.settings.decay, warmup) if self.settings.num_updates else self.settings.decay

    def compute_share(self, updates: Tensor) -> Tensor:
        """Return 1 - decay for the update with this number, which is a tensor on the device."""
        decay = torch.full_like(updates, self.settings.decay)
        if self.settings.num_updates:
            decay = torch.minimum(decay, (1 + updates) / (10 + updates))
        return (1 - decay).float()

    @torch.no_grad()
    def update(self, computation: Computation) -> None:
        """Update the averages after an optimizer step."""
        self.updates += 1
        computation.gather_statistics()
        self.blend(1 - self.decay)

    @torch.no_grad()
    def blend(self, share: float | Tensor) -> None:
        """Move the averages towards the weights by this share, a number or a tensor on the device."""
        averages, weights = list(self.averages.values()), list(self.weights.values())
        if isinstance(share, float):
            torch._foreach_lerp_(averages, weights, share)
            return
        changes = torch._foreach_sub(weights, averages)
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(averages, changes)

    @contextmanager
    def swap_in(self, computation: Computation) -> Iterator[None]:
        """Let the network compute with the averages within the block."""
        computation.gather_statistics()
        weights = [tensor.detach().clone() for tensor in self.weights.values()]
        self.copy_into_network(self.averages.values(), computation)
        try:
            yield
        finally:
            self.copy_into_network(weights, computation)

    @torch.no_grad()
    def copy_into_network(self, values: Iterable[Tensor], computation: Computation) -> None:
        """Copy these values into the network's own tensors."""
        torch._foreach_copy_(list(self.weights.values()), list(values))
        computation.publish_weights()
        computation.publish_statistics()

    def build_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the model's state dict with the averages in place of floating-point tensors."""
        tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        return tensors | self.averages

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], updates: int) -> None:
        """Set the averages to those of a checkpoint."""
        self.updates = updates
        for name, average in self.averages.items():
            average.copy_(tensors[name])
