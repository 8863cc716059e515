"""Profiles some steps of a run into RUN/profile (`viaduct train --profile 100-120`).

The profile is written after the last of these steps; advice and report.html are added at the end of the run. With
several ranks each writes its own folder (rank_0, rank_1 …), and rank 0 merges them. The range of profiled steps is
called the window. `profiling.collector.Collector` times its first steps and records the operators of the others.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from viaduct import __version__
from viaduct.cores import count_cores
from viaduct.errors import BadValue, ViaductError
from viaduct.profiling.advice import add_advice
from viaduct.profiling.collector import Collector, Plan
from viaduct.profiling.folder import is_profile_folder, merge_events, merge_ranks, read_profile, write_profile
from viaduct.profiling.kinds import OPTIMIZER
from viaduct.profiling.options import ProfilingOptions, Window, choose_default_window
from viaduct.profiling.outputs import RANK_PREFIX, REPORT_FILE, remove_profile
from viaduct.profiling.record import Facts, Profile
from viaduct.profiling.trace import read_events
from viaduct.recipes import Recipe
from viaduct.training.callbacks import Callback
from viaduct.training.checkpoint import SavedCheckpoint
from viaduct.training.metrics import Score
from viaduct.training.profile_timer import PointHooks, ProfileTimer, check_point

if TYPE_CHECKING:
    from viaduct.training.loop import Training

PROFILE_FOLDER = "profile"


@dataclass(frozen=True)
class ProfileRequest:
    """Steps of a run to profile, and the name of the profile."""

    window: Window | None  # None: default steps (requested by PROFILING_MODE), or those of the plan of `Profiling`
    options: ProfilingOptions = field(default_factory=ProfilingOptions)
    source: str = ""  # name of the recipe
    command: str = ""  # command line, shown in the profile
    notes: tuple[str, ...] = ()  # for the profile

    def check_recipe(self, recipe: Recipe) -> None:
        """Raise BadValue if a window is requested of a recipe without training steps."""
        if recipe.evaluation.eval_only and self.window is not None:
            raise BadValue(f"--profile {self.window} and --eval-only: an evaluation takes no steps.", "Leave one out.")

    def check_training(self, training: Training) -> None:
        """Raise an error if the run lacks these steps, or the network a module that the options name.

        fp_point and bp_point name the modules in which the forward pass begins and the backward pass ends.
        """
        window, steps = self.window, training.steps
        if window is not None and window.last >= steps:
            message = f"--profile {window}: the run has {steps:,} steps, 0 to {steps - 1:,}."
            raise BadValue(message, f"For its last steps: --profile {max(0, steps - len(window))}-{steps - 1}")
        for key in ("fp_point", "bp_point"):
            check_point(key, getattr(self.options, key), training.computation.network)


class Profiling(Callback):
    """Collects the profile of a window of steps, and writes it."""

    every_rank = True
    every_step = False

    def __init__(self, request: ProfileRequest, folder: Path | None = None, plan: Plan | None = None) -> None:
        """Profile the requested steps or, with `plan`, the first steps of the run.

        The profile is written into `folder`, else into the folder of the request's options, else into RUN/profile.
        """
        self.request, self.plan = request, plan
        self.requested_folder = folder or request.options.output
        self.window: Window | None = None  # None if an earlier process took the steps
        self.collector: Collector | None = None
        self.first_step = 0  # the run's number of the step that the collector counts as 0
        self.ended = ""  # how the run ended if that was before the window's last step
        self.written = False  # True once this rank's files are written, or writing them has failed
        self.published = False  # True once advice and the page are added to the files
        self.lines: list[str] = []  # notes for the user

    # Events of the run

    def start(self, training: Training) -> None:
        self.folder = self.requested_folder or training.run.path / PROFILE_FOLDER
        self.window = self.choose_window(training)
        self.timer = ProfileTimer(training, lambda: self.collect(training))
        if self.window is not None:
            training.train_step.timer = self.timer

    def choose_window(self, training: Training) -> Window | None:
        """Return the steps to profile; None if an earlier process took them all."""
        requested, step = self.request.window, training.step
        if self.plan is not None:
            return Window(step, step + self.plan.total - 1)
        if requested is None:
            return choose_default_window(step, training.steps) if step < training.steps else None
        return None if requested.last < step else Window(max(requested.first, step), requested.last)

    def collect(self, training: Training) -> Collector | None:
        """Open and return the collector, one step before the window; None before that step and after the window.

        The first step of the window is measured from the end of the step before it.
        """
        window = self.window
        if window is None or not window.first - 1 <= training.step <= window.last:
            return None
        plan = self.plan or self.make_plan(training, window)
        self.first_step = training.step
        if training.group.is_rank_zero:
            with suppress(OSError):  # `write` will report the error
                remove_profile(self.folder)  # of an earlier session, which may have had more ranks
        self.collector = Collector(plan, training.torch_device.type, training.group.rank)
        self.attach_hooks(training)
        return self.collector

    def make_plan(self, training: Training, window: Window) -> Plan:
        """Return how many steps are timed and recorded; no evaluation is due between recorded steps, nor a checkpoint.

        A checkpoint that is due by time may come nevertheless.
        """
        intended = window.count_recorded() if self.request.options.operators else 0
        intervals = (training.progress.evaluation_every, training.recipe.checkpoint.every_steps)
        # Steps of the window's end that follow the last planned evaluation or checkpoint before it.
        steps_since = min((window.last % every for every in intervals if every), default=window.last)
        recorded = min(intended, steps_since)
        if recorded < intended and not recorded:
            self.lines.append(f"No operators: an evaluation or a checkpoint comes right before step {window.last}.")
        return Plan(skip=window.first - training.step, timed=len(window) - recorded, recorded=recorded)

    def attach_hooks(self, training: Training) -> None:
        """Attach hooks to the network, unless they would become part of a compiled or captured graph."""
        assert self.collector is not None
        options, network = self.request.options, training.computation.network
        if training.mode == "graph" or training.sink is not None:
            if options.fp_point or options.bp_point:
                self.lines.append("fp_point and bp_point are not used: compiled or captured steps have no such points.")
            return
        self.collector.add_network(network)
        self.timer.hooks = PointHooks(options.fp_point, options.bp_point, self.timer)
        self.timer.hooks.attach(network)

    def evaluation(self, training: Training, score: Score) -> None:
        self.note_interruption("evaluation")

    def checkpoint(self, training: Training, saved: SavedCheckpoint) -> None:
        self.note_interruption("checkpoint")

    def note_interruption(self, kind: str) -> None:
        """Tell the collector of an evaluation or checkpoint between two steps; add a note if these are recorded."""
        self.timer.note_interruption(kind)
        collector = self.collector
        if collector is None or collector.done or not collector.plan.recorded:
            return
        if collector.ended_steps >= collector.plan.skip + collector.plan.timed:
            self.lines.append(f"The operators include those of a {kind} between the recorded steps.")

    def step(self, training: Training) -> None:
        if self.collector is not None and self.collector.done and not self.written:
            start = time.monotonic()
            self.write(training)
            training.stopwatch.exclude(time.monotonic() - start)

    def end(self, training: Training, outcome: str) -> None:
        if self.collector is not None and not self.written:
            self.write(training, ended=f"{outcome} after step {training.step}")
        if training.group.is_rank_zero:
            self.publish()

    def write_unfinished(self, training: Training, ended: str) -> None:
        """Write the profile collected before an error; with several ranks only this rank's part."""
        if self.collector is None:
            return
        if not self.written:
            self.write(training, ended, alone=True)
        if training.group.ranks == 1:
            self.publish()

    # Files

    def write(self, training: Training, ended: str = "", alone: bool = False) -> None:
        """Write the files of this rank and, unless it is `alone` after an error, of all ranks merged.

        A profile that cannot be written does not end the run.
        """
        self.written, self.ended = True, ended
        self.timer.hooks.detach()
        has_ranks = training.group.ranks > 1
        folder = self.folder / f"{RANK_PREFIX}{training.group.rank}" if has_ranks else self.folder
        with self.note_errors("The profile could not be written"):
            self.write_rank(training, folder, ended)
        if has_ranks and not alone:
            training.group.gather(str(folder))  # wait until every rank has written its folder
            if training.group.is_rank_zero:
                with self.note_errors("The ranks' profiles could not be merged"):
                    self.lines += merge_rank_folders(self.folder, training.group.ranks)

    @contextmanager
    def note_errors(self, failure: str) -> Iterator[None]:
        """Turn an error within the block into a note for the user."""
        try:
            yield
        except (OSError, ViaductError) as error:
            self.lines.append(f"{failure}: {error}")

    def write_rank(self, training: Training, folder: Path, ended: str) -> None:
        collector, options = self.collector, self.request.options
        assert collector is not None
        profile = collector.finish(self.describe(training, ended))
        steps = [replace(step, number=step.number + self.first_step) for step in profile.steps]
        if not options.collectives:
            steps = [replace(step, collectives=()) for step in steps]
        profile = replace(profile, steps=steps)
        profile = split_replays(profile, self.timer.replayed)
        profile, events = fit_storage(profile, collector.events, options.storage_limit)
        write_profile(profile, folder, events)

    def publish(self) -> None:
        """Add advice and the page to the files, once."""
        if not self.published and self.written and is_profile_folder(self.folder):
            self.published = True
            with self.note_errors("The page of the profile could not be written"):
                publish_profile(self.folder)

    # Descriptions

    def describe(self, training: Training, ended: str) -> Facts:
        """Return the facts of the run; `ended` says how the run ended if that was within the window."""
        sink = training.sink
        captured = f", sink {sink.length}" if sink is not None and sink.replay is not None else ""
        return Facts(
            source=self.request.source,
            kind="recipe",
            device=training.torch_device.type,
            description=training.device.describe_card(),
            ranks=training.group.ranks,
            command=self.request.command,
            batch=len(training.parallel.positions),
            precision=training.precision_plan.name,
            mode=training.mode + captured,
            phases_found_by=tuple(self.timer.describe()),
            notes=(*self.request.notes, *self.request.options.notes, *self.lines),
            ended=ended,
            versions={"viaduct": __version__, "torch": torch.__version__, "python": platform.python_version()},
            date=f"{datetime.now(timezone.utc):%Y-%m-%d}",
            workers=getattr(training.recipe.data, "workers", None) or None,  # None: the loader chooses the number
            cores=count_cores(),
        )

    def describe_outcome(self) -> list[str]:
        """Return lines for the user at the end of the run."""
        notes = [*self.request.options.notes, *self.lines]
        if not self.written:
            steps = f"--profile {self.request.window}" if self.request.window else "PROFILING_MODE"
            return [*notes, f"{steps}: nothing was profiled, since this process took none of these steps."]
        if not is_profile_folder(self.folder):
            return notes  # one of them says why the profile could not be written
        page = self.folder / REPORT_FILE if self.published else self.folder
        steps = "step" if self.window is not None and len(self.window) == 1 else "steps"
        incomplete = f", incomplete ({self.ended})" if self.ended else ""
        return [*notes, f"Profile of {steps} {self.window}{incomplete}: {page}"]


@contextmanager
def write_profiles_on_error(profilings: Sequence[Profiling], training: Training) -> Iterator[None]:
    """Write the profile collected so far if an error ends the block, and raise the error."""
    try:
        yield
    except BaseException as error:
        reason = f"{type(error).__name__} after step {training.step}: {error}".splitlines()[0]
        for profiling in profilings:
            profiling.write_unfinished(training, reason)
        raise


def merge_rank_folders(folder: Path, ranks: int) -> list[str]:
    """Write the merged profile of the ranks into their common folder; return a note if some ranks have none."""
    paths = [folder / f"{RANK_PREFIX}{rank}" for rank in range(ranks)]
    folders = [path for path in paths if is_profile_folder(path)]
    merged = merge_ranks(folders)
    notes = []
    if missing := [path.name for path in paths if path not in folders]:
        notes.append(f"The merged profile lacks {', '.join(missing)}: no profile was written there.")
        merged = replace(merged, facts=add_note(merged.facts, notes[0]))
    write_profile(merged, folder, merge_events(folders))
    return notes


def publish_profile(folder: Path) -> Profile:
    """Add advice to the profile in a folder, and write its page."""
    from viaduct.profiling.report import write_report

    profile = add_advice(read_profile(folder))
    write_profile(profile, folder, read_events(folder))
    write_report(profile, folder / REPORT_FILE)
    return profile


def split_replays(profile: Profile, replayed: set[int]) -> Profile:
    """Estimate the end of the backward pass in captured steps, of which the host observes only start and end.

    `replayed` has the numbers of these steps. The optimizer's share of the time of all kernels in the recorded steps is
    taken for the update's share of a replay.
    """
    if not any(step.number in replayed for step in profile.steps):
        return profile
    total = sum(kernel.time_us for kernel in profile.kernels)
    update = sum(kernel.time_us for kernel in profile.kernels if kernel.kind == OPTIMIZER)
    if not update:
        note = "Captured steps: it is not known where the backward pass ends; no kernel of the update was recorded."
        facts = add_note(profile.facts, f"{note} Forward + backward includes the update.")
        return replace(profile, facts=replace(facts, phases_measured=False))
    share = update / total
    steps = [
        replace(step, backward_end_us=step.end_us - share * (step.end_us - step.forward_start_us))
        if step.number in replayed
        else step
        for step in profile.steps
    ]
    note = f"Captured steps: the backward end is estimated; {share:.1%} of the kernels' time are the optimizer's."
    return replace(profile, steps=steps, facts=add_note(profile.facts, note))


def add_note(facts: Facts, note: str) -> Facts:
    return replace(facts, notes=(*facts.notes, note))


def fit_storage(
    profile: Profile, events: Sequence[dict[str, Any]], limit: int | None
) -> tuple[Profile, Sequence[dict[str, Any]]]:
    """Leave out the last events of a trace that is larger than `limit` bytes, and add a note to the profile."""
    sizes = accumulate(len(json.dumps(event, default=str)) + 2 for event in events)  # 2: comma and newline
    kept = len(events) if limit is None else sum(1 for _ in takewhile(lambda size: size <= limit, sizes))
    if kept == len(events):
        return profile, events
    note = f"storage_limit: the trace has {kept:,} of {len(events):,} recorded events."
    return replace(profile, facts=add_note(profile.facts, note)), events[:kept]
