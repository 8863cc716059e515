"""Log lines in the formats of the reference systems, so that scripts which parse their logs can parse ours.

FORMATS has one class for each format. Every line goes to stdout and to RUN/log.txt. Format dll also writes JSON lines
to RUN/log.json, and format events writes its lines also to RUN/event_log.txt.
"""

from __future__ import annotations

import json
import math
import os
import time
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from viaduct.json_records import finite_or_null
from viaduct.recipes import DEFAULT_FORMAT
from viaduct.training.callbacks import Callback, LogRecord
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.metrics import Score
from viaduct.training.output_streams import print_line

if TYPE_CHECKING:
    from viaduct.training.loop import Training

EVENT_LOG = "event_log.txt"


class LogLines(Callback):
    """Base of the log formats: a callback that writes lines at the events of a run."""

    def start(self, training: Training) -> None:
        self.path = training.run.path / "log.txt"
        self.start_lines(training)

    def start_lines(self, training: Training) -> None:
        """Write the first lines; subclasses override it instead of `start`."""

    def write_line(self, line: str) -> None:
        """Print a line and append it to RUN/log.txt."""
        print_line(line)
        append_line(self.path, line)


def append_line(path: Path, line: str) -> None:
    """Append a line and close the file, so that nothing is lost if the run fails."""
    with path.open("a") as file:
        file.write(line + "\n")


class StepTable(LogLines):
    """The default format: a table of steps, with a table of evaluations between its lines."""

    def start_lines(self, training: Training) -> None:
        self.write_line("Step   Epoch   Speed   Loss   FinLoss   LR")

    def log(self, training: Training, record: LogRecord) -> None:
        self.write_line(
            f"step:{record.step:6d}  epoch:{record.epoch:5.1f}  FPS:{record.images_per_s:7.1f}  "
            f"loss:{record.loss:6.3f}  total_loss:{record.total_loss:6.3f}  lr:{record.lr:7.7f}"
        )

    def evaluating(self, training: Training, done: int, total: int) -> None:
        if done == 1:
            self.write_line("Evaluating")
            self.write_line(f"Validation dataset size: {training.validation.count}")

    def evaluation(self, training: Training, score: Score) -> None:
        self.write_line(" step  epoch  top1    top5     loss   checkpoint_time(UTC)")
        self.write_line(
            f"{training.step:5d}  {training.epoch:5.1f}  {100 * score.top1:5.3f}  {100 * score.top5:6.2f}  "
            f"{score.loss:6.2f}  {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S}"
        )
        for name, value in score.recipe_metrics.items():
            self.write_line(f"{name}: {value:g}")
        self.write_line("Finished evaluation")


class EstimatorLines(LogLines):
    """Lines of TensorFlow's Estimator."""

    def start_lines(self, training: Training) -> None:
        self.loss = math.nan

    def write_info(self, message: str) -> None:
        self.write_line(f"INFO:tensorflow:{message}")

    def log(self, training: Training, record: LogRecord) -> None:
        self.write_info(f"global_step/sec: {record.images_per_s / training.recipe.data.global_batch:g}")
        self.write_info(f"global_step...{record.step}")
        self.write_info(
            f"cross_entropy = {record.loss:g}, learning_rate = {record.lr:g}, train_accuracy = {record.top1:g}"
        )
        self.loss = record.total_loss

    def checkpoint(self, training: Training, saved: SavedCheckpoint) -> None:
        self.write_info(f"Saving checkpoints for {saved.step} into {saved.path}.")

    def evaluating(self, training: Training, done: int, total: int) -> None:
        if done == total or done % max(1, total // 10) == 0:
            self.write_info(f"Evaluation [{done}/{total}]")

    def evaluation(self, training: Training, score: Score) -> None:
        step = training.step
        prefix = training.run.checkpoints / f"step-{step}"
        scores = {"loss": score.loss, "top_1_accuracy": score.top1, "top_5_accuracy": score.top5}
        scores |= score.recipe_metrics
        results = scores | {"global_step": step}
        values = ", ".join(f"{name} = {value:g}" for name, value in scores.items())
        self.write_info(f"Finished evaluation at {datetime.now(timezone.utc):%Y-%m-%d-%H:%M:%S}")
        self.write_info(f"Saving dict for global step {step}: global_step = {step}, {values}")
        self.write_info(f"Saving 'checkpoint_path' summary for global step {step}: {prefix}")
        self.write_info(f"Evaluation results: {results}")

    def end(self, training: Training, outcome: str) -> None:
        self.write_info(f"Loss for final step: {self.loss:g}.")


class DllLoggerLines(LogLines):
    """Lines of NVIDIA's DLLogger, also as JSON in RUN/log.json."""

    def start_lines(self, training: Training) -> None:
        self.started_at = time.monotonic()
        self.images_per_s: list[float] = []
        self.batch_ends: list[float] = []  # times of time.monotonic(), of the last evaluation
        self.last_results: dict[str, float] = {}  # of the last evaluation
        self.json_path = training.run.path / "log.json"

    def write_values(self, step: tuple[int, ...], data: dict[str, float]) -> None:
        """Write values; `step` is (epoch, step), or empty for results of the whole run."""
        now = datetime.now()
        values = "  ".join(f"{name} : {value:g}" for name, value in data.items())
        self.write_line(f"DLL {now:%Y-%m-%d %H:%M:%S.%f} - {step} {values}")
        record = {"timestamp": f"{now.timestamp():.6f}", "elapsedtime": f"{time.monotonic() - self.started_at:.6f}"}
        entry = {**record, "type": "LOG", "step": list(step), "data": finite_or_null(data)}
        append_line(self.json_path, json.dumps(entry, allow_nan=False))

    def log(self, training: Training, record: LogRecord) -> None:
        self.images_per_s.append(record.images_per_s)
        data = {
            "imgs_per_sec": record.images_per_s,
            "cross_entropy": record.loss,
            "l2_loss": record.total_loss - record.loss,
            "total_loss": record.total_loss,
            "learning_rate": record.lr,
        }
        self.write_values((int(record.epoch), record.step), data)

    def evaluating(self, training: Training, done: int, total: int) -> None:
        if done == 1:
            self.batch_ends = []
        training.device.synchronize()
        self.batch_ends.append(time.monotonic())

    def evaluation(self, training: Training, score: Score) -> None:
        self.last_results = {"top1_accuracy": score.top1, "top5_accuracy": score.top5, **score.recipe_metrics}
        self.last_results |= {
            "eval_throughput": score.count / max(score.seconds, 1e-9),
            **compute_latencies(self.batch_ends),
        }

    def end(self, training: Training, outcome: str) -> None:
        after_warm_up = self.images_per_s[1:] or self.images_per_s  # the first log line includes the warm-up
        if after_warm_up:
            self.write_values((), {"train_throughput": sum(after_warm_up) / len(after_warm_up)})
        if self.last_results:
            self.write_values((), self.last_results)


def compute_latencies(batch_ends: list[float]) -> dict[str, float]:
    """Return mean and percentiles of the milliseconds of an evaluation batch; empty for fewer than three batches.

    `batch_ends` are times in seconds; the first batch is not measured, because nothing marks its beginning.
    """
    durations_ms = [1000 * (after - before) for before, after in pairwise(batch_ends)]
    if len(durations_ms) < 2:
        return {}
    cuts = quantiles(durations_ms, n=100, method="inclusive")
    return {
        "eval_latency_avg": sum(durations_ms) / len(durations_ms),
        "eval_latency_p90": cuts[89],
        "eval_latency_p95": cuts[94],
        "eval_latency_p99": cuts[98],
    }


class AmoebanetEvents(LogLines):
    """Lines of the timing log of AmoebaNet's Ascend port, also in RUN/event_log.txt."""

    # `step` only needs to be called at the ends of epochs. With `--sink auto` sinks (steps that the device runs without
    # the host) end there, too; the end of an epoch within a sink of `--sink N` is not written.
    every_step = False

    def start_lines(self, training: Training) -> None:
        self.event_log, self.root = training.run.path / EVENT_LOG, training.run.path
        self.namespace = f"work {find_device_index()}"
        epochs = math.ceil(training.progress.run_length.epochs_at(training.steps))
        for kind in ("benchmark_start", "pre_process_event", "init_start", "init_end"):
            self.write_event(kind)
        batch = training.recipe.data.global_batch
        self.write_value("global_batch_size", str(batch), f"num_train_epochs:{epochs}")
        self.start_epoch(training.step < training.steps)

    def write_event(self, kind: str) -> None:
        self.write_fields(f"event_type:{kind}, ")

    def write_value(self, key: str, value: str, field: str) -> None:
        self.write_fields(f" key:{key},value:{value},{field},")

    def write_fields(self, fields: str) -> None:
        now_ms = int(time.time() * 1000)
        line = f"namespace:{self.namespace},time_ts:{now_ms},{fields}root_dir:{self.root}"
        self.write_line(line)
        append_line(self.event_log, line)

    def start_epoch(self, has_steps: bool) -> None:
        self.is_in_epoch = has_steps
        if has_steps:
            self.write_event("epoch_start")

    def stop_epoch(self) -> None:
        if self.is_in_epoch:
            self.write_event("epoch_stop")
        self.is_in_epoch = False

    def log(self, training: Training, record: LogRecord) -> None:
        self.write_value("loss", f"{record.loss:g}", f"step:{record.step}")

    def evaluating(self, training: Training, done: int, total: int) -> None:
        if done == 1:
            if training.progress.is_epoch_end:
                self.stop_epoch()
            self.write_event("eval_start")

    def evaluation(self, training: Training, score: Score) -> None:
        self.write_event("eval_stop")
        for key, value in (
            ("eval_accuracy", score.top1),
            ("eval_accuracy_top5", score.top5),
            ("eval_loss", score.loss),
            *((f"eval_{name}", value) for name, value in score.recipe_metrics.items()),
        ):
            self.write_value(key, f"{value:g}", f"step:{training.step}")

    def step(self, training: Training) -> None:
        if training.progress.is_epoch_end:
            self.stop_epoch()
            self.start_epoch(training.step < training.steps and not training.progress.stop_reason)

    def end(self, training: Training, outcome: str) -> None:
        self.stop_epoch()
        self.write_event("benchmark_stop")


def find_device_index() -> str:
    """Return the device's number from the environment variables of the Ascend port, else LOCAL_RANK, else 0."""
    return next((os.environ[name] for name in ("DEVICE_INDEX", "DEVICE_ID", "LOCAL_RANK") if os.environ.get(name)), "0")


class MindsporeLines(LogLines):
    """MindSpore's lines, as Huawei's book on CANN (docs/seeds.md, document 002) prints them."""

    def log(self, training: Training, record: LogRecord) -> None:
        epoch, step = divmod(record.step - 1, training.progress.run_length.steps_per_epoch)
        self.write_line(f"epoch: {epoch + 1} step: {step + 1}, loss is {record.losses[-1]:.7g}")

    def evaluation(self, training: Training, score: Score) -> None:
        results = {"acc": score.top1, **score.recipe_metrics}
        self.write_line(f"result: {results} ckpt={training.run.checkpoints / f'step-{training.step}'}")


FORMATS: dict[str, type[LogLines]] = {
    DEFAULT_FORMAT: StepTable,
    "tf": EstimatorLines,
    "dll": DllLoggerLines,
    "events": AmoebanetEvents,
    "mindspore": MindsporeLines,
}
