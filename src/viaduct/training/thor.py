"""THOR: a second-order optimizer whose curvature is taken once in `frequency` steps (AAAI 2021; MindSpore's code).

For a layer with inputs a and output gradients D, with A = E[a a^T] and G = E[D D^T] of one batch, the gradient of
its weight becomes G^-1 g A^-1. Then weight decay, then momentum: both are torch's SGD. Norms and biases keep their
plain gradient. Between refreshes the stored inverses are used; there is no running average. Step 0 refreshes.

Ascend's form of a convolution with b images and R = b * places rows, the loss being a mean:

    A = X^T X / R                  + sqrt(damping * b / R) * I
    G = (D^T D / R) * b^2          + sqrt(damping * b / R) * I         times b / R in the end

The GPU's averages patches and gradients over the batch first. A dense layer has damping sqrt(damping) and no
last factor. A and G are cut into diagonal blocks, each inverted by Cholesky; one that is not positive definite
keeps its old inverse. A grouped convolution is preconditioned group by group.

    if optimizer.refreshing:
        with optimizer.watching(network, scale):
            forward and backward, not compiled
    optimizer.step()

With several parts per step (`accumulate`) only the last part is watched. With several ranks each inverts its own
factors, and the inverses are averaged. A step that is skipped for overflow is not counted: the next step refreshes in
its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from viaduct.recipes import Thor
from viaduct.training.curvature import Factor, Watch, find_layers, invert, stack_layers
from viaduct.training.optimizer_support import OptimizerSupport, find_fused_obstacle, find_skip_obstacle
from viaduct.training.torch_optimizers import SGD

if TYPE_CHECKING:
    from viaduct.training.precision import Computation


def damping_at(part: Thor, epoch: float) -> float:
    """Return the damping of the step that ends at this epoch."""
    return float(part.damping_init * part.damping_decay ** (epoch / 10))


class ThorSupport(OptimizerSupport):
    """Support of THOR: the steps between two refreshes can be captured, a refresh needs the host."""

    optimizer: ThorOptimizer

    def find_capture_obstacle(self, skips_steps: bool) -> str | None:
        return find_skip_obstacle(self.name, skips_steps) if self.is_fused else find_fused_obstacle(self.name)

    def step_with_device_rates(self) -> None:
        counted = self.optimizer.steps
        try:
            self.optimizer.step()
        finally:
            self.optimizer.steps = counted  # `count_device_step` counts it: a replay runs no Python

    def count_device_steps(self, most: int) -> int:
        return min(most, -self.optimizer.steps % self.optimizer.part.frequency)

    def count_device_step(self) -> None:
        self.optimizer.steps += 1

    def set_epoch(self, epoch: float) -> None:
        self.optimizer.set_epoch(epoch)

    @contextmanager
    def watch_passes(self, computation: Computation, scale: float) -> Iterator[None]:
        """Collect factors in refresh steps, which then run uncompiled."""
        if not self.optimizer.refreshing:
            yield
            return
        with computation.run_uncompiled() as network, self.optimizer.watching(network, scale):
            yield


class ThorOptimizer(SGD):
    """SGD over preconditioned gradients."""

    support = ThorSupport  # type: ignore[assignment]

    decay_in_loss = False

    def __init__(self, params: Any, part: Thor, model: nn.Module, fused: bool | None = None) -> None:
        nesterov = part.nesterov and part.momentum > 0
        super().__init__(params, part.lr, part.momentum, nesterov=nesterov, fused=fused)
        self.part = part
        self.damping = part.damping_init
        self.steps = 0
        self.layers = find_layers(model, part.block)
        self.stacks = stack_layers(self.layers)
        by_name = {layer.name: inverses for stack in self.stacks for layer, inverses in stack.inverses()}
        self.inverses = {layer.name: by_name[layer.name] for layer in self.layers}
        self.watch: Watch | None = None
        self.traces = TraceRule(part) if part.trace_rule else None

    @property
    def refreshing(self) -> bool:
        """Return True if the coming step computes new factors."""
        return self.steps % self.part.frequency == 0

    def set_epoch(self, epoch: float) -> None:
        """Set the damping of the step that ends at this epoch."""
        self.damping = damping_at(self.part, epoch)

    @contextmanager
    def watching(self, network: nn.Module, scale: float) -> Iterator[None]:
        """Collect the factors of the layers within the block, except of layers that the trace rule has frozen.

        `network` may be a cast copy of the model: its parameters are found by name.
        """
        frozen = self.traces.frozen_names() if self.traces else set()
        weights = {id(network.get_parameter(layer.name)): layer for layer in self.layers if layer.name not in frozen}
        self.watch = Watch(weights, self.part.form, scale)
        with self.watch:
            yield

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise TypeError("ThorOptimizer takes no closure")
        if self.watch is not None:
            self.refresh(self.watch.factors())
            self.watch = None
        for stack in self.stacks:
            stack.precondition()
        super().step()
        self.steps += 1

    def refresh(self, factors: dict[str, tuple[Factor, Factor]]) -> None:
        """Replace the stored inverses by those of this batch's factors, as far as the trace rule allows."""
        both = [factor for name in factors for factor in factors[name]]
        old = [inverse for name in factors for inverse in self.inverses[name]]
        new = invert(
            [factor.add_damping(self.damping) for factor in both], old, [factor.inverse_scale for factor in both]
        )
        average(new, self.buckets(list(factors)))
        if self.traces:
            new = self.traces.choose(factors, new, old)
        if old:
            torch._foreach_copy_(old, new)

    def buckets(self, names: list[str]) -> list[list[int]]:
        """Return which of the inverses, two for each layer, are averaged in one message."""
        order = {layer.name: index for index, layer in enumerate(self.layers)}
        ends = self.part.split_indices or (len(self.layers) // 2 - 1,)
        shares = [sum(order[name] > end for end in ends) for name in names]
        shares = [share for share in shares for _ in range(2)]
        return [[index for index, own in enumerate(shares) if own == share] for share in sorted(set(shares))]

    def state_dict(self) -> dict[str, Any]:
        thor: dict[str, Any] = {"steps": self.steps, "inverses": dict(self.inverses)}
        if self.traces:
            thor["traces"] = self.traces.state()
        return super().state_dict() | {"thor": thor}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        thor = state_dict["thor"]
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "thor"})
        self.steps = thor["steps"]
        for name, own in self.inverses.items():
            for inverse, saved in zip(own, thor["inverses"][name], strict=True):
                inverse.copy_(saved)
        if self.traces:
            self.traces.restore(thor["traces"], self.layers[0].weight.device)


def average(inverses: list[Tensor], buckets: list[list[int]]) -> None:
    """Average each inverse over the ranks, in place."""
    if not distributed.is_available() or not distributed.is_initialized():
        return
    ranks = distributed.get_world_size()
    for bucket in buckets:
        message = torch.cat([inverses[index].flatten() for index in bucket])
        distributed.all_reduce(message)
        message /= ranks
        parts = torch.split(message, [inverses[index].numel() for index in bucket])
        for index, part in zip(bucket, parts, strict=True):
            inverses[index] = part.view(inverses[index].shape)


class TraceRule:
    """Rule that decides which layers take new inverses in a refresh, by the relative change of tr(A) * tr(G).

    The change is measured since the layer last took new inverses. Above `trace_renew` it takes the new ones. Below
    `trace_freeze` it keeps the old ones for good and is not watched any more. Between the two it keeps the old ones
    until the next refresh. The device decides; the host reads which layers are frozen once in a refresh, and waits
    only there.
    """

    def __init__(self, part: Thor) -> None:
        self.renew, self.freeze = part.trace_renew, part.trace_freeze
        self.traces: dict[str, Tensor] = {}
        self.frozen: dict[str, Tensor] = {}

    def frozen_names(self) -> set[str]:
        """Return the layers that are not refreshed any more."""
        names = list(self.frozen)
        flags = torch.stack([self.frozen[name] for name in names]).tolist() if names else []
        return {name for name, flag in zip(names, flags, strict=True) if flag}

    def choose(self, factors: dict[str, tuple[Factor, Factor]], new: list[Tensor], old: list[Tensor]) -> list[Tensor]:
        """Return the new or the old one of each layer's two inverses."""
        chosen = []
        for number, (name, trace) in enumerate(mean_traces(factors).items()):
            before = self.traces.get(name, torch.zeros_like(trace))
            change = (trace - before).abs() / before  # infinite the first time
            taken = change > self.renew
            self.traces[name] = torch.where(taken, trace, before)
            self.frozen[name] = change < self.freeze
            chosen += [torch.where(taken, new[index], old[index]) for index in (2 * number, 2 * number + 1)]
        return chosen

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of the rule."""
        return {"traces": dict(self.traces), "frozen": dict(self.frozen)}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from a checkpoint's state."""
        self.traces = {name: trace.to(device) for name, trace in state["traces"].items()}
        self.frozen = {name: flag.to(device) for name, flag in state["frozen"].items()}


def mean_traces(factors: dict[str, tuple[Factor, Factor]]) -> dict[str, Tensor]:
    """Return tr(A) * tr(G) of each layer, summed over its groups, as a mean over the ranks."""
    own = [(trace_of(inputs) * trace_of(outputs)).sum() for inputs, outputs in factors.values()]
    held = [torch.stack(own)] if own else []
    average(held, [[0]] if own else [])
    return dict(zip(factors, held[0].unbind(), strict=True)) if own else {}


def trace_of(factor: Factor) -> Tensor:
    """Return the trace of each group, before damping."""
    return factor.blocks.diagonal(dim1=-2, dim2=-1).flatten(1).sum(1)
