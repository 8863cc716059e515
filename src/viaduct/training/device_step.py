"""A training step in which nothing comes from the host: what a graph of kernels can be captured of.

Learning rates and the network's progress stand in a table on the device, one row a step; a cursor there says which row
is next. Loss and hits are written into a column beside it. The loss scale and the decay of averaged weights are worked
out on the device. What the step reads and writes stays at the same addresses, so the same kernels may run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from viaduct.data.batches import Batch
from viaduct.training.device_scale import DeviceScale
from viaduct.training.lars import descend
from viaduct.training.light import is_plain_sgd
from viaduct.training.mixup import mix
from viaduct.training.precision import unscale
from viaduct.training.rmsprop import decayed_gradients
from viaduct.training.schedule import rate_factor
from viaduct.training.thor import ThorOptimizer

if TYPE_CHECKING:
    from viaduct.training.loop import Training


class DeviceStep:
    """Call it for one step; `begin` before a number of them, `tell` after them."""

    def __init__(self, training: Training, batch: Batch, most: int) -> None:
        self.training, device = training, training.torch_device
        self.images, self.labels = torch.empty_like(batch.images), torch.empty_like(batch.labels)
        self.weights = torch.empty(len(batch.labels), device=device) if training.recipe.mixup else None
        columns = len(training.optimizer.param_groups) + 1
        self.table = torch.zeros((most, columns), device=device)
        self.row = torch.zeros(columns, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(most, dtype=torch.float64, device=device)
        self.hits = torch.zeros((most, 1 + training.counts_top5), dtype=torch.int64, device=device)
        self.scale = DeviceScale(training.scale, device) if training.scale.watching else None
        self.updates = torch.zeros((), dtype=torch.float64, device=device)  # of the averaged weights
        self.capturing = False
        self.observed = False  # callbacks look at the gradients of this step, which is not captured

    def begin(self, steps: int) -> None:
        """Everything that so many steps need to know, in one copy."""
        training = self.training
        rows = torch.tensor([self.row_of(step) for step in range(training.step, training.step + steps)])
        if self.table.is_cuda:
            rows = rows.pin_memory()
        self.table[:steps].copy_(rows, non_blocking=True)
        self.cursor.zero_()
        if training.shadow:
            self.updates.fill_(training.shadow.updates)
        if self.scale:
            self.scale.begin()

    def row_of(self, step: int) -> list[float]:
        training = self.training
        factor = rate_factor(training.recipe, step, training.pace)
        return [*(initial * factor for initial in training.initial_rates), min(step / training.steps, 1.0)]

    def load(self, batch: Batch) -> None:
        """The pictures of the coming step."""
        self.images.copy_(batch.images, non_blocking=True)
        self.labels.copy_(batch.labels, non_blocking=True)
        if self.weights is not None:
            drawn = self.training.mixing_weights()
            self.weights.copy_(drawn.pin_memory() if self.weights.is_cuda else drawn, non_blocking=True)

    def __call__(self) -> None:
        """One step. Nothing of it is left in Python: a graph that is captured of it will not run Python."""
        training = self.training
        self.row.copy_(self.table.index_select(0, self.cursor)[0])
        self.set_progress()
        loss, hits = training.passes(*self.mixed(), self.scale.value if self.scale else training.scale.value)
        training.computation.gather_gradients()
        self.unscale()
        if training.recipe.clip_norm:
            training.clip(training.recipe.clip_norm)
        if self.observed:
            training.emit("gradients", self.images, self.labels)
        with self.rates_on_device():
            take_step(training.optimizer)
        training.computation.publish_weights()
        self.average()
        training.optimizer.zero_grad(set_to_none=True)
        self.losses.index_copy_(0, self.cursor, loss.double()[None])
        self.hits.index_copy_(0, self.cursor, hits[None])
        self.cursor += 1

    def mixed(self) -> tuple[Tensor, Tensor]:
        if self.weights is None:
            return self.images, self.labels
        return mix(self.images, self.labels, self.weights, self.training.recipe.data.classes)

    def set_progress(self) -> None:
        for network in {self.training.computation.master, self.training.computation.network}:
            progress: Any = getattr(network, "drop_path_progress", None)
            if progress is not None:
                progress.copy_(self.row[-1])

    def unscale(self) -> None:
        training = self.training
        if self.scale is None:
            unscale(training.parameters, training.scale.value)
            return
        self.scale.unscale([parameter.grad for parameter in training.parameters if parameter.grad is not None])
        self.scale.update()

    @torch.no_grad()
    def average(self) -> None:
        shadow = self.training.shadow
        if shadow is None:
            return
        self.training.computation.gather_statistics()
        taken = 1 - self.scale.found if self.scale else torch.ones_like(self.updates)
        self.updates += taken
        if self.scale is None and not shadow.part.num_updates:
            shadow.blend(1 - shadow.part.decay)
        else:
            shadow.blend(shadow.share_after(self.updates) * taken.float())

    @contextmanager
    def rates_on_device(self) -> Iterator[None]:
        """Meanwhile the optimizer reads its rates, and whether to skip the step, from the device."""
        optimizer: Any = self.training.optimizer
        groups, counted = optimizer.param_groups, getattr(optimizer, "steps", None)
        kept = [{name: group[name] for name in ("lr", "capturable") if name in group} for group in groups]
        for group, rate in zip(groups, self.row.unbind(), strict=False):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = self.capturing
        if self.scale:
            optimizer.found_inf = self.scale.found
        try:
            yield
        finally:
            for group, before in zip(groups, kept, strict=True):
                group.update(before)
            if self.scale:
                del optimizer.found_inf
            if counted is not None:
                optimizer.steps = counted

    def note(self) -> None:
        """What the host counts of a step, once it is on its way."""
        training = self.training
        if isinstance(training.optimizer, ThorOptimizer):
            training.optimizer.steps += 1
        if training.shadow:
            training.shadow.updates += 1
        training.step += 1

    def tell(self, steps: int) -> None:
        """Hand over what so many steps have found; only a loss scale is read at once."""
        training = self.training
        # Copies: the same rows are written again before anybody may have read these.
        losses, hits = self.losses[:steps].clone(), self.hits[:steps].clone()
        training.pending.extend(zip(losses.unbind(), hits.unbind(), strict=True))
        skipped = self.scale.tell() if self.scale else 0
        if training.shadow:
            training.shadow.updates -= skipped


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """With rates that are tensors, which torch's SGD reads from the host unless it is fused."""
    fused = all(group.get("fused") for group in optimizer.param_groups)
    if fused or not is_plain_sgd(optimizer):
        optimizer.step()
        return
    for group in optimizer.param_groups:
        sgd_step(group, optimizer.state)


@torch.no_grad()
def sgd_step(group: dict[str, Any], state: dict[Any, Any]) -> None:
    """As torch computes it, after a first step that has made the momenta."""
    parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
    if not parameters:
        return
    updates = decayed_gradients(parameters, group["weight_decay"])
    if group["momentum"]:
        momenta = [state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, updates)
        onward = torch._foreach_add(updates, momenta, alpha=group["momentum"]) if group["nesterov"] else momenta
        updates = list(onward)
    descend(parameters, updates, group["lr"])
