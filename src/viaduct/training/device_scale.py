"""The loss scale of steps that run on the device alone: the rule of `LossScale`, computed on the device.

The host's scale is copied to the device before such steps, and back after them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from viaduct.training.precision import LossScale


class DeviceScale:
    """Value, good steps, overflows, skipped steps and the streak of a `LossScale`, as one tensor."""

    def __init__(self, scale: LossScale, device: torch.device) -> None:
        self.host = scale
        self.state = torch.zeros(5, dtype=torch.float64, device=device)
        self.found = torch.zeros((), device=device)  # 1: this step's gradients overflowed; optimizers read it

    def load_host_state(self) -> None:
        """Copy the host's state to the device."""
        host = self.host
        now = [host.value, host.good, host.overflows, host.skipped, host.streak]
        self.state.copy_(torch.tensor(now, dtype=torch.float64))

    @property
    def value(self) -> Tensor:
        """Factor of the loss."""
        return self.state[0].float()

    def unscale(self, gradients: list[Tensor]) -> None:
        """Take the scale out of the gradients, and set `found` if they overflowed."""
        torch._foreach_mul_(gradients, self.value.reciprocal())
        largest = torch.stack([norm.float() for norm in torch._foreach_norm(gradients, float("inf"))])
        self.found.copy_(~torch.isfinite(largest).all())

    def update(self) -> None:
        """Update the scale as `LossScale.update` does."""
        host, bad = self.host, self.found.double()
        value, good, overflows, skipped, streak = self.state.unbind()
        good, streak, skipped, overflows = (good + 1) * (1 - bad), (streak + 1) * bad, skipped + bad, overflows + bad
        if host.dynamic:
            grown, shrunk = good >= host.grow_every, (bad > 0) & (overflows >= host.shrink_after)
            value = torch.where(shrunk, (value / 2).clamp(min=1.0), torch.where(grown, value * 2, value))
            good, overflows = good.masked_fill(grown, 0), overflows.masked_fill(grown | shrunk, 0)
        self.state.copy_(torch.stack([value, good, overflows, skipped, streak]))

    def finish(self) -> int:
        """Copy the state to the host; return how many steps were skipped since `load_host_state`.

        Waits for the device.
        """
        host, before = self.host, self.host.skipped
        host.value, *counts = self.state.tolist()
        host.good, host.overflows, host.skipped, host.streak = map(int, counts)
        return host.skipped - before
