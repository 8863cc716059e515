"""The training loop. Read `Training.fit` top to bottom: it is the algorithm."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from viaduct.data.batches import Batch, Share, Stream
from viaduct.data.source import PictureSet
from viaduct.devices.base import Device
from viaduct.errors import BadRun, BadValue
from viaduct.recipes import Recipe
from viaduct.training import checkpoint
from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.compiling import choose_mode
from viaduct.training.distributed import ALONE, Agreement, Group, in_parallel
from viaduct.training.ema import Shadow
from viaduct.training.freezing import freeze, rest_frozen_norms
from viaduct.training.hybrid import Hybrid, Mixed, Shards, SplitLinear, SplitLoss, mixed_labels
from viaduct.training.hybrid import count_right as hybrid_count_right
from viaduct.training.lars import LarsOptimizer, WholeNorms
from viaduct.training.layout import choose
from viaduct.training.metrics import Judge, Score, evaluate
from viaduct.training.mixup import mix, mix_pictures, mixing_weights
from viaduct.training.networks import build_model, describe_model, place_model
from viaduct.training.optim import Loss, build_loss, build_optimizer, l2_loss, smoothing_of
from viaduct.training.outlet import put
from viaduct.training.own_kernels import fuse, kernels_for
from viaduct.training.own_parts import blame_own_parts
from viaduct.training.precision import Computation, LossScale, all_finite, plan_for, software_note, unscale
from viaduct.training.rundir import RunDir
from viaduct.training.schedule import pace_of, rate_factor
from viaduct.training.sink import automatic_obstacle, build_sink
from viaduct.training.step_marks import StepMarks
from viaduct.training.syncnorm import synchronise
from viaduct.training.thor import ThorOptimizer
from viaduct.training.watchdog import Pulse

FINISHED = "finished"


class Training:
    """One run: a recipe, on a device, in a directory."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunDir,
        images: PictureSet,
        device: Device,
        torch_device: torch.device,
        callbacks: list[Callback],
        interrupted: Callable[[], int] = lambda: 0,
        group: Group = ALONE,
    ) -> None:
        self.recipe, self.run, self.images, self.device, self.torch_device = recipe, run, images, device, torch_device
        self.group, self.agreement, self.pulse = group, Agreement(group, interrupted), Pulse()
        self.interrupted = self.agreement.signal
        self.callbacks = [callback for callback in callbacks if group.first or callback.every_rank]
        settle_random_numbers(recipe)
        device.allow_tf32(recipe.precision.tf32)
        self.share = Share(group.rank, group.ranks, recipe.accumulate, recipe.mixup > 0, group.local_ranks)
        self.positions = self.share.of(recipe.data.global_batch, train=True)[1]
        built = build_model(recipe)
        self.layout = choose(recipe, built, group)
        self.hybrid = share_out(built, self.layout.classifier, recipe, self.share) if self.layout.classifier else None
        self.model = place_model(built, torch_device)
        if group.ranks > 1 and recipe.parallel.sync_norm:
            synchronise(self.model, torch_device.type)
        freeze(self.model, recipe.init.freeze)
        self.plan = plan_for(recipe.precision, device)
        self.mode = choose_mode(recipe, torch_device.type, group.ranks, self.closely)
        if note := software_note(self.plan, device):
            self.tell(note)
        self.computation = Computation(
            self.model,
            self.plan,
            torch_device,
            self.mode == "graph",
            device.graph_capture() is not None and not self.may_sink,  # a graph cannot hold graphs
            partial(
                in_parallel,
                part=recipe.parallel,
                deterministic=recipe.deterministic,
                group=group,
                apart=(SplitLinear,),
            ),
            "whole" if self.closely and recipe.compile == "auto" else recipe.compile,
            recipe.compile_parts,
            self.fuse,
        )
        self.scale = LossScale(recipe.precision, self.plan.compute)
        self.optimizer = build_optimizer(recipe, self.model)
        self.shadow = Shadow(recipe.ema, self.model) if recipe.ema else None
        self.initial_rates: list[float] = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.loss: Loss | SplitLoss = build_loss(recipe, training=True)
        self.plain_loss = build_loss(recipe, training=False)
        self.judge: Judge | None = None
        self.whole_norms: WholeNorms = lambda parameters, norms: norms
        if self.hybrid:
            self.use(self.hybrid)
        batches = partial(recipe.data.open_batches, device=torch_device, seed=recipe.seed)
        if group.ranks > 1:
            batches = partial(batches, share=self.share)
        self.train_batches: Stream = batches(images.train, train=True)
        self.validation: Stream = batches(images.validation, train=False)
        self.pace = pace_of(recipe, self.train_batches.count)
        self.steps = self.pace.steps
        self.step = 0
        self.evaluated_at = -1
        self.best: dict[str, Any] | None = None
        self.score: Score | None = None
        self.seconds = {"training": 0.0, "evaluation": 0.0, "checkpoints": 0.0}
        self.stopping: str | None = None
        self.order_seeds: list[tuple[int, int]] = []  # from an epoch on, as callbacks have changed it
        self.loss_weights = {"main": 1.0, "auxiliary": recipe.aux_weight}
        self._wanted_stop = "another rank asked for it"
        self._told_to_all = True
        self._chance_of_others: list[dict[str, Any]] = []
        self.pending: list[tuple[Tensor, Tensor]] = []
        self._window_began = time.monotonic()
        self.marks = StepMarks()  # replaced while a profile is taken
        self.sink = build_sink(self)

    @property
    def closely(self) -> bool:
        """Whether somebody looks at every step and into every part of the network."""
        return any(callback.closely for callback in self.callbacks)

    @property
    def may_sink(self) -> bool:
        """Return True if steps of this run may be captured, as far as it is known before they are built."""
        return bool(self.recipe.sink) and self.group.ranks == 1 and not self.closely

    @property
    def sink_obstacle(self) -> str | None:
        """Why the steps of a sink are not run on the device alone; None if they are, or none was asked for."""
        if self.sink is not None:
            return self.sink.obstacle
        if self.recipe.sink == "auto":
            return automatic_obstacle(self)
        return "a callback looks at every step" if self.recipe.sink and self.closely else None

    def fuse(self, network: nn.Module) -> int:
        """Put kernels of our own to work in the network, where the recipe and the device have them."""
        if not kernels_for(self.recipe, self.plan, self.torch_device.type, self.closely, self.mode):
            return 0
        return fuse(network, self.plan, must=self.recipe.kernels == "on")

    def use(self, hybrid: Hybrid) -> None:
        """The classifier is shared out: what looks at logits or at whole layers asks the other ranks."""
        self.loss = SplitLoss(hybrid.shards, smoothing_of(self.recipe, training=True))
        self.judge = SplitLoss(hybrid.shards, smoothing_of(self.recipe, training=False), training=False).judge
        self.whole_norms = hybrid.whole_norms
        hybrid.know(self.optimizer)
        if isinstance(self.optimizer, LarsOptimizer):
            self.optimizer.whole_norms = hybrid.whole_norms

    def fit(self) -> str:
        """Train to the last step; returns `finished`, or `interrupted` with a checkpoint of where it stands."""
        self.emit("start")
        self._window_began = time.monotonic()
        if self.recipe.evaluation.eval_only:
            self.evaluate()
            return self.conclude(FINISHED)
        if self.evaluation_due():  # a run that was stopped before its evaluation
            self.evaluate()
        self.to_training()
        if self.shadow and self.shadow.updates == 0:
            self.shadow.begin()
        batches = self.fetched_batches()
        while self.step < self.steps and not self.stopping:
            self.proceed(batches)
            if self.interrupted() and not self.complete:
                return self.conclude("interrupted")
        if not self.complete:
            self.evaluate()
        return self.conclude(FINISHED if self.complete else "interrupted")

    def coming_batches(self) -> Iterator[Batch]:
        """From the coming step on, epoch after epoch."""
        epoch, begun = divmod(self.step, self.pace.steps_per_epoch)
        while True:
            self.train_batches.reseed(self.order_seed_of(epoch))
            yield from self.train_batches.epoch(epoch, start=begun)
            epoch, begun = epoch + 1, 0

    def fetched_batches(self) -> Iterator[Batch]:
        """Return the coming batches, each fetched through the marks that are in place then."""
        batches = self.coming_batches()
        while True:
            yield self.marks.fetch(batches)

    @property
    def at_epoch_end(self) -> bool:
        return self.step % self.pace.steps_per_epoch == 0

    def order_seed_of(self, epoch: int) -> int:
        """Return the seed of an epoch's sample order and augmentation: the recipe's, unless a callback changed it."""
        changed = [seed for first, seed in self.order_seeds if first <= epoch]
        return changed[-1] if changed else self.recipe.seed

    def change_learning_rate(self, rate: float | None = None, factor: float | None = None) -> None:
        """For callbacks: make the coming step's rate `rate`, or `factor` times what it would be.

        The schedule continues from there: all later rates are changed by the same factor, also after a resume.
        """
        self.refuse_lone_rank("change_learning_rate")
        for name, value in (("rate", rate), ("factor", factor)):
            if value is not None and not is_share(value):
                raise BadValue(f"change_learning_rate: {name} is {value!r}.", "It must be a number, 0 or more.")
        if (rate is None) == (factor is None):
            raise BadValue("change_learning_rate takes a rate or a factor.", "One of them: factor=0.1")
        if factor is None:
            planned = self.rate_at(min(self.step, self.steps - 1))
            if not planned > 0:
                raise BadValue(
                    f"change_learning_rate: the schedule's rate is {planned:g} here; no factor makes it {rate:g}."
                )
            factor = cast(float, rate) / planned
        self.initial_rates = [initial * factor for initial in self.initial_rates]

    def change_order_seed(self, seed: int) -> None:
        """For callbacks: order and augment the epochs that have not begun by this seed."""
        self.refuse_lone_rank("change_order_seed")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise BadValue(
                f"change_order_seed: {seed!r} is no seed.", "It must be a whole number, at least 0 and below 2**63."
            )
        first = -(-self.step // self.pace.steps_per_epoch)
        self.order_seeds = [change for change in self.order_seeds if change[0] != first] + [(first, seed)]

    def change_loss_weights(self, main: float | None = None, auxiliary: float | None = None) -> None:
        """For callbacks: weigh the loss of the network's answer, and that of its auxiliary head, by these."""
        self.refuse_lone_rank("change_loss_weights")
        given = {"main": main, "auxiliary": auxiliary}
        for name, weight in given.items():
            if weight is not None and not is_share(weight):
                raise BadValue(f"change_loss_weights: {name} is {weight!r}.", "It must be a number, 0 or more.")
        self.loss_weights |= {name: float(weight) for name, weight in given.items() if weight is not None}
        if self.sink:
            self.sink.capture_anew()

    def refuse_lone_rank(self, setter: str) -> None:
        """Refuse a change that only rank 0 would make."""
        if self.group.ranks > 1 and not self._told_to_all:
            raise BadValue(
                f"{setter} was called on rank 0 alone, and {self.group.ranks} ranks train together.",
                "Give the callback `every_rank = True`: then all ranks change the same.",
            )

    def proceed(self, batches: Iterator[Batch]) -> None:
        """One step, or one sink of them, and all that belongs to it."""
        if self.sink is None:
            self.advance(next(batches))
        else:
            self.sink.take(batches)
            if self.sink.is_log_due():
                self.log()
            self.look_up()

    def advance(self, batch: Batch) -> None:
        """One step and all that belongs to it."""
        self.take(batch)
        if self.step % self.recipe.log.every_steps == 0:
            self.log()
        self.look_up()

    def take(self, batch: Batch) -> None:
        """One step, of which nothing is told yet."""
        with blame_own_parts(self.recipe, self.step):
            self.set_rate()
            self.set_progress()
            self.optimize(batch)
        self.marks.end_step()
        self.step += 1
        self.pulse.at("the end", self.step)
        if news := self.computation.compilation.news():
            self.tell(news)

    def look_up(self) -> None:
        """Between steps, or between sinks: evaluate where it is due, tell the callbacks, hear the other ranks."""
        if self.evaluation_due() and not self.interrupted():
            self.evaluate()
        self.emit("step")
        self.hear_others()

    def hear_others(self) -> None:
        """What other ranks wish, after each step."""
        self.pulse.at("the messages", self.step)
        self.agreement.exchange()
        self.pulse.at("the next batch", self.step)
        self.pulse.steady = True
        if self.agreement.end:
            self.stopping = self.stopping or self._wanted_stop

    def optimize(self, batch: Batch) -> None:
        """Forward, backward, update: one optimizer step over the global batch."""
        pictures, targets = self.mixed(batch)
        found = self.passes(pictures, targets, self.scale.value)
        self.pulse.at("the update", self.step + 1)
        self.computation.gather_gradients()
        if self.gradients_usable():
            if self.recipe.clip_norm:
                self.clip(self.recipe.clip_norm)
            if self.observes(self.step + 1):
                self.emit("gradients", batch.images, batch.labels)
            self.optimizer.step()
            self.computation.publish_weights()
            if self.shadow:
                self.shadow.update(self.computation)
        self.optimizer.zero_grad(set_to_none=True)
        # Left on the device: reading them here would make the host wait for every step.
        self.pending.append(found)

    def observes(self, step: int) -> bool:
        """Return True if callbacks look at the gradients and images of this step, counted from 1."""
        every = self.recipe.log.tensorboard_every or self.recipe.log.every_steps
        return bool(self.recipe.log.observed & {"images", "histograms"}) and step % every == 0

    def passes(self, pictures: Tensor, targets: Any, scale: float | Tensor) -> tuple[Tensor, Tensor]:
        """Forward and backward, part by part: the gradients are there then; the mean loss and how many were right."""
        parts = self.recipe.accumulate
        losses, hits = [], []
        for number, (images, labels) in enumerate(zip(pictures.chunk(parts), targets.chunk(parts), strict=True)):
            last = number == parts - 1
            self.pulse.at("forward", self.step + 1)
            self.marks.begin_forward()
            with self.computation.part(last):
                with self.observed(last):
                    logits, *auxiliary = self.computation.outputs(images)
                loss = self.objective(logits, auxiliary, labels)
                self.emit("forward", labels, loss)
                self.pulse.at("backward", self.step + 1)
                scaled = loss * (scale / parts * self.loss_weight)
                self.marks.watch_backward(scaled)
                scaled.backward()  # type: ignore[no-untyped-call]
            self.marks.end_backward()
            losses.append(loss.detach())
            hits.append(self.count_right(logits.detach(), labels))
        return torch.stack(losses).mean(), torch.stack(hits).sum(0)

    @property
    def weight(self) -> float:
        """Of this rank's loss in the mean over the ranks: more than 1 where it has more pictures than the others."""
        return len(self.positions) * self.group.ranks / self.recipe.data.global_batch

    @property
    def loss_weight(self) -> float:
        """What a rank's loss is multiplied by: in hybrid it is that of the whole batch already."""
        if self.hybrid:
            return 1.0
        return self.weight * (self.group.ranks if self.recipe.parallel.reduce == "sum" else 1)

    def count_right(self, logits: Tensor, labels: Any) -> Tensor:
        if self.hybrid:
            return hybrid_count_right(logits, labels, self.hybrid.shards)[None]
        right = count_right(logits, labels)
        return torch.stack([right, count_among_five(logits, labels)]) if self.counts_top5 else right[None]

    @property
    def counts_top5(self) -> bool:
        """Return True if the training accuracy among the first five is counted, too; not of a shared classifier."""
        return "top5" in self.recipe.log.observed and self.hybrid is None

    def clip(self, most: float) -> None:
        if self.hybrid:
            self.hybrid.clip(self.parameters, most)
        else:
            nn.utils.clip_grad_norm_(self.parameters, most)

    def objective(self, logits: Tensor, auxiliary: list[Tensor], labels: Any) -> Tensor:
        """What is made smaller, but for the weight decay: the loss, and that of the auxiliary heads."""
        extra = [self.loss_weights["auxiliary"] * self.loss(heads, labels) for heads in auxiliary]
        main = self.loss(logits, labels)
        return sum(extra, main if self.loss_weights["main"] == 1 else main * self.loss_weights["main"])

    def mixed(self, batch: Batch) -> tuple[Tensor, Tensor | Mixed]:
        """Pictures and labels as the recipe mixes them."""
        if not self.recipe.mixup:
            return batch.images, batch.labels
        there = self.mixing_weights().to(self.torch_device, non_blocking=True)
        if self.hybrid:
            return mix_pictures(batch.images, there), mixed_labels(batch.labels, there)
        return mix(batch.images, batch.labels, there, self.recipe.data.classes)

    def mixing_weights(self) -> Tensor:
        """Of the coming step, still on the host."""
        weights = mixing_weights(self.recipe.mixup, self.recipe.seed, self.step, self.recipe.data.global_batch)
        return torch.from_numpy(weights[self.positions])

    @contextmanager
    def observed(self, last: bool) -> Iterator[None]:
        """A second-order optimizer looks at the last part of its refresh steps, which then runs uncompiled."""
        if not (last and isinstance(self.optimizer, ThorOptimizer) and self.optimizer.refreshing):
            yield
            return
        scale = self.scale.value / self.recipe.accumulate
        with self.computation.eagerly() as network, self.optimizer.watching(network, scale):
            yield

    def gradients_usable(self) -> bool:
        """Take the loss scale out of the gradients; False if they overflowed and the step must be skipped."""
        unscale(self.parameters, self.scale.value)
        if not self.scale.watching:
            return True
        finite = all_finite(self.parameters)
        if self.hybrid:
            finite = self.hybrid.agreed(finite)
        self.scale.update(finite)
        return finite

    @property
    def complete(self) -> bool:
        """Whether the run has taken its last step and has looked at what came of it."""
        return (self.step >= self.steps or self.stopping is not None) and self.evaluated_at == self.step

    @property
    def epoch(self) -> float:
        return self.pace.epochs_at(self.step)

    @property
    def rate(self) -> float:
        """The learning rate of the step that was last taken."""
        return self.rate_at(max(self.step - 1, 0))

    def rate_at(self, step: int) -> float:
        return self.initial_rates[0] * rate_factor(self.recipe, step, self.pace)

    def set_rate(self) -> None:
        factor = rate_factor(self.recipe, self.step, self.pace)
        captured = self.sink is not None and self.sink.obstacle is None
        for group, initial in zip(self.optimizer.param_groups, self.initial_rates, strict=True):
            rate = initial * factor
            group["lr"] = float(np.float32(rate)) if captured else rate  # as a captured step reads it
        if isinstance(self.optimizer, ThorOptimizer):
            self.optimizer.set_epoch((self.step + 1) / self.pace.steps_per_epoch)

    def to_training(self) -> None:
        self.computation.train(True)
        if self.recipe.init.freeze:
            rest_frozen_norms(self.computation.network)

    def set_progress(self) -> None:
        """Tell a network that drops more and more paths how far the run has come."""
        for network in {self.computation.master, self.computation.network}:
            tell = getattr(network, "set_progress", None)
            if callable(tell):
                tell(self.step / self.steps)

    def request_stop(self, reason: str) -> None:
        """Finish after this step, as if it were the last; of several ranks, as soon as all know of it."""
        if self.group.ranks == 1 or self._told_to_all:
            self.stopping = reason
        else:
            self.agreement.want_end, self._wanted_stop = True, reason

    @property
    def evaluation_every(self) -> int:
        """Steps between evaluations; 0: there is only the last."""
        epochs = self.recipe.evaluation.every_epochs
        return max(1, round(epochs * self.pace.steps_per_epoch)) if epochs > 0 else 0

    def evaluation_due(self) -> bool:
        if self.step == self.evaluated_at or self.step == 0:
            return False
        every = self.evaluation_every
        return (every > 0 and self.step % every == 0) or self.step >= self.steps

    def log(self) -> None:
        """Read what the device has computed since the last log line, and tell the callbacks."""
        if not self.pending:
            return
        losses, hits = self.read_pending()
        images = len(losses) * self.recipe.data.global_batch
        self.pending.clear()
        seconds = self.close_window("training")
        finite = [loss for loss in losses if math.isfinite(loss)]  # others are overflows, or stop the run
        loss = sum(finite) / len(finite) if finite else math.nan
        record = LogRecord(
            step=self.step,
            epoch=self.epoch,
            loss=loss,
            total_loss=loss + float(l2_loss(self.optimizer, self.whole_norms)),
            top1=hits[0] / images,
            top5=hits[1] / images if len(hits) > 1 else None,
            lr=self.rate,
            images_per_s=images / max(seconds, 1e-9),
            loss_scale=self.scale.value,
            skipped=self.scale.skipped,
            losses=losses,
        )
        self.emit("log", record)
        self._window_began = time.monotonic()

    def read_pending(self) -> tuple[list[float], list[int]]:
        """The losses of the steps since the last log line, as means over all ranks, and how many were right."""
        losses = torch.stack([loss.double() for loss, _ in self.pending])
        hits = torch.stack([hits for _, hits in self.pending]).sum(0)
        if self.group.ranks > 1:
            both = torch.cat([losses * (self.weight / self.group.ranks), hits.double()])
            self.group.add_up(both)
            losses, hits = both[: len(losses)], both[len(losses) :]
        return losses.tolist(), [int(count) for count in hits.tolist()]

    def evaluate(self) -> None:
        """Score the validation pictures; given up without a trace if the run is interrupted meanwhile."""
        self.log()
        self._window_began = time.monotonic()
        self.computation.train(False)
        classes = self.recipe.data.classes
        shown = self.shadow.shown(self.computation) if self.shadow else nullcontext()
        with shown, blame_own_parts(self.recipe, step=None):
            self.group.copy_from_first(self.computation.network.buffers())
            score = evaluate(
                self.computation,
                self.validation,
                classes,
                self.plain_loss,
                self.after_batch,
                self.group,
                self.judge,
                self.recipe.metrics,
            )
        self.to_training()
        self.close_window("evaluation")
        if score is not None:
            self.evaluated_at, self.score = self.step, score
            self.emit("evaluation", score)

    def after_batch(self, done: int, total: int) -> bool:
        self.pulse.at(f"evaluation batch {done}", self.step)
        self.emit("evaluating", done, total)
        self.agreement.exchange()
        return not self.interrupted()

    def save(self) -> checkpoint.Saved:
        """Write a checkpoint of this step. All ranks come here; rank 0 writes."""
        self.log()  # a loss that is not finite stops the run here, before it is saved
        self._window_began = time.monotonic()
        self.computation.gather_statistics()
        notes = {"model": describe_model(self.recipe), "classes": self.recipe.data.classes, "epoch": self.epoch}
        if self.score is not None and self.evaluated_at == self.step:
            notes["evaluation"] = self.score.headline()
        model, shadow = self.model.state_dict(), self.shadow.tensors(self.model) if self.shadow else None
        state = self.state() | {"random_of_others": self.group.gather(random_states(self.device))[1:]}
        if self.hybrid:
            model, state["optimizer"] = dict(model), self.hybrid.loose(state["optimizer"])
            self.hybrid.gather(model, state["optimizer"], shadow)
        if self.group.first:
            saved = checkpoint.save(self.run.checkpoints, self.step, model, state, notes, shadow)
        else:
            saved = checkpoint.Saved(self.run.checkpoints / f"step-{self.step}")
        self.close_window("checkpoints")
        self.emit("checkpoint", saved)
        self.agreement.saved()
        return saved

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "evaluated_at": self.evaluated_at,
            "best": self.best,
            "optimizer": self.optimizer.state_dict(),
            "initial_rates": self.initial_rates,
            "order_seeds": self.order_seeds,
            "loss_weights": self.loss_weights,
            "scale": self.scale.state(),
            "ema_updates": self.shadow.updates if self.shadow else 0,
            "random": random_states(self.device),
            "seconds": dict(self.seconds),
            "position": {"seed": self.recipe.seed, "samples": self.step * self.recipe.data.global_batch},
        }

    def restore(self, saved: checkpoint.Saved) -> None:
        """Continue from a checkpoint as if nothing had happened."""
        tensors = saved.model()
        self.adopt(saved.path, tensors, saved.training_state(), saved.ema() if self.shadow else None)

    def share_start(self) -> None:
        """Stand where rank 0 stands, which alone has looked at the disk."""
        if self.group.ranks == 1:
            return
        state = self.state() | {"random_of_others": self._chance_of_others}
        model, shadow = checkpoint.on_host(self.model.state_dict()), self.shadow_tensors()
        if self.hybrid:
            state["optimizer"] = self.hybrid.loose(state["optimizer"])
            self.hybrid.pack(model, state["optimizer"], shadow)
        model, state, shadow = self.group.from_first((model, state, shadow))
        if self.hybrid:
            self.hybrid.unpack(model, state["optimizer"], shadow)
        if not self.group.first:
            self.adopt(self.run.checkpoints, model, state, shadow)

    def whole_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors that a checkpoint holds, whatever the layout."""
        shapes = {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()}
        if self.hybrid:
            shapes |= {name: (self.recipe.data.classes, *shapes[name][1:]) for name in self.hybrid.names}
        return shapes

    def shadow_tensors(self) -> dict[str, Tensor] | None:
        return checkpoint.on_host(self.shadow.tensors(self.model)) if self.shadow else None

    def adopt(self, path: Path, model: dict[str, Tensor], state: dict[str, Any], ema: dict[str, Tensor] | None) -> None:
        """Take over weights and everything else; `path` is where they come from."""
        if self.hybrid:
            state = {**state, "optimizer": self.hybrid.loose(state["optimizer"])}
            self.hybrid.cut(model, state["optimizer"], ema)
        checkpoint.load_model(self.model, model, path)
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadRun(f"{path} was written with another optimizer: {error}") from None
        self.step, self.evaluated_at, self.best = state["step"], state["evaluated_at"], state["best"]
        if self.step >= self.steps or self.recipe.evaluation.stop_threshold:
            self.evaluated_at = -1  # a run that was killed just before its end still owes its final score
        self.initial_rates, self.seconds = state["initial_rates"], state["seconds"]
        self.order_seeds = [(first, seed) for first, seed in state.get("order_seeds", [])]
        self.loss_weights = {**self.loss_weights, **state.get("loss_weights", {})}
        self.scale.restore(state["scale"])
        if self.shadow and ema is not None:
            self.shadow.restore(ema, state["ema_updates"])
        self.computation.publish_weights()
        self.computation.publish_statistics()
        self.continue_chance(state)

    def continue_chance(self, state: dict[str, Any]) -> None:
        """Random numbers go on where they were; a rank that was not there then begins with its own."""
        self._chance_of_others = state.get("random_of_others", [])
        of_ranks = [state["random"], *self._chance_of_others]
        if self.group.rank < len(of_ranks):
            set_random_states(of_ranks[self.group.rank], self.device)
        else:
            entropy = np.random.SeedSequence([self.recipe.seed, self.step, self.group.rank])
            seed_all(int(entropy.generate_state(1, np.uint64)[0] >> np.uint64(1)))

    def conclude(self, outcome: str) -> str:
        self.agreement.settle()
        self.name_skipped_of_all()
        # The last one first, as blocks close: checkpointing, at the end of the list, still speaks to all the others.
        for callback in reversed(self.callbacks):
            callback.end(self, outcome)
        return outcome

    def name_skipped_of_all(self) -> None:
        """The report names the bad records that any rank has met."""
        if self.group.ranks > 1:
            for stream in (self.train_batches, self.validation):
                found = self.group.gather(list(stream.skipped))
                stream.skipped[:] = dict.fromkeys(what for skipped in found for what in skipped)

    def leave_out_of_window(self, seconds: float) -> None:
        """Take time that was no part of training out of the window that is open."""
        self._window_began += seconds

    def close_window(self, kind: str) -> float:
        """Book the time since the last window under its kind."""
        now = time.monotonic()
        seconds = now - self._window_began
        self.seconds[kind] += seconds
        self._window_began = now
        return seconds

    def tell(self, line: str) -> None:
        """Something that a person should know, said by one rank for all."""
        if self.group.first:
            put(line, sys.stderr)

    def emit(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            self._told_to_all = callback.every_rank
            getattr(callback, event)(self, *details)


def is_share(value: Any) -> bool:
    """Return True for a finite number that is not below 0."""
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def share_out(model: nn.Module, name: str, recipe: Recipe, share: Share) -> Hybrid:
    """Leave this rank its rows of the classifier."""
    others = [replace(share, rank=rank) for rank in range(share.ranks)]
    counts = [len(one.of(recipe.data.global_batch, train=True)[1]) // recipe.accumulate for one in others]
    return Hybrid(model, name, Shards(recipe.data.classes, share.rank, share.ranks, tuple(counts)))


def count_right(logits: Tensor, labels: Tensor) -> Tensor:
    """How many pictures have the largest logit at their label, or with mixup at the stronger of their two."""
    strongest = labels if labels.ndim == 1 else labels.argmax(1)
    return (logits.argmax(1) == strongest).sum()


def count_among_five(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how many images have their label among the five largest logits; with mixup the stronger of two."""
    strongest = labels if labels.ndim == 1 else labels.argmax(1)
    return (logits.topk(min(5, logits.shape[1])).indices == strongest[:, None]).sum()


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def settle_random_numbers(recipe: Recipe) -> None:
    seed_all(recipe.seed)
    if recipe.deterministic != torch.are_deterministic_algorithms_enabled():  # it imports the compiler: seconds
        torch.use_deterministic_algorithms(recipe.deterministic)
    # cuDNN's search for the quickest algorithm may pick another one each time.
    torch.backends.cudnn.benchmark = not recipe.deterministic
    torch.backends.cudnn.deterministic = recipe.deterministic


def random_states(device: Device) -> dict[str, Any]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "device": device.random_state(),
    }


def set_random_states(states: dict[str, Any], device: Device) -> None:
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["device"] is not None and device.random_state() is not None:
        device.set_random_state(states["device"])
