"""The callback interface, and the loop's own callbacks.

A recipe of your own may have callbacks: instances of a subclass of `Callback`. The loop calls

    start(training)                    once, before the first step; `training.step` is above 0 in a resumed run
    forward(training, labels, loss)    after the forward pass of each accumulated part; both tensors are on the device
    gradients(training, images, labels)
                                       before the update, only in steps whose images or histograms are recorded for
                                       TensorBoard; `parameter.grad` is what the optimizer gets
    log(training, record)              every `log.every_steps` steps (with `--sink N` after each sink), and before each
                                       evaluation and checkpoint
    evaluating(training, done, total)  after each batch of an evaluation
    evaluation(training, score)        after each evaluation that was not interrupted
    step(training)                     after each step, also one skipped because of overflow, and after its log line
                                       and evaluation
    checkpoint(training, saved)        after a checkpoint is complete on disk
    end(training, outcome)             once, when the run is finished or interrupted, after everything else, also the
                                       last checkpoint; after an error only if an image cannot be read or a metric of
                                       the recipe fails

Log records and scores are those of all ranks together; `forward` and `gradients` get the images, labels and loss of
this rank. `forward` gets labels that mixup or cutmix has mixed, `gradients` the images and labels before mixing.

docs/own-recipe.md describes what a callback may read and change, and callbacks with several ranks and with sinks.
"""

from __future__ import annotations

import json
import math
import mmap
import sys
import time
import warnings
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from viaduct.errors import Diverged
from viaduct.json_records import finite_or_null
from viaduct.training.checkpoint import SavedCheckpoint, find_newest_intact, prune
from viaduct.training.metrics import Score
from viaduct.training.rundir import STEP_MARK_BYTES, STEP_MARK_FILE

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from torch import Tensor

    from viaduct.training.loop import Training


@dataclass(frozen=True)
class LogRecord:
    """Results of the steps since the last record.

    `loss` is the mean over the steps with a finite loss; `top1` and `top5` are shares of the images of all these steps.
    """

    step: int
    epoch: float
    loss: float
    total_loss: float  # with the weight decay's L2 term
    top1: float
    lr: float  # learning rate of the last step
    images_per_s: float
    loss_scale: float
    skipped: int  # steps of the whole run that were skipped because of overflow
    losses: list[float] = field(repr=False)  # of each step
    top5: float | None = None  # None unless the recipe's log.tensorboard has "top5"

    @property
    def first_step(self) -> int:
        """First step that the record covers."""
        return self.step - len(self.losses) + 1


class Callback:
    """Base of all callbacks, whose methods do nothing. A subclass defines those that it wants."""

    every_rank = False  # True: it is called on each rank, not only on rank 0, and must do the same on all
    # True: it observes each step and every operator of the network, so the run uses no sinks and no kernels of viaduct.
    needs_every_step = False
    every_step = True  # if `step` is defined, it must be called after each step, so `--sink auto` uses no sinks

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "closely" in vars(cls):  # the former name of `needs_every_step`, which works until the next release
            warnings.warn(f"{cls.__name__}.closely is now called needs_every_step", FutureWarning, stacklevel=2)
            cls.needs_every_step = vars(cls)["closely"]

    def start(self, training: Training) -> None: ...
    def forward(self, training: Training, labels: Tensor, loss: Tensor) -> None: ...
    def gradients(self, training: Training, images: Tensor, labels: Tensor) -> None: ...
    def log(self, training: Training, record: LogRecord) -> None: ...
    def evaluating(self, training: Training, done: int, total: int) -> None: ...
    def evaluation(self, training: Training, score: Score) -> None: ...
    def step(self, training: Training) -> None: ...
    def checkpoint(self, training: Training, saved: SavedCheckpoint) -> None: ...
    def end(self, training: Training, outcome: str) -> None: ...


class NanStop(Callback):
    """Ends the run if a loss is NaN or infinite, before the next log line or checkpoint is written.

    If the loss scale skips steps that overflow (fp16), the run goes on as long as a lower scale may help.
    """

    every_rank = True

    def log(self, training: Training, record: LogRecord) -> None:
        checked = record.losses if not training.scale.skips_overflows or training.scale.is_exhausted else []
        for offset, loss in enumerate(checked):
            if not math.isfinite(loss):
                raise self.build_error(training, record.first_step + offset, loss)
        if math.isfinite(record.loss) and not math.isfinite(record.total_loss):  # a weight is not finite
            raise self.build_error(training, record.step, record.total_loss)

    def build_error(self, training: Training, step: int, loss: float) -> Diverged:
        """Return the error that names the step, the rate and the newest checkpoint whose files are intact."""
        saved, _ = find_newest_intact(training.run.checkpoints)
        newest = f"The newest intact checkpoint is {saved.path}." if saved else "There is no intact checkpoint."
        rate = training.progress.rate_at(step - 1)
        message = f"the loss became {loss} at step {step}, with learning rate {rate:g}."
        return Diverged(message, newest, "Try a lower rate.")


class StopAtThreshold(Callback):
    """Ends the run once the validation accuracy reaches `evaluation.stop_threshold`."""

    every_rank = True

    def evaluation(self, training: Training, score: Score) -> None:
        threshold = training.recipe.evaluation.stop_threshold
        if threshold and score.top1 >= threshold:
            training.request_stop(f"top-1 {100 * score.top1:.2f} % reached the stop threshold of {100 * threshold:g} %")


class Checkpointing(Callback):
    """Saves checkpoints by steps, by time, at each new best, and at the end; keeps the last few and the best."""

    every_rank = True
    every_step = False

    def start(self, training: Training) -> None:
        self.saved_at, self.saved_step, self.new_best = time.monotonic(), training.step, False

    def evaluation(self, training: Training, score: Score) -> None:
        best = training.progress.best
        if training.recipe.checkpoint.keep_best and (best is None or score.top1 > best["top1"]):
            training.progress.best = {"step": training.step, "top1": score.top1}
            self.new_best = True

    def step(self, training: Training) -> None:
        settings = training.recipe.checkpoint
        by_steps = settings.every_steps and training.step % settings.every_steps == 0
        is_late = bool(settings.every_minutes) and time.monotonic() - self.saved_at >= 60 * settings.every_minutes
        by_time = training.agreement.is_save_due(is_late)
        if by_steps or by_time or self.new_best or training.step >= training.steps:
            self.save(training)

    def end(self, training: Training, outcome: str) -> None:
        if training.step != self.saved_step:
            self.save(training)

    def save(self, training: Training) -> None:
        training.save()
        best = training.progress.best["step"] if training.progress.best else None
        if training.group.is_rank_zero:
            prune(training.run.checkpoints, training.recipe.checkpoint.keep, best, newest=training.step)
        self.saved_at, self.saved_step, self.new_best = time.monotonic(), training.step, False


class StepMark(Callback):
    """Writes the number of the last step into RUN/.reached, for the next process if this one is killed."""

    every_step = False

    def start(self, training: Training) -> None:
        path = training.run.path / STEP_MARK_FILE
        path.write_bytes(training.step.to_bytes(STEP_MARK_BYTES, "little"))
        with path.open("r+b") as file:
            # The operating system writes this memory to the file, even if the process is killed.
            self.memory = mmap.mmap(file.fileno(), STEP_MARK_BYTES)

    def step(self, training: Training) -> None:
        self.memory[:] = training.step.to_bytes(STEP_MARK_BYTES, "little")


class MetricsFile(Callback):
    """Writes RUN/metrics.jsonl."""

    def start(self, training: Training) -> None:
        self.path = training.run.metrics

    def log(self, training: Training, record: LogRecord) -> None:
        self.write("log", asdict(record) | {"time": time.time()})

    def evaluation(self, training: Training, score: Score) -> None:
        fields = score.to_record() | {"epoch": training.epoch, "time": time.time()}
        self.write("evaluation", {"step": training.step, **fields})

    def checkpoint(self, training: Training, saved: SavedCheckpoint) -> None:
        self.write("checkpoint", {"step": saved.step, "path": str(saved.path), "time": time.time()})

    def write(self, kind: str, record: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(finite_or_null({"kind": kind, **record}), allow_nan=False) + "\n")


class ProgressBar(Callback):
    """Shows a bar with rate and remaining time on a terminal, and nothing if the output is piped."""

    every_step = False

    def __init__(self, stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stderr
        self.bar: Progress | None = None

    def start(self, training: Training) -> None:
        if not self.stream.isatty():
            return
        self.bar, self.task = build_bar(self.stream, training.steps, training.step)
        self.bar.start()

    def step(self, training: Training) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=training.step, note=f"epoch {training.epoch:.1f}")

    def log(self, training: Training, record: LogRecord) -> None:
        if self.bar is not None:
            self.bar.update(self.task, rate=f"{record.images_per_s:,.0f} images/s", loss=f"loss {record.loss:.3f}")

    def evaluating(self, training: Training, done: int, total: int) -> None:
        if self.bar is not None:
            self.bar.update(self.task, note=f"evaluating {done}/{total}")

    def end(self, training: Training, outcome: str) -> None:
        self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def build_bar(stream: IO[str], steps: int, step: int) -> tuple[Progress, TaskID]:
    """Return rich's progress bar of a run at a step, and the id of its only task."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(file=stream)
    # Lines that are printed to stdout meanwhile appear above the bar, or go unchanged into a pipe or file.
    bar = Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty())
    return bar, bar.add_task("", total=steps, completed=step, rate="", loss="", note="")
