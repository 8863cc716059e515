"""Train a recipe in a run directory on a device: begin or resume the run, train, write its final files.

A session is the work of one process on a run; a resumed run has several sessions. starting.py and finishing.py have the
beginning and the end of a session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from viaduct import devices
from viaduct.data.batches import RankShare
from viaduct.errors import ViaductError
from viaduct.recipes import Recipe
from viaduct.reporting import Remark
from viaduct.signals import name_signal
from viaduct.training.callbacks import (
    Callback,
    Checkpointing,
    MetricsFile,
    NanStop,
    ProgressBar,
    StepMark,
    StopAtThreshold,
)
from viaduct.training.distributed import Group, join_ranks
from viaduct.training.dumping import Dumping, check_dump
from viaduct.training.finishing import fit_and_save, record_failure, report_end
from viaduct.training.images import check_path, load_images
from viaduct.training.interrupt import Interrupt
from viaduct.training.limits import explain_limits
from viaduct.training.live import Ending, LivePage
from viaduct.training.logs import FORMATS
from viaduct.training.loop import FINISHED, Training
from viaduct.training.observing import TensorBoard
from viaduct.training.output_streams import print_note
from viaduct.training.profile_callback import Profiling, write_profiles_on_error
from viaduct.training.request import TrainingRequest
from viaduct.training.starting import (
    describe_finished,
    find_start,
    print_and_log,
    refuse_or_find_finished,
    restore_or_initialise,
    use_bank,
)
from viaduct.training.tracking import build_trackers
from viaduct.training.watchdog import Watchdog


@dataclass(frozen=True)
class Outcome:
    """End of a session; `step` and `steps` are 0 if the run had finished before the session."""

    finished: bool
    signal: int | None = None  # number of the signal that interrupted the session
    step: int = 0  # number of steps done
    steps: int = 0  # number of steps of the run
    stop_reason: str = ""  # why the run finished before its last step; empty if it took all steps


def run_training(request: TrainingRequest) -> Outcome:
    """Train on this rank, unless the run has finished already."""
    with join_ranks(request.device, request.loaded.recipe.parallel.hang_seconds) as group:
        refuse_observation(request, group.ranks)
        if group.run_on_rank_zero(lambda: refuse_or_find_finished(request)):
            for line in describe_finished(request) if group.is_rank_zero else ():
                print_note(line)
            return Outcome(finished=True)
        with serve_live_page(request, group) as page:
            outcome = run_rank(request, group, page)
            if page is not None:
                page.show_ending(describe_end(request, group, outcome))
        return outcome


@contextlib.contextmanager
def serve_live_page(request: TrainingRequest, group: Group) -> Iterator[LivePage | None]:
    """Serve the page of the run within the block, on rank 0; an error that ends the block is shown on the page.

    Yield None without --watch, and on the other ranks.
    """
    opened: list[LivePage] = []  # rank 0 appends the page, which cannot be sent to the other ranks
    if request.watch is not None:
        port = request.watch
        group.run_on_rank_zero(lambda: opened.append(LivePage(request.run.path, port)))
    if not opened:
        yield None
        return
    page = opened[0]
    print_note(f"Watch it at {page.url}")
    with contextlib.closing(page):
        try:
            yield page
        except ViaductError as error:
            hints = tuple(Remark("Hint", hint) for hint in error.hints)
            page.show_ending(Ending("stopped", f"Stopped: {error.message}", hints))
            raise
        except Exception as error:
            page.show_ending(Ending("stopped", f"Stopped by an error: {type(error).__name__}: {error}"))
            raise


def describe_end(request: TrainingRequest, group: Group, outcome: Outcome) -> Ending:
    """Return the ending of a run without an error, for the live page."""
    run = request.run
    if not outcome.finished:
        by = f" by {name_signal(outcome.signal)}" if outcome.signal else ""
        resume = Remark("Resume", run.format_resume_command(group.ranks_flag))
        return Ending("interrupted", f"Interrupted{by} after step {outcome.step:,} of {outcome.steps:,}.", (resume,))
    early = f", early: {outcome.stop_reason}" if outcome.stop_reason else ""
    report = Remark("Report", str(run.report))
    return Ending("finished", f"Finished after step {outcome.step:,} of {outcome.steps:,}{early}.", (report,))


def check_before_start(request: TrainingRequest, ranks: int) -> None:
    """Raise an error if a dump, a profile, the batch size or --data is not possible, before ranks are started."""
    recipe = request.loaded.recipe
    refuse_observation(request, ranks)
    RankShare(0, ranks, recipe.accumulate, recipe.mixes_images).split_batch(recipe.data.global_batch, train=True)
    check_path(recipe.data, request.data)


def refuse_observation(request: TrainingRequest, ranks: int) -> None:
    """Raise BadValue for a dump or a profile that is not possible with this recipe."""
    if request.dump is not None:
        check_dump(request.dump, request.loaded.recipe, ranks)
    if request.profile is not None:
        request.profile.check_recipe(request.loaded.recipe)


def run_rank(request: TrainingRequest, group: Group, page: LivePage | None) -> Outcome:
    """Train as one rank; rank 0 writes the run's files and prints."""
    run, recipe = request.run, request.loaded.recipe
    device, torch_device = devices.pick(request.device, group.local_rank)
    images = load_images(recipe.data, request.data)
    with (
        explain_limits(run, recipe),
        contextlib.ExitStack() as cleanups,
        Interrupt(quiet=not group.is_rank_zero, saves=not recipe.evaluation.eval_only) as interrupt,
    ):
        group.run_on_rank_zero(lambda: cleanups.enter_context(run.lock()))
        saved = group.run_on_rank_zero(lambda: find_start(request))
        progress_bar = ProgressBar()
        is_evaluation = recipe.evaluation.eval_only
        callbacks = [FORMATS[recipe.log.format]()] if is_evaluation else build_callbacks(recipe, group)
        dumping = [Dumping(request.dump)] if request.dump else []
        profiling = [Profiling(request.profile)] if request.profile and not is_evaluation else []
        observers: list[Dumping | Profiling] = [*dumping, *profiling]
        training = Training(
            recipe,
            run,
            images,
            device,
            torch_device,
            callbacks=[*observers, *callbacks, progress_bar],
            read_signal=interrupt.get_signal,
            group=group,
        )
        interrupt.is_compiling = lambda: training.computation.compilation.is_underway
        for profile in profiling:
            group.run_on_rank_zero(partial(profile.request.check_training, training))
        group.run_on_rank_zero(lambda: use_bank(request, training, resumed=saved is not None))
        group.run_on_rank_zero(lambda: restore_or_initialise(request, training, saved))
        training.run_state.broadcast(training.run.checkpoints)
        if page is not None:
            page.follow(lambda: (training.step, training.steps))
        for dump in dumping:
            cleanups.callback(dump.close)
        hang_seconds, report = recipe.parallel.hang_seconds, partial(print_and_log, run)
        with (
            contextlib.closing(progress_bar),
            training.train_batches,
            training.validation,
            Watchdog(group, training.pulse, hang_seconds, report) if group.ranks > 1 else contextlib.nullcontext(),
            record_failure(request, training),
            write_profiles_on_error(profiling, training),
        ):
            outcome = fit_and_save(training)
        for observer in observers:
            for line in observer.describe_outcome():
                training.print_note(line)
        report_end(request, training, outcome)
    signal_number = training.agreement.get_signal() or None
    stop_reason = training.progress.stop_reason or ""
    return Outcome(outcome == FINISHED, signal_number, training.step, training.steps, stop_reason)


def build_callbacks(recipe: Recipe, group: Group) -> list[Callback]:
    """Return the recipe's callbacks and those that every training has, in the order in which they are called.

    NanStop is first, so that no other callback records a bad loss. Checkpointing is last, so that the others have
    observed a step before it is saved. StepMark is for ranks that a launcher has started and may start again.
    """
    step_mark = [] if group.local_rank is None else [StepMark()]
    trackers = build_trackers(recipe) if group.is_rank_zero else []
    tensorboard = TensorBoard(recipe.log.tensorboard_names)
    recorders = [*step_mark, MetricsFile(), tensorboard, *trackers, FORMATS[recipe.log.format]()]
    return [NanStop(), *recorders, StopAtThreshold(), *recipe.callbacks, Checkpointing()]
