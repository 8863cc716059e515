"""A training step that reads nothing from the host, so that it can be captured as a graph of kernels.

A table on the device has a row for each of the coming steps: the learning rates, and the share of the training that is
done before the step, which AmoebaNet's drop path needs. A cursor on the device is the number of the next row; the loss
and the number of correct images are written to the same row of two other tensors. The loss scale and the decay of
averaged weights are computed on the device. All tensors that the step reads and writes keep their addresses, so its
graph can be replayed. A sink (sink.py) takes a number of such steps without returning to the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from viaduct.data.batches import Batch
from viaduct.training.precision import LossScale, unscale_gradients
from viaduct.training.step import TrainingStep


class DeviceStep:
    """A `TrainingStep` that runs on the device alone. Calling it takes one step.

    It is also the `Update` (step.py) that `TrainingStep.run` asks for the loss scale and for the optimizer's step. Call
    `load_schedule` before a number of steps, `load_batch` before each of them, `count_step` after each, and `finish`
    after all.
    """

    def __init__(self, step: TrainingStep, batch: Batch, max_steps: int) -> None:
        """Allocate the tensors of up to `max_steps` steps with batches of this shape."""
        self.step, device = step, step.computation.device
        self.batch = batch._replace(images=torch.empty_like(batch.images), labels=torch.empty_like(batch.labels))
        # The weights with which images are mixed: those of mixup, or rows of cutmix (mixup.py).
        weights = step.draw_mixing_weights()
        self.mixing_weights = None if weights is None else weights.to(device)
        columns = len(step.optimizer.param_groups) + 1
        self.table = torch.zeros((max_steps, columns), device=device)
        self.row = torch.zeros(columns, device=device)  # the table's row of the step being taken
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(max_steps, dtype=torch.float64, device=device)
        # Numbers of correct images: a column for top-1 and, if the recipe logs it, one for top-5.
        self.correct_counts = torch.zeros((max_steps, 1 + step.parallel.counts_top5), dtype=torch.int64, device=device)
        self.scale = DeviceScale(step.scale, device) if step.scale.skips_overflows else None
        self.updates = torch.zeros((), dtype=torch.float64, device=device)  # number of updates of the averaged weights
        self.is_capturing = False  # True while the step is captured
        self.is_observed = False  # True while callbacks observe the gradients of this step, which is not captured

    def load_schedule(self, steps: int) -> None:
        """Copy to the device: the table of the next `steps` steps, the count of averaging updates, the loss scale."""
        progress = self.step.progress
        coming_steps = range(progress.step, progress.step + steps)
        rows = torch.tensor([[*progress.rates_at(step), min(step / progress.steps, 1.0)] for step in coming_steps])
        if self.table.is_cuda:
            rows = rows.pin_memory()
        self.table[:steps].copy_(rows, non_blocking=True)
        self.cursor.zero_()
        if self.step.ema:
            self.updates.fill_(self.step.ema.updates)
        if self.scale:
            self.scale.load_host_state()

    def load_batch(self, batch: Batch) -> None:
        """Copy a batch, and the weights for mixing it, to the tensors that the step reads."""
        self.batch.images.copy_(batch.images, non_blocking=True)
        self.batch.labels.copy_(batch.labels, non_blocking=True)
        weights = self.step.draw_mixing_weights()
        if self.mixing_weights is not None and weights is not None:
            pinned = weights.pin_memory() if self.mixing_weights.is_cuda else weights
            self.mixing_weights.copy_(pinned, non_blocking=True)

    def __call__(self) -> None:
        """Take one step. A replay of it runs no Python, so counters of the host are changed in `count_step`."""
        self.row.copy_(self.table.index_select(0, self.cursor)[0])
        self.step.set_network_progress(self.row[-1])
        images, targets = self.step.mix_batch(self.batch, self.mixing_weights)
        loss, correct_counts = self.step.run(images, targets, self, self.batch if self.is_observed else None)
        self.losses.index_copy_(0, self.cursor, loss.double()[None])
        self.correct_counts.index_copy_(0, self.cursor, correct_counts[None])
        self.cursor += 1

    # The methods of `Update`, on the device alone

    @property
    def loss_scale(self) -> float | Tensor:
        return self.scale.value if self.scale else self.step.scale.value

    def remove_scale(self) -> bool:
        """Divide the gradients by the loss scale and return True: if they overflow, the optimizer skips the step."""
        parameters = self.step.parameters
        if self.scale is None:
            unscale_gradients(parameters, self.step.scale.value)
            return True
        self.scale.unscale([parameter.grad for parameter in parameters if parameter.grad is not None])
        self.scale.update()
        return True

    def step_optimizer(self) -> None:
        with self.use_device_rates():
            self.step.optimizer_support.step_with_device_rates()

    @torch.no_grad()
    def average_weights(self) -> None:
        ema = self.step.ema
        if ema is None:
            return
        self.step.computation.gather_statistics()
        is_taken = 1 - self.scale.overflowed if self.scale else torch.ones_like(self.updates)  # 0 for a skipped step
        self.updates += is_taken
        if self.scale is None and not ema.settings.num_updates:
            ema.blend(1 - ema.settings.decay)
        else:
            ema.blend(ema.compute_share(self.updates) * is_taken.float())

    @contextmanager
    def use_device_rates(self) -> Iterator[None]:
        """Let the optimizer read its rates, and whether to skip the step, from the device within the block."""
        optimizer: Any = self.step.optimizer
        groups = optimizer.param_groups
        host_values = [{name: group[name] for name in ("lr", "capturable") if name in group} for group in groups]
        for group, rate in zip(groups, self.row.unbind(), strict=False):  # the row's last value is no rate
            group["lr"] = rate
            if "capturable" in group:  # torch's AdamW refuses to be captured without it
                group["capturable"] = self.is_capturing
        if self.scale:
            optimizer.found_inf = self.scale.overflowed  # torch's fused optimizers read this attribute
        try:
            yield
        finally:
            for group, values in zip(groups, host_values, strict=True):
                group.update(values)
            if self.scale:
                del optimizer.found_inf

    # Counters of the host

    def count_step(self) -> None:
        """Count a step that was taken, in all counters that the host has."""
        self.step.optimizer_support.note_device_step()
        if self.step.ema:
            self.step.ema.updates += 1
        self.step.progress.step += 1

    def finish(self, steps: int) -> None:
        """Append the results of `steps` steps to `TrainingStep.results`, and read the loss scale from the device."""
        # Copies: the next sink overwrites the rows, perhaps before a log line has read them.
        losses, correct_counts = self.losses[:steps].clone(), self.correct_counts[:steps].clone()
        self.step.results.extend(zip(losses.unbind(), correct_counts.unbind(), strict=True))
        skipped = self.scale.finish() if self.scale else 0
        if self.step.ema:
            self.step.ema.updates -= skipped


class DeviceScale:
    """The rule of a `LossScale` (precision.py), computed on the device.

    `state` has the attributes `value`, `good`, `overflows`, `skipped` and `streak` of the `LossScale`, which are copied
    to the device before a sink and back after it.
    """

    def __init__(self, scale: LossScale, device: torch.device) -> None:
        self.host_scale = scale
        self.state = torch.zeros(5, dtype=torch.float64, device=device)
        self.overflowed = torch.zeros((), device=device)  # 1: this step's gradients overflowed; optimizers read it

    def load_host_state(self) -> None:
        host = self.host_scale
        values = [host.value, host.good, host.overflows, host.skipped, host.streak]
        self.state.copy_(torch.tensor(values, dtype=torch.float64))

    @property
    def value(self) -> Tensor:
        """Factor of the loss."""
        return self.state[0].float()

    def unscale(self, gradients: list[Tensor]) -> None:
        """Divide the gradients by the scale; set `overflowed` to 1 if one is not finite, else to 0."""
        torch._foreach_mul_(gradients, self.value.reciprocal())
        largest = torch.stack([norm.float() for norm in torch._foreach_norm(gradients, float("inf"))])
        self.overflowed.copy_(~torch.isfinite(largest).all())

    def update(self) -> None:
        """Update the scale as `LossScale.update` does."""
        host, skips = self.host_scale, self.overflowed.double()  # 1 for a step that is skipped, else 0
        value, good, overflows, skipped, streak = self.state.unbind()
        good, streak = (good + 1) * (1 - skips), (streak + 1) * skips
        skipped, overflows = skipped + skips, overflows + skips
        if host.is_dynamic:
            grown, shrunk = good >= host.grow_every, (skips > 0) & (overflows >= host.shrink_after)
            value = torch.where(shrunk, (value / 2).clamp(min=1.0), torch.where(grown, value * 2, value))
            good, overflows = good.masked_fill(grown, 0), overflows.masked_fill(grown | shrunk, 0)
        self.state.copy_(torch.stack([value, good, overflows, skipped, streak]))

    def finish(self) -> int:
        """Copy the state to the host, waiting for the device; return the steps skipped since `load_host_state`."""
        host, skipped_before = self.host_scale, self.host_scale.skipped
        host.value, *counts = self.state.tolist()
        host.good, host.overflows, host.skipped, host.streak = map(int, counts)
        return host.skipped - skipped_before
