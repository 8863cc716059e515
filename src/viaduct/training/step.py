"""One optimizer step over a global batch: forward, backward, clip, update.

`TrainingStep.run` is the sequence both for steps that the host drives and for steps that are captured as a device
graph. These differ in their `Update`: `HostUpdate` has loss scale, learning rates and averaging decay in Python,
`device_step.DeviceStep` in tensors on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from viaduct.data.batches import Batch
from viaduct.recipes import Recipe
from viaduct.training.ema import AveragedWeights
from viaduct.training.mixup import draw_cutmix_rows, draw_mixup_weights
from viaduct.training.optimizer_support import OptimizerSupport
from viaduct.training.parallel import SingleRank
from viaduct.training.precision import Computation, LossScale, has_finite_gradients, unscale_gradients
from viaduct.training.progress import Progress
from viaduct.training.watchdog import Pulse


class Update(Protocol):
    """Loss scale of a step, and what happens to its gradients after the backward pass."""

    @property
    def loss_scale(self) -> float | Tensor:
        """Factor of the loss before the backward pass."""

    def remove_scale(self) -> bool:
        """Divide the gradients by the loss scale; return False if the host knows that the step must be skipped."""

    def step_optimizer(self) -> None:
        """Update the master weights."""

    def average_weights(self) -> None:
        """Update the averaged weights, if the run has them."""


class StepTimer:
    """Gets the time points of a step, for a profile; this class ignores them, `profile_timer.ProfileTimer` does not.

    The points (docs/profile.md): `begin_forward` before the network runs on a batch that is on the device,
    `end_backward` once the gradients are computed, `end_step` after the update. With accumulated parts the first
    `begin_forward` and the last `end_backward` count. A replay has `end_replay` in place of `end_backward`.
    """

    def fetch_batch(self, batches: Iterator[Batch]) -> Batch:
        """Wait for the next batch and return it."""
        return next(batches)

    def begin_forward(self) -> None: ...

    def watch_backward(self, loss: Tensor) -> None:
        """Observe the backward pass that is about to begin at this loss."""

    def end_backward(self) -> None: ...
    def end_step(self) -> None: ...
    def end_replay(self) -> None: ...

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Record no time points within the block: a step is captured there, not taken."""
        yield


class TrainingStep:
    """The training step of a run, with the objects that it uses."""

    def __init__(
        self,
        recipe: Recipe,
        computation: Computation,
        optimizer_support: OptimizerSupport,
        scale: LossScale,
        ema: AveragedWeights | None,
        parallel: SingleRank,  # or a subclass: the strategies for several ranks
        progress: Progress,
        pulse: Pulse,
        emit: Callable[..., None],
    ) -> None:
        """`emit(event, *details)` calls an event of every callback; `pulse` reports progress to the watchdog."""
        self.recipe, self.computation, self.scale, self.ema = recipe, computation, scale, ema
        self.optimizer_support = optimizer_support
        self.parallel, self.progress, self.pulse, self.emit = parallel, progress, pulse, emit
        self.optimizer: torch.optim.Optimizer = optimizer_support.optimizer
        self.parameters = [parameter for parameter in computation.master.parameters() if parameter.requires_grad]
        self.loss = parallel.build_loss()
        self.timer = StepTimer()  # replaced while a profile is taken
        # The loss and the counts of correct images that `run` returned for each step that is not logged yet.
        self.results: list[tuple[Tensor, Tensor]] = []
        self.host_update = HostUpdate(self)

    def run_on_host(self, batch: Batch, round_rates: bool) -> None:
        """Set the rates of the coming step and take it; `round_rates`: learning rates in fp32, as in captured steps."""
        self.set_rates(self.progress.step, round_rates)
        self.set_network_progress(self.progress.step / self.progress.steps)
        self.optimize(batch)

    def optimize(self, batch: Batch) -> None:
        """Mix the batch, run a step with the present rates, and append its loss and correct images to `results`."""
        images, targets = self.mix_batch(batch, self.draw_mixing_weights())
        observed = batch if self.is_observed(self.progress.step + 1) else None
        # The results stay on the device; reading them here would make the host wait for every step.
        self.results.append(self.run(images, targets, self.host_update, observed))

    def run(self, images: Tensor, targets: Any, update: Update, observed: Batch | None = None) -> tuple[Tensor, Tensor]:
        """Take a step: forward, backward, clip, update; return the mean loss and the counts of correct images.

        `observed` is the batch before mixing, if callbacks observe the gradients of this step.
        """
        results = self.run_passes(images, targets, update.loss_scale)
        self.pulse.reach_point("the update", self.progress.step + 1)
        self.computation.gather_gradients()  # from the network to the master weights; no collective
        if update.remove_scale():
            if self.recipe.clip_norm:
                self.parallel.clip_gradients(self.parameters, self.recipe.clip_norm)
            if observed is not None:
                self.emit("gradients", observed.images, observed.labels)
            update.step_optimizer()
            self.computation.publish_weights()  # from the master weights to the network; no collective
            update.average_weights()
        self.optimizer.zero_grad(set_to_none=True)
        return results

    def run_passes(self, images: Tensor, targets: Any, scale: float | Tensor) -> tuple[Tensor, Tensor]:
        """Run forward and backward, part by part; return what `run` returns. `scale` is the loss scale."""
        parts, step = self.recipe.accumulate, self.progress.step + 1
        # The factor of the loss below, as a number for an optimizer that observes it; `scale` may be a tensor.
        factor = self.scale.value / parts * self.parallel.rank_loss_weight
        losses, correct_counts = [], []
        for number, (part, labels) in enumerate(zip(images.chunk(parts), targets.chunk(parts), strict=True)):
            is_last = number == parts - 1
            self.pulse.reach_point("forward", step)
            self.timer.begin_forward()
            with self.computation.accumulate_part(is_last):
                with self.optimizer_support.observe_passes(self.computation, factor) if is_last else nullcontext():
                    logits, *auxiliary = self.computation.compute_outputs(part)
                loss = self.compute_loss(logits, auxiliary, labels)
                self.emit("forward", labels, loss)
                self.pulse.reach_point("backward", step)
                scaled = loss * (scale / parts * self.parallel.rank_loss_weight)
                self.timer.watch_backward(scaled)
                scaled.backward()  # type: ignore[no-untyped-call]
            self.timer.end_backward()
            losses.append(loss.detach())
            correct_counts.append(self.parallel.count_correct(logits.detach(), labels))
        return torch.stack(losses).mean(), torch.stack(correct_counts).sum(0)

    def compute_loss(self, logits: Tensor, auxiliary: list[Tensor], labels: Any) -> Tensor:
        """Return the weighted sum of the main loss and the losses of the auxiliary heads, without weight decay."""
        weights = self.progress.loss_weights
        auxiliary_losses = [weights["auxiliary"] * self.loss(outputs, labels) for outputs in auxiliary]
        main = self.loss(logits, labels)
        return sum(auxiliary_losses, main if weights["main"] == 1 else main * weights["main"])

    def mix_batch(self, batch: Batch, weights: Tensor | None) -> tuple[Tensor, Any]:
        """Return images and labels, mixed by what `draw_mixing_weights` returned."""
        if weights is None:
            return batch.images, batch.labels
        weights = weights.to(self.computation.device, non_blocking=True)
        return self.parallel.mix_batch(batch.images, batch.labels, weights)

    def draw_mixing_weights(self) -> Tensor | None:
        """Return how to mix this rank's images in the coming step, on the host; None if the recipe does not mix them.

        Mixup has one weight for each image, cutmix the row that `draw_cutmix_rows` describes.
        """
        recipe = self.recipe
        if not recipe.mixes_images:
            return None
        step, count = self.progress.step, recipe.data.global_batch
        if recipe.cutmix:
            weights = draw_cutmix_rows(recipe.mixup, recipe.cutmix, recipe.seed, step, count, recipe.data.size)
        else:
            weights = draw_mixup_weights(recipe.mixup, recipe.seed, step, count)
        return torch.from_numpy(weights[self.parallel.positions])

    def is_observed(self, step: int) -> bool:
        """Return True if callbacks observe the gradients and images of this step, counted from 1."""
        every = self.recipe.log.tensorboard_every or self.recipe.log.every_steps
        return bool(self.recipe.log.tensorboard_names & {"images", "histograms"}) and step % every == 0

    def set_rates(self, step: int, round_rates: bool) -> None:
        """Give the optimizer the learning rates of a step, counted from 0."""
        for group, rate in zip(self.optimizer.param_groups, self.progress.rates_at(step), strict=True):
            group["lr"] = float(np.float32(rate)) if round_rates else rate
        self.optimizer_support.set_epoch((step + 1) / self.progress.run_length.steps_per_epoch)

    def set_network_progress(self, share: float | Tensor) -> None:
        """Give a network with scheduled drop path the share of the run that is done, which may be on the device.

        AmoebaNet has a buffer for it; a network of the recipe's author may have a method `set_progress` for the host.
        """
        for network in {self.computation.master, self.computation.network}:
            buffer, set_progress = getattr(network, "drop_path_progress", None), getattr(network, "set_progress", None)
            if callable(set_progress) and isinstance(share, float):
                set_progress(share)
            elif isinstance(buffer, Tensor):
                buffer.copy_(share) if isinstance(share, Tensor) else buffer.fill_(share)

    def read_results(self) -> tuple[list[float], list[int]]:
        """Return the loss of each step since the last call, and the number of correct images in these steps.

        Both are those of all ranks. With `SingleRank.counts_top5` the second list has two numbers, for top-1 and top-5.
        The call waits for the device.
        """
        losses = torch.stack([loss.double() for loss, _ in self.results])
        correct_counts = torch.stack([correct_counts for _, correct_counts in self.results]).sum(0)
        self.results.clear()
        losses, correct_counts = self.parallel.reduce_results(losses, correct_counts)
        return losses.tolist(), [int(count) for count in correct_counts.tolist()]


class HostUpdate:
    """Update whose loss scale, learning rates and averaging decay come from Python."""

    def __init__(self, step: TrainingStep) -> None:
        self.step = step

    @property
    def loss_scale(self) -> float:
        return self.step.scale.value

    def remove_scale(self) -> bool:
        step = self.step
        unscale_gradients(step.parameters, step.scale.value)
        if not step.scale.skips_overflows:
            return True
        finite = step.parallel.agree_on_finite(has_finite_gradients(step.parameters))
        step.scale.update(finite)
        return finite

    def step_optimizer(self) -> None:
        self.step.optimizer.step()

    def average_weights(self) -> None:
        if self.step.ema:
            self.step.ema.update(self.step.computation)
