"""Finds training steps of scripts that have no optimizer: `p.data.add_(p.grad, alpha=-lr)`.

A step has been taken where parameters of a network differ, at its next forward pass or at the script's end, from what
they were after the last backward pass. As soon as an optimizer steps, its steps count and nothing is looked for here.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from viaduct.scripts.roots import Roots

if TYPE_CHECKING:
    import torch
    from torch import nn


class UpdatesByHand:
    """Calls `on_backward` after each backward pass and `on_step` where an update was made since."""

    def __init__(self, on_backward: Callable[[], None], on_step: Callable[[], None]) -> None:
        self.on_backward, self.on_step = on_backward, on_step
        self.has_optimizer = False
        self._networks: list[nn.Module] = []
        self._after_backward: list[tuple[torch.Tensor, int]] = []  # parameters that got gradients, with checksums
        self._inside = False
        self._roots = Roots(self._forward_begins)

    def start(self) -> None:
        import torch

        self._roots.__enter__()
        for owner in (torch.Tensor, torch.autograd):
            self._watch_backward(owner)

    def close(self) -> None:
        self._roots.__exit__()

    def settle(self) -> None:
        """Count the step that was taken since the last backward pass, if one was."""
        before, self._after_backward = self._after_backward, []
        if not self.has_optimizer and any(checksum(parameter) != known for parameter, known in before):
            self.on_step()

    def _forward_begins(self, module: nn.Module, args: Any) -> None:
        self.settle()
        if not self.has_optimizer and not any(module is known for known in self._networks):
            self._networks.append(module)

    def _watch_backward(self, owner: Any) -> None:
        plain = owner.backward

        @functools.wraps(plain)
        def backward(*args: Any, **named: Any) -> Any:
            if self._inside or self.has_optimizer:
                return plain(*args, **named)
            self._inside = True
            try:
                result = plain(*args, **named)
            finally:
                self._inside = False
            parameters = [parameter for network in self._networks for parameter in network.parameters()]
            trained = [parameter for parameter in parameters if parameter.grad is not None]
            self._after_backward = [(parameter, checksum(parameter)) for parameter in trained]
            self.on_backward()
            return result

        owner.backward = backward


def checksum(tensor: torch.Tensor) -> int:
    import torch

    plain = tensor.detach().cpu().contiguous()
    return zlib.crc32(plain.view(-1).view(torch.uint8).numpy().tobytes()) if plain.numel() else 0
