"""The training loop; its algorithm is `Training.fit`.

`Training` connects the parts of a run: `TrainingStep` (forward, backward, clip, update), `Progress` (steps, rates,
seeds), `RunState` (snapshots for checkpoints), a parallel strategy, callbacks, and a sink, which takes N steps on the
device without returning to the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn

from viaduct.data.batches import Batch, BatchStream
from viaduct.data.source import Dataset
from viaduct.devices.base import Device
from viaduct.errors import BadValue
from viaduct.recipes import Recipe
from viaduct.training import checkpoint
from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.compiling import choose_mode, uses_own_kernels
from viaduct.training.distributed import ALONE, Agreement, Group
from viaduct.training.ema import AveragedWeights
from viaduct.training.freezing import freeze, set_frozen_norms_to_evaluation
from viaduct.training.layout import choose_layout
from viaduct.training.metrics import Score, evaluate
from viaduct.training.networks import apply_source_settings, build_model, describe_model, place_model
from viaduct.training.optim import build_loss, build_optimizer, compute_l2_loss
from viaduct.training.optimizer_support import support_optimizer
from viaduct.training.output_streams import print_note
from viaduct.training.parallel import build_strategy
from viaduct.training.precision import Computation, LossScale, describe_emulation, plan_precision
from viaduct.training.progress import Progress, Stopwatch
from viaduct.training.random_generators import seed_run
from viaduct.training.recipe_code import check_callbacks, explain_callback_errors, explain_recipe_errors
from viaduct.training.rundir import RunDir
from viaduct.training.schedule import compute_run_length
from viaduct.training.sink import build_sink
from viaduct.training.snapshot import RunState
from viaduct.training.step import TrainingStep
from viaduct.training.syncnorm import synchronise_norms
from viaduct.training.watchdog import Pulse

FINISHED = "finished"


class Training:
    """One run: a recipe, on a device, in a directory."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunDir,
        images: Dataset,
        device: Device,
        torch_device: torch.device,
        callbacks: list[Callback],
        read_signal: Callable[[], int] = lambda: 0,
        group: Group = ALONE,
    ) -> None:
        recipe = apply_source_settings(recipe, keep_size=True)  # the caller has opened images of the recipe's size
        check_callbacks(callbacks)
        self.recipe, self.run, self.images, self.device, self.torch_device = recipe, run, images, device, torch_device
        self.group, self.agreement = group, Agreement(group, read_signal)
        self.callbacks = [callback for callback in callbacks if group.is_rank_zero or callback.every_rank]
        seed_run(recipe)
        device.set_tf32(recipe.precision.tf32)
        built = build_model(recipe)
        self.layout = choose_layout(recipe, built, group)
        self.parallel = build_strategy(recipe, built, group, self.layout.classifier)
        self.model = place_model(built, torch_device)
        if group.ranks > 1 and recipe.parallel.sync_norm:
            synchronise_norms(self.model, torch_device.type)
        freeze(self.model, recipe.init.freeze)
        self.precision_plan = plan_precision(recipe.precision, device)
        self.mode = choose_mode(recipe, torch_device.type, group.ranks, self.needs_every_step)
        if note := describe_emulation(self.precision_plan, device):
            self.print_note(note)
        self.computation = self.build_computation()
        self.scale = LossScale(recipe.precision, self.precision_plan.compute)
        self.optimizer = build_optimizer(recipe, self.model)
        self.ema = AveragedWeights(recipe.ema, self.model) if recipe.ema else None
        support = support_optimizer(self.optimizer)
        self.parallel.attach_optimizer(support)
        batches = partial(recipe.data.open_batches, device=torch_device, seed=recipe.seed)
        if group.ranks > 1:
            batches = partial(batches, share=self.parallel.share)
        self.train_batches: BatchStream = batches(images.train, train=True)
        self.validation: BatchStream = batches(images.validation, train=False)
        rates = [float(parameters["lr"]) for parameters in self.optimizer.param_groups]
        self.progress = Progress(recipe, compute_run_length(recipe, self.train_batches.count), rates)
        self.stopwatch, self.pulse = Stopwatch(), Pulse()
        self.score: Score | None = None
        self._is_on_every_rank = True  # False while a callback is called that runs on rank 0 only
        self._stop_reason_to_come = "another rank asked for it"  # request_stop overwrites it on the rank that asked
        self.train_step = TrainingStep(
            recipe, self.computation, support, self.scale, self.ema, self.parallel, self.progress, self.pulse, self.emit
        )
        self.run_state = RunState(self.train_step, self.stopwatch, device)
        self.sink, self._sink_obstacle = build_sink(self)
        # The tuned operators for recipe.json: {"bank": path, "choices": {operator: choice}}; None if there are none.
        self.tuning_record: dict[str, Any] | None = None

    def build_computation(self) -> Computation:
        """Return the network as this run computes it: cast, with viaduct's kernels, wrapped for the ranks, compiled.

        If a callback observes every operator, `compile: auto` compiles the network whole, because the callback switches
        between the compiled and the original network.
        """
        recipe, every_step = self.recipe, self.needs_every_step
        may_sink = bool(recipe.sink) and self.group.ranks == 1 and not every_step
        compile = "whole" if every_step and recipe.compile == "auto" else recipe.compile
        return Computation(
            self.model,
            self.precision_plan,
            self.torch_device,
            compile if self.mode == "graph" else "off",
            recipe.compile_parts,
            # A sink captures a whole step as a graph, and a graph cannot hold the graphs of torch's compiler.
            device_graphs=self.device.get_graph_class() is not None and not may_sink,
            parallel=self.parallel.wrap_network,
            fuse=self.fuse_kernels,
        )

    def fuse_kernels(self, network: nn.Module) -> int:
        """Install viaduct's own kernels if recipe and device allow it; return how many parts use them."""
        compute, device_type = self.precision_plan.compute, self.torch_device.type
        if not uses_own_kernels(self.recipe, compute, device_type, self.needs_every_step, self.mode):
            return 0
        from viaduct.kernels.fuse import fuse  # imported here, because it imports Triton

        count = fuse(network, self.precision_plan.dtype)
        if self.recipe.kernels == "on" and not count:
            raise BadValue("--kernels on: viaduct's kernels fit no part of the network.", "Leave it at --kernels auto.")
        return count

    # Properties and methods for callbacks

    @property
    def step(self) -> int:
        """Number of steps done."""
        return self.progress.step

    @property
    def steps(self) -> int:
        """Number of steps of the run."""
        return self.progress.steps

    @property
    def epoch(self) -> float:
        """Epochs done, with their fraction."""
        return self.progress.epoch

    @property
    def rate(self) -> float:
        """Learning rate of the last step."""
        return self.progress.rate

    def change_learning_rate(self, rate: float | None = None, factor: float | None = None) -> None:
        """Set the coming step's rate to `rate`, or multiply it by `factor`.

        All later rates change by the same factor, also after a resume.
        """
        self.refuse_single_rank("change_learning_rate")
        self.progress.change_learning_rate(rate, factor)

    def change_order_seed(self, seed: int) -> None:
        """Use this seed for the order and augmentation of all epochs that have not started yet."""
        self.refuse_single_rank("change_order_seed")
        self.progress.change_order_seed(seed)

    def change_loss_weights(self, main: float | None = None, auxiliary: float | None = None) -> None:
        """Change the weights of the main loss and of the auxiliary head's loss; None leaves a weight unchanged."""
        self.refuse_single_rank("change_loss_weights")
        self.progress.change_loss_weights(main, auxiliary)
        if self.sink:
            self.sink.replay = None  # the captured step has the old weights

    def refuse_single_rank(self, setter: str) -> None:
        """Raise BadValue if `setter` is called by a callback that runs only on rank 0, because all ranks must agree."""
        if self.group.ranks > 1 and not self._is_on_every_rank:
            message = f"{setter} was called on rank 0 alone, and {self.group.ranks} ranks train together."
            raise BadValue(message, "Give the callback `every_rank = True`, so that all ranks make the same change.")

    def request_stop(self, reason: str) -> None:
        """Finish the run after this step, or after the next one if only rank 0 calls this."""
        if self.group.ranks == 1 or self._is_on_every_rank:
            self.progress.stop_reason = reason
        else:
            self.agreement.wants_end, self._stop_reason_to_come = True, reason

    @property
    def needs_every_step(self) -> bool:
        """Return True if any callback must observe each step and every operator on the host."""
        return any(callback.needs_every_step for callback in self.callbacks)

    # The algorithm

    def fit(self) -> str:
        """Train to the last step or until a stop is requested; return `finished` or `interrupted`."""
        progress = self.progress
        self.emit("start")
        self.stopwatch.restart()
        if self.recipe.evaluation.eval_only:
            self.evaluate()
            return self.finish("interrupted" if self.score is None else FINISHED)
        if progress.is_evaluation_due():  # the run was interrupted before this evaluation
            self.evaluate()
        batches = self.begin_training()
        while progress.step < progress.steps and not progress.stop_reason:
            self.advance(batches)
            if self.is_interrupted() and not progress.is_complete:
                return self.finish("interrupted")
        if not progress.is_complete:
            self.evaluate()
        return self.finish(FINISHED if progress.is_complete else "interrupted")

    def begin_training(self) -> Iterator[Batch]:
        """Set the network to training, start averaged weights, and return the batches from the coming step on."""
        self.set_training_mode()
        if self.ema and self.ema.updates == 0:
            self.ema.start()
        return self.fetch_batches()

    def fetch_batches(self) -> Iterator[Batch]:
        """Yield the coming batches. A profile replaces `train_step.timer` to time each fetch."""
        batches = self.iterate_batches()
        while True:
            yield self.train_step.timer.fetch_batch(batches)

    def iterate_batches(self) -> Iterator[Batch]:
        """Yield the batches of the coming steps, epoch after epoch."""
        epoch, done = divmod(self.progress.step, self.progress.run_length.steps_per_epoch)
        while True:
            self.train_batches.reseed(self.progress.order_seed_of(epoch))
            yield from self.train_batches.epoch(epoch, start=done)
            epoch, done = epoch + 1, 0

    def set_training_mode(self) -> None:
        """Switch the network to training mode, except frozen norms."""
        self.computation.train(True)
        if self.recipe.init.freeze:
            set_frozen_norms_to_evaluation(self.computation.network)

    def advance(self, batches: Iterator[Batch]) -> None:
        """Take one step, or the steps of one sink, with log line, evaluation and callbacks."""
        if self.sink is None:
            self.run_step(next(batches))
            is_log_due = self.progress.step % self.recipe.log.every_steps == 0
        else:
            self.sink.run_steps(batches)
            is_log_due = self.sink.is_log_due()
        self.finish_steps(is_log_due)

    def finish_steps(self, is_log_due: bool) -> None:
        """Log and evaluate if due, call the callbacks, exchange requests with the other ranks."""
        if is_log_due:
            self.log()
        if self.progress.is_evaluation_due() and not self.is_interrupted():
            self.evaluate()
        self.emit("step")
        self.exchange_requests()

    def run_step(self, batch: Batch) -> None:
        """Take one step that the host drives; its loss and count of correct images stay on the device."""
        # A captured step reads fp32 rates from device memory; steps between captured ones must round alike.
        round_rates = self.sink is not None and self.sink.obstacle is None
        with explain_recipe_errors(self.recipe, self.progress.step):
            self.train_step.run_on_host(batch, round_rates)
        self.train_step.timer.end_step()
        self.progress.step += 1
        self.pulse.reach_point("the end", self.progress.step)
        if line := self.computation.compilation.describe_compilation():
            self.print_note(line)

    def exchange_requests(self) -> None:
        """Send this rank's requests to the others after a step, and act on theirs."""
        self.pulse.reach_point("the messages", self.progress.step)
        self.agreement.exchange()
        self.pulse.reach_point("the next batch", self.progress.step)
        self.pulse.has_done_step = True  # the first step, which may compile for minutes, is over
        if self.agreement.is_end_agreed:
            self.progress.stop_reason = self.progress.stop_reason or self._stop_reason_to_come

    @property
    def sink_obstacle(self) -> str | None:
        """The reason why the host drives each step although the recipe allows sinks; None if there is none."""
        return self._sink_obstacle if self.sink is None else self.sink.obstacle

    def is_stopping(self) -> bool:
        """Return True if no further step may begin."""
        return self.is_interrupted() or bool(self.progress.stop_reason)

    def is_interrupted(self) -> bool:
        """Return True if a rank has received a signal to stop, and all ranks know of it."""
        return self.agreement.get_signal() != 0

    def log(self) -> None:
        """Read losses and correct images since the last log line from the device, and call the callbacks."""
        if not self.train_step.results:
            return
        losses, correct_counts = self.train_step.read_results()
        images = len(losses) * self.recipe.data.global_batch
        seconds = self.stopwatch.add_time("training")
        # A loss that is not finite is an fp16 overflow; otherwise the callback NanStop ends the run.
        finite = [loss for loss in losses if math.isfinite(loss)]
        loss = sum(finite) / len(finite) if finite else math.nan
        record = LogRecord(
            step=self.progress.step,
            epoch=self.progress.epoch,
            loss=loss,
            total_loss=loss + float(compute_l2_loss(self.optimizer, self.parallel.compute_full_norms)),
            top1=correct_counts[0] / images,
            top5=correct_counts[1] / images if len(correct_counts) > 1 else None,
            lr=self.progress.rate,
            images_per_s=images / max(seconds, 1e-9),
            loss_scale=self.scale.value,
            skipped=self.scale.skipped,
            losses=losses,
        )
        self.emit("log", record)
        self.stopwatch.restart()

    def evaluate(self) -> None:
        """Score the validation images and call the callbacks; an interrupted evaluation has no score."""
        self.log()
        self.stopwatch.restart()
        self.computation.train(False)
        averages = self.ema.swap_in(self.computation) if self.ema else nullcontext()
        with averages, explain_recipe_errors(self.recipe, step=None):
            self.group.broadcast_tensors(self.computation.network.buffers())
            score = evaluate(
                self.computation,
                self.validation,
                self.recipe.data.classes,
                build_loss(self.recipe, training=False),
                self.finish_evaluation_batch,
                self.group,
                self.parallel.score_batch,
                self.recipe.metrics,
            )
        self.set_training_mode()
        self.stopwatch.add_time("evaluation")
        if score is not None:
            self.progress.evaluated_at, self.score = self.progress.step, score
            self.emit("evaluation", score)

    def finish_evaluation_batch(self, done: int, total: int) -> bool:
        """Call the callbacks after a batch of an evaluation; return False if the run was interrupted."""
        self.pulse.reach_point(f"evaluation batch {done}", self.progress.step)
        self.emit("evaluating", done, total)
        self.agreement.exchange()
        return not self.is_interrupted()

    def save(self) -> checkpoint.SavedCheckpoint:
        """Write a checkpoint of this step. All ranks call it; rank 0 writes."""
        self.log()  # a loss that is not finite stops the run here, before the checkpoint is written
        self.stopwatch.restart()
        step, folder = self.progress.step, self.run.checkpoints
        notes = {"model": describe_model(self.recipe), "classes": self.recipe.data.classes, "epoch": self.epoch}
        if self.score is not None and self.progress.evaluated_at == step:
            notes["evaluation"] = self.score.to_record()
        snapshot = self.run_state.take_snapshot()
        saved = checkpoint.SavedCheckpoint(folder / f"step-{step}")
        if self.group.is_rank_zero:
            saved = checkpoint.save(folder, step, snapshot, notes)
        self.stopwatch.add_time("checkpoints")
        self.emit("checkpoint", saved)
        self.agreement.mark_saved()
        return saved

    def restore(self, saved: checkpoint.SavedCheckpoint) -> None:
        """Load the state of a checkpoint: the next step is the one after it."""
        averages = saved.read_averaged_weights() if self.ema else None
        snapshot = checkpoint.Snapshot(saved.read_model(), saved.read_training_state(), averages)
        self.run_state.restore(snapshot, saved.path)

    def finish(self, outcome: str) -> str:
        """Call the callbacks at the end of the session; return `outcome`."""
        self.agreement.finish_exchange()
        if self.group.ranks > 1:  # the report names the bad records of all ranks
            for stream in (self.train_batches, self.validation):
                skipped = self.group.gather(list(stream.skipped))
                stream.skipped[:] = dict.fromkeys(record for records in skipped for record in records)
        self.emit("end", outcome)
        return outcome

    def print_note(self, line: str) -> None:
        """Print a line for the user on stderr, on rank 0 only."""
        if self.group.is_rank_zero:
            print_note(line)

    def emit(self, event: str, *details: Any) -> None:
        """Call the method `event` of every callback; "end" in reverse.

        Checkpointing comes after the recipe's callbacks, and must save before they end.
        """
        for callback in reversed(self.callbacks) if event == "end" else self.callbacks:
            self._is_on_every_rank = callback.every_rank
            with explain_callback_errors(callback, event):
                getattr(callback, event)(self, *details)
