"""What a training knows about its run at one moment, for notes, the summary, the report and recipe.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from viaduct.data.source import Dataset
from viaduct.devices.base import Device
from viaduct.recipes import Recipe
from viaduct.training.callbacks import Callback
from viaduct.training.metrics import Score
from viaduct.training.precision import PrecisionPlan
from viaduct.training.rundir import RunDir

if TYPE_CHECKING:
    from viaduct.training.loop import Training


@dataclass(frozen=True)
class TrainingFacts:
    """Facts of a run at one moment; the fields from `step` on change while it is trained."""

    run: RunDir
    recipe: Recipe
    images: Dataset
    device: Device
    callbacks: tuple[Callback, ...]
    ranks: int
    ranks_flag: str  # for a command that resumes the run: " --ranks N", or empty
    parallel: str  # "data" or "hybrid"
    layout: str  # a sentence for the user on why this was chosen; empty if there was no choice
    precision: PrecisionPlan
    mode: str  # "eager" or "graph"
    compiled: str  # "regional", "whole" or "off"
    own_kernels: int  # parts of the network that run on viaduct's own kernels
    parameters: int  # of the network, on all ranks together
    tuning: dict[str, Any] | None  # tuned operators, as recipe.json has them

    step: int  # number of steps done
    steps: int  # number of steps of the run
    epoch: float
    is_complete: bool  # True if the run has taken its last step, or was asked to stop, and has evaluated this step
    stop_reason: str | None  # why the run ends before its last step
    score: Score | None  # of the last evaluation
    evaluated_at: int  # step of the last evaluation; -1 if there is none
    best: dict[str, Any] | None  # step and top1 of the best evaluation; None without checkpoint.keep_best
    seconds: dict[str, float]  # by activity: training, evaluation, checkpoints
    sink_length: int  # steps that the device runs without returning to the host (a sink); 0 without sinks
    is_sink_captured: bool
    sink_obstacle: str | None  # why the host drives each step although the recipe allows sinks
    skipped_steps: int  # because of overflow
    skipped_records: list[str]  # damaged records of the dataset
    peak_memory_bytes: int

    @property
    def card(self) -> str:
        """The device in words."""
        return self.device.describe_card()


def collect_facts(training: Training) -> TrainingFacts:
    """Return the facts of a training now."""
    progress, parallel, sink = training.progress, training.parallel, training.sink
    own_parameters = sum(parameter.numel() for parameter in training.model.parameters())
    return TrainingFacts(
        run=training.run,
        recipe=training.recipe,
        images=training.images,
        device=training.device,
        callbacks=tuple(training.callbacks),
        ranks=training.group.ranks,
        ranks_flag=training.group.ranks_flag,
        parallel=parallel.name,
        layout=training.layout.describe(),
        precision=training.precision_plan,
        mode=training.mode,
        compiled=training.computation.compilation.outcome,
        own_kernels=training.computation.fused_count,
        parameters=own_parameters + parallel.count_missing_parameters(),
        tuning=training.tuning_record,
        step=progress.step,
        steps=progress.steps,
        epoch=progress.epoch,
        is_complete=progress.is_complete,
        stop_reason=progress.stop_reason,
        score=training.score,
        evaluated_at=progress.evaluated_at,
        best=progress.best,
        seconds=dict(training.stopwatch.seconds),
        sink_length=sink.length if sink else 0,
        is_sink_captured=sink is not None and sink.replay is not None,
        sink_obstacle=training.sink_obstacle,
        skipped_steps=training.scale.skipped,
        skipped_records=[*training.train_batches.skipped, *training.validation.skipped],
        peak_memory_bytes=training.device.get_peak_memory(),
    )
