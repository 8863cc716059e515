"""THOR: a second-order optimizer that computes curvature once in `frequency` steps (AAAI 2021; MindSpore's code).

For a layer with inputs a and output gradients d, the factors are A = E[a a^T] and G = E[d d^T] over one batch. The
gradient g of its weight becomes G^-1 g A^-1; torch's SGD then adds weight decay and momentum. Parameters of norms and
biases keep their plain gradient. A refresh step, such as step 0, computes new inverses, which are used until the next
refresh; there is no running average.

A convolution of b images has R = b * (output positions of an image) patches. They are the rows of X; the gradients at
the output positions are the rows of D. The loss is a mean over images. In form `ascend`

    A = X^T X / R                  + sqrt(damping * b / R) * I
    G = (D^T D / R) * b^2          + sqrt(damping * b / R) * I

and both inverses are multiplied by sqrt(b / R). Form `gpu` averages patches and gradients over the batch first. For a
dense layer sqrt(damping) * I is added, and the inverses are not scaled. A and G are cut into diagonal blocks, each
inverted by Cholesky; a block that is not positive definite keeps its old inverse. A grouped convolution is
preconditioned group by group.

If a step is accumulated in parts, only the last part is recorded. With several ranks each inverts its own factors, and
the inverses are averaged. A refresh step that is skipped for overflow is not counted: the next step refreshes instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from viaduct.recipes import Thor
from viaduct.training.curvature import Factor, FactorRecorder, find_layers, invert, stack_layers
from viaduct.training.optimizer_support import DeviceRateSupport
from viaduct.training.torch_optimizers import SGD

if TYPE_CHECKING:
    from viaduct.training.precision import Computation


def compute_damping(settings: Thor, epoch: float) -> float:
    """Return the damping of the step that ends at this epoch."""
    return float(settings.damping_init * settings.damping_decay ** (epoch / 10))


class ThorSupport(DeviceRateSupport):
    """Support of THOR: the steps between two refreshes can be captured; a refresh needs the host."""

    optimizer: ThorOptimizer
    decay_in_loss = False

    def find_capture_obstacle(self, skips_steps: bool) -> str | None:
        return super().find_capture_obstacle(skips_steps) if self.is_fused else self.unfused_obstacle

    def step_with_device_rates(self) -> None:
        steps_before = self.optimizer.steps
        try:
            self.optimizer.step()
        finally:
            self.optimizer.steps = steps_before  # `note_device_step` counts the step, because a replay runs no Python

    def count_device_steps(self, limit: int) -> int:
        return min(limit, -self.optimizer.steps % self.optimizer.settings.frequency)

    def note_device_step(self) -> None:
        self.optimizer.steps += 1

    def set_epoch(self, epoch: float) -> None:
        self.optimizer.set_epoch(epoch)

    @contextmanager
    def observe_passes(self, computation: Computation, scale: float) -> Iterator[None]:
        """Record factors in refresh steps, which run uncompiled."""
        if not self.optimizer.is_refresh_due:
            yield
            return
        with computation.run_uncompiled() as network, self.optimizer.record_factors(network, scale):
            yield


class ThorOptimizer(SGD):
    """SGD over preconditioned gradients."""

    support = ThorSupport  # type: ignore[assignment]

    def __init__(self, params: Any, settings: Thor, model: nn.Module, fused: bool | None) -> None:
        nesterov = settings.nesterov and settings.momentum > 0
        super().__init__(params, settings.lr, settings.momentum, nesterov=nesterov, fused=fused)
        self.settings = settings
        self.damping = settings.damping_init
        self.steps = 0
        self.layers = find_layers(model, settings.block)
        self.stacks = stack_layers(self.layers)
        by_name = {layer.name: inverses for stack in self.stacks for layer, inverses in stack.list_inverses()}
        # By layer, the inverses of A and of G: views of the tensors in `stacks`.
        self.inverses = {layer.name: by_name[layer.name] for layer in self.layers}
        self.recorder: FactorRecorder | None = None  # set from the passes of a refresh step to its update
        self.trace_rule = TraceRule(settings) if settings.trace_rule else None

    @property
    def is_refresh_due(self) -> bool:
        """Return True if the coming step computes new factors."""
        return self.steps % self.settings.frequency == 0

    def set_epoch(self, epoch: float) -> None:
        self.damping = compute_damping(self.settings, epoch)

    @contextmanager
    def record_factors(self, network: nn.Module, scale: float) -> Iterator[None]:
        """Record the factors of the layers within the block, except of layers that the trace rule has frozen.

        `network` may be a cast copy of the model: its parameters are found by name. `scale` is the factor by which the
        loss is multiplied before the backward pass.
        """
        frozen = self.trace_rule.read_frozen_names() if self.trace_rule else set()
        weights = {id(network.get_parameter(layer.name)): layer for layer in self.layers if layer.name not in frozen}
        self.recorder = FactorRecorder(weights, self.settings.form, scale)
        with self.recorder:
            yield

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise TypeError("ThorOptimizer takes no closure")
        if self.recorder is not None:
            self.refresh(self.recorder.average_calls())
            self.recorder = None
        for stack in self.stacks:
            stack.precondition()
        super().step()
        self.steps += 1

    def refresh(self, factors: dict[str, tuple[Factor, Factor]]) -> None:
        """Replace the inverses by those of this batch's factors; the trace rule may keep those of some layers."""
        flat = [factor for name in factors for factor in factors[name]]  # A and G of each layer
        old = [inverse for name in factors for inverse in self.inverses[name]]
        damped = [factor.add_damping(self.damping) for factor in flat]
        new = invert(damped, old, [factor.inverse_scale for factor in flat])
        average_over_ranks(new, self.assign_buckets(list(factors)))
        if self.trace_rule:
            new = self.trace_rule.choose(factors, new, old)
        if old:
            torch._foreach_copy_(old, new)

    def assign_buckets(self, names: list[str]) -> list[list[int]]:
        """Return, for each all-reduce message, the indices of its inverses; each layer has two inverses in a row.

        `split_indices` has the index of the last layer of each message but the last; if it is empty, there are two.
        """
        order = {layer.name: index for index, layer in enumerate(self.layers)}
        ends = self.settings.split_indices or (len(self.layers) // 2 - 1,)
        message_of_inverse = [sum(order[name] > end for end in ends) for name in names for _ in range(2)]
        buckets: dict[int, list[int]] = {}
        for index, message in enumerate(message_of_inverse):
            buckets.setdefault(message, []).append(index)
        return [buckets[message] for message in sorted(buckets)]

    def state_dict(self) -> dict[str, Any]:
        thor: dict[str, Any] = {"steps": self.steps, "inverses": dict(self.inverses)}
        if self.trace_rule:
            thor["traces"] = self.trace_rule.get_state()
        return super().state_dict() | {"thor": thor}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        thor = state_dict["thor"]
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "thor"})
        self.steps = thor["steps"]
        for name, inverses in self.inverses.items():
            for inverse, saved in zip(inverses, thor["inverses"][name], strict=True):
                inverse.copy_(saved)
        if self.trace_rule:
            self.trace_rule.restore(thor["traces"], self.layers[0].weight.device)


def average_over_ranks(tensors: list[Tensor], buckets: list[list[int]]) -> None:
    """Replace each tensor in the list by its mean over the ranks; each bucket of indices is one message."""
    if not distributed.is_available() or not distributed.is_initialized():
        return
    ranks = distributed.get_world_size()
    for bucket in buckets:
        message = torch.cat([tensors[index].flatten() for index in bucket])
        distributed.all_reduce(message)
        message /= ranks
        parts = torch.split(message, [tensors[index].numel() for index in bucket])
        for index, part in zip(bucket, parts, strict=True):
            tensors[index] = part.view(tensors[index].shape)


class TraceRule:
    """Rule that decides which layers take new inverses in a refresh, by the relative change of tr(A) * tr(G).

    The change is measured since the layer last took new inverses. If it is above `trace_renew`, the layer takes the new
    inverses. If it is below `trace_freeze`, the layer keeps the old ones for good and is not recorded any more.
    Otherwise it keeps the old ones until the next refresh. The host waits for the device only to read which layers are
    frozen, once in a refresh.
    """

    def __init__(self, settings: Thor) -> None:
        self.renew, self.freeze = settings.trace_renew, settings.trace_freeze
        self.traces: dict[str, Tensor] = {}  # tr(A) * tr(G) when the layer last took new inverses
        self.frozen: dict[str, Tensor] = {}  # by layer, True if it keeps its inverses for good

    def read_frozen_names(self) -> set[str]:
        """Return the layers that are not refreshed any more. Waits for the device."""
        names = list(self.frozen)
        flags = torch.stack([self.frozen[name] for name in names]).tolist() if names else []
        return {name for name, flag in zip(names, flags, strict=True) if flag}

    def choose(self, factors: dict[str, tuple[Factor, Factor]], new: list[Tensor], old: list[Tensor]) -> list[Tensor]:
        """Return each layer's two inverses, both new or both old; the lists are in the order of `factors`."""
        chosen = []
        for number, (name, trace) in enumerate(average_traces(factors).items()):
            before = self.traces.get(name, torch.zeros_like(trace))
            change = (trace - before).abs() / before  # infinite the first time
            is_renewed = change > self.renew
            self.traces[name] = torch.where(is_renewed, trace, before)
            self.frozen[name] = change < self.freeze
            chosen += [torch.where(is_renewed, new[index], old[index]) for index in (2 * number, 2 * number + 1)]
        return chosen

    def get_state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"traces": dict(self.traces), "frozen": dict(self.frozen)}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        self.traces = {name: trace.to(device) for name, trace in state["traces"].items()}
        self.frozen = {name: flag.to(device) for name, flag in state["frozen"].items()}


def average_traces(factors: dict[str, tuple[Factor, Factor]]) -> dict[str, Tensor]:
    """Return tr(A) * tr(G) of each layer, summed over its groups and averaged over the ranks."""
    if not factors:
        return {}
    traces = [torch.stack([(compute_group_traces(a) * compute_group_traces(g)).sum() for a, g in factors.values()])]
    average_over_ranks(traces, [[0]])
    return dict(zip(factors, traces[0].unbind(), strict=True))


def compute_group_traces(factor: Factor) -> Tensor:
    """Return the trace of each group, before damping."""
    return factor.blocks.diagonal(dim1=-2, dim2=-1).flatten(1).sum(1)
