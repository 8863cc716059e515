"""The shadow of a network: an exponential moving average of its weights and batch norm statistics.

    decay  = min(d, (1 + t) / (10 + t))          t: updates so far, this one included; TensorFlow's num_updates
    shadow = decay * shadow + (1 - decay) * v

Evaluation sees the shadow: for its length the shadow's values are copied into the network's own tensors,
which compiled code and captured graphs hold on to, and copied back out afterwards. A checkpoint keeps both:
`model.safetensors` the weights that training continues from, `ema.safetensors` the shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from viaduct.recipes import Ema
from viaduct.training.precision import Computation


class Shadow:
    """Averages over the optimizer steps, kept on the device in fp32."""

    def __init__(self, part: Ema, model: nn.Module) -> None:
        self.part = part
        self.updates = 0
        self.own = averaged(model)
        self.values = {name: tensor.detach().clone() for name, tensor in self.own.items()}

    @torch.no_grad()
    def begin(self) -> None:
        """Average from the weights as they are now: they may have been loaded since the shadow was made."""
        torch._foreach_copy_(list(self.values.values()), list(self.own.values()))

    @property
    def decay(self) -> float:
        """The decay of the update that was last made."""
        warm = (1 + self.updates) / (10 + self.updates)
        return min(self.part.decay, warm) if self.part.num_updates else self.part.decay

    def share_after(self, updates: Tensor) -> Tensor:
        """What the update with this number lets in, as the device works it out; `decay` says it for the host."""
        kept = torch.full_like(updates, self.part.decay)
        if self.part.num_updates:
            kept = torch.minimum(kept, (1 + updates) / (10 + updates))
        return (1 - kept).float()

    @torch.no_grad()
    def update(self, computation: Computation) -> None:
        """After an optimizer step."""
        self.updates += 1
        computation.gather_statistics()
        self.blend(1 - self.decay)

    @torch.no_grad()
    def blend(self, share: float | Tensor) -> None:
        """Let this share of the network's values in; one that only the device knows is a tensor."""
        values, own = list(self.values.values()), list(self.own.values())
        if isinstance(share, float):
            torch._foreach_lerp_(values, own, share)
            return
        changes = torch._foreach_sub(own, values)
        torch._foreach_mul_(changes, share)
        torch._foreach_add_(values, changes)

    @contextmanager
    def shown(self, computation: Computation) -> Iterator[None]:
        """The network computes with the shadow's values meanwhile."""
        computation.gather_statistics()
        kept = [tensor.detach().clone() for tensor in self.own.values()]
        self.put(self.values.values(), computation)
        try:
            yield
        finally:
            self.put(kept, computation)

    @torch.no_grad()
    def put(self, values: Iterable[Tensor], computation: Computation) -> None:
        torch._foreach_copy_(list(self.own.values()), list(values))
        computation.publish_weights()
        computation.publish_statistics()

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """The shadow as a whole set of the model's tensors, with what is not averaged as the model has it."""
        own = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        return own | self.values

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], updates: int) -> None:
        self.updates = updates
        for name, value in self.values.items():
            value.copy_(tensors[name])


def averaged(model: nn.Module) -> dict[str, Tensor]:
    """What has an average: everything that a checkpoint holds and that is not a count."""
    return {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if tensor.is_floating_point()}
