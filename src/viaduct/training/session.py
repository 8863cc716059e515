"""Train a recipe in a run directory on a device: begin or resume the run, train, write its final files.

A session is the work of one process on a run; a resumed run has several sessions.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from viaduct import devices
from viaduct.atomic_files import NO_ROOM, replace_file
from viaduct.comparison.dump_options import DumpOptions
from viaduct.data.batches import RankShare
from viaduct.data.records import Records
from viaduct.data.source import Arrays, Dataset, Source
from viaduct.data.synthetic import SYNTHETIC, SyntheticSet
from viaduct.errors import (
    BadData,
    BadRun,
    BadValue,
    DiskFull,
    LostRank,
    MetricFails,
    OutOfMemory,
    ViaductError,
    is_out_of_memory,
)
from viaduct.recipes import LoadedRecipe, Recipe
from viaduct.recipes._fields import to_record
from viaduct.reporting import Remark
from viaduct.run_files import ENDING, LABELS, RATE_PAGE
from viaduct.signals import name_signal
from viaduct.training import checkpoint
from viaduct.training.batch_norm import StatisticsCheck, check_running_statistics, looks_unsettled
from viaduct.training.callbacks import (
    Callback,
    Checkpointing,
    MetricsFile,
    NanStop,
    ProgressBar,
    StepMark,
    StopAtThreshold,
)
from viaduct.training.compiling import describe_unused_compile
from viaduct.training.distributed import Group, join_ranks
from viaduct.training.dumping import Dumping, check_dump
from viaduct.training.interrupt import Interrupt
from viaduct.training.live import Ending, LivePage
from viaduct.training.logs import FORMATS, append_line
from viaduct.training.loop import FINISHED, Training
from viaduct.training.networks import describe_model_file
from viaduct.training.observing import build_tensorboard
from viaduct.training.output_streams import print_line
from viaduct.training.profile_callback import ProfileRequest, Profiling, write_profiles_on_error
from viaduct.training.provenance import describe_init, describe_provenance, describe_session
from viaduct.training.recipe_code import ONE_VALUE_PER_CHANNEL, explain_part_errors
from viaduct.training.report import write_report
from viaduct.training.rundir import RunDir, write_json
from viaduct.training.sink import describe_sink
from viaduct.training.summary import describe_machine, read_commit, summarise
from viaduct.training.tracking import build_trackers
from viaduct.training.transfer import load_initial_weights
from viaduct.training.watchdog import watch_ranks
from viaduct.tuning.location import Location

# auto: resume a run that the directory holds; never: refuse a directory with a run; must: refuse one without.
Resume = Literal["auto", "never", "must"]


@dataclass(frozen=True)
class TrainingRequest:
    """A request to train: the recipe, the run's directory, and options that are not part of a recipe."""

    loaded: LoadedRecipe
    run: RunDir
    data: Path | None  # value of --data
    device: str
    resume: Resume
    command: str  # command line, for recipe.json and the report
    dump: DumpOptions | None = None
    watch: int | None = None  # port of the live page; 0: any free port; None: no page
    profile: ProfileRequest | None = None
    bank: Location | None = None  # of the tuning bank (a folder of the fastest measured variants); None: no bank


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
    """Serve the page of the run from rank 0 within the block; an error that ends the block is shown on the page."""
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
        resume = Remark("Resume", f"viaduct train --run {shlex.quote(str(run.path))}{group.ranks_flag}")
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


def describe_finished(request: TrainingRequest) -> Iterator[str]:
    """Yield lines about a run that has nothing left to do."""
    run = request.run
    yield f"{run.path} has finished already: {run.model} and {run.report} are there."
    yield "A larger --steps or --epochs continues it."
    if request.dump is not None:
        yield "Nothing was dumped: no step was taken. For a dump begin anew with another --run."
    if request.profile is not None:
        yield "Nothing was profiled: no step was taken. For a profile begin anew with another --run."
    if request.watch is not None:
        yield f"There is nothing to watch: the page of the finished run is {run.report}."


def run_rank(request: TrainingRequest, group: Group, page: LivePage | None = None) -> Outcome:
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
        watchdog = watch_ranks(group, training.pulse, recipe.parallel.hang_seconds, partial(print_and_log, training))
        with (
            contextlib.closing(progress_bar),
            training.train_batches,
            training.validation,
            watchdog,
            record_failure(request, training),
            write_profiles_on_error(profiling, training),
        ):
            outcome = fit_and_save(training)
        for observer in observers:
            for line in observer.describe_outcome():
                training.print_note(line)
        if outcome != FINISHED:
            number = training.agreement.get_signal()
            stopped_by = name_signal(number) if number else ""
            print_resume_command(training)
            record_stop(request, training, "interrupted", stopped_by)
        elif group.is_rank_zero and not is_evaluation:
            write_final_files(request, training)
    signal_number = training.agreement.get_signal() or None
    stop_reason = training.progress.stop_reason or ""
    return Outcome(outcome == FINISHED, signal_number, training.step, training.steps, stop_reason)


def use_bank(request: TrainingRequest, training: Training, resumed: bool) -> None:
    """Apply tuned operators: those of the bank to a new run, those of recipe.json to a resumed one."""
    stored = request.run.read_recipe_json() if resumed else {}
    if request.bank is None and stored.get("tuning") is None:
        return
    from viaduct.training.bank_choices import apply_bank, restore_choices

    if resumed:
        line = restore_choices(training, stored, request.bank, request.loaded.name)
    else:
        line = apply_bank(training, request.bank, request.loaded.name)
    if line:
        print_note(line)


@contextlib.contextmanager
def record_failure(request: TrainingRequest, training: Training) -> Iterator[None]:
    """Write RUN/ending.json if an error ends the block, and also the report if it is a ViaductError.

    Neither is written for a lost rank, because the launcher may start the ranks again.
    """
    try:
        yield
    except LostRank:
        raise
    except ViaductError as error:
        record_stop(request, training, "failed", error.message)
        raise
    except Exception as error:
        record_stop(request, training, "failed", f"{type(error).__name__}: {error}", with_report=False)
        raise


def record_stop(
    request: TrainingRequest, training: Training, outcome: str, reason: str, with_report: bool = True
) -> None:
    """Write RUN/ending.json and the report, on rank 0, for a session that ended before the run's last step.

    Print the report's path, or the error if it cannot be written.
    """
    run = request.run
    if not training.group.is_rank_zero or training.recipe.evaluation.eval_only or not run.is_begun:
        return
    record = {"outcome": outcome, "step": training.step, "steps": training.steps, "reason": reason, "time": time.time()}
    with contextlib.suppress(OSError):  # a full disk is reported elsewhere
        write_json(run.path / ENDING, record)
    if not with_report:
        return
    try:
        write_report(request.loaded, training, summarise(request.loaded, training, request.command), stopped=reason)
    except (OSError, BadData) as error:
        print_note(f"The report could not be written: {error}")
        return
    print_note(f"Report so far: {run.report}")


def fit_and_save(training: Training) -> str:
    """Train; if an image cannot be read or a metric of the recipe fails, save a checkpoint and raise the error.

    Nothing is saved with several ranks, or if this session has not taken a step.
    """
    first_step = training.step
    try:
        return training.fit()
    except (BadData, MetricFails):
        # With several ranks saving would hang: all must take part, and the others have not failed.
        if training.step > first_step and training.group.ranks == 1:
            training.finish("interrupted")
            print_resume_command(training)
        raise


def print_resume_command(training: Training) -> None:
    run, flag = shlex.quote(str(training.run.path)), training.group.ranks_flag
    training.print_note(f"Stopped after step {training.step} of {training.steps}. Continue with:")
    training.print_note(f"  viaduct train --run {run}{flag}")


def restore_or_initialise(
    request: TrainingRequest, training: Training, saved: checkpoint.SavedCheckpoint | None
) -> None:
    """Restore the run from `saved` or load its initial weights; record the start, unless the run is only evaluated."""
    recipe = request.loaded.recipe
    if saved is not None:
        refuse_other_images(request, training)
        training.restore(saved)
        refuse_fewer_steps(request, training)
        training.print_note(f"Continuing from {saved.path}.")
    elif recipe.init.source:
        for line in load_initial_weights(training):
            training.print_note(line)
    if not recipe.evaluation.eval_only:
        record_start(request, training, resumed=saved is not None)


def refuse_fewer_steps(request: TrainingRequest, training: Training) -> None:
    """Raise an error if the run has already taken more steps than the recipe now has."""
    if training.step > training.steps and not request.loaded.recipe.evaluation.eval_only:
        path = shlex.quote(str(request.run.path))
        raise BadRun(
            f"{training.step:,} steps are done already in {str(request.run.path)!r}, more than the "
            f"{training.steps:,} now asked for.",
            f"Ask for more with --steps or --epochs; `viaduct train --run {path}` resumes it as it was begun.",
        )


def refuse_other_images(request: TrainingRequest, training: Training) -> None:
    """Raise BadRun if the number or the labels of the images have changed; pixels are not compared."""
    before, now = request.run.read_recipe_json().get("images"), fingerprint_labels(training.images)
    for split in now:
        if before is not None and before[split] != now[split]:
            counts = f"{before[split]['count']:,} images then, {now[split]['count']:,} now"
            labels = "" if before[split]["count"] != now[split]["count"] else ", with other labels"
            message = f"the data have changed since {str(request.run.path)!r} was begun: {split}: {counts}{labels}."
            raise BadRun(message, "Give the old data with --data, or begin a new run with another --run.")


def fingerprint_labels(images: Dataset) -> dict[str, dict[str, int]]:
    """Return image counts and label checksums of both splits."""
    splits = {"training": images.train, "validation": images.validation}
    return {name: {"count": len(split), "labels": zlib.crc32(split.labels.tobytes())} for name, split in splits.items()}


def build_callbacks(recipe: Recipe, group: Group) -> list[Callback]:
    """Return the recipe's callbacks and those that every training has, in the order in which they are called.

    NanStop is first, so that no other callback records a bad loss. Checkpointing is last, so that the others have
    observed a step before it is saved. StepMark is for ranks that a launcher has started and may start again.
    """
    step_mark = [] if group.local_rank is None else [StepMark()]
    trackers = build_trackers(recipe) if group.is_rank_zero else []
    recorders = [*step_mark, MetricsFile(), build_tensorboard(recipe), *trackers, FORMATS[recipe.log.format]()]
    return [NanStop(), *recorders, StopAtThreshold(), *recipe.callbacks, Checkpointing()]


@contextlib.contextmanager
def explain_limits(run: RunDir, recipe: Recipe) -> Iterator[None]:
    """Turn errors of a full disk, lack of memory, and a batch too small for batch norms into errors with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        retry = "Checkpoints written before are kept. Free some space and run the same command again."
        raise DiskFull(f"{str(run.path)!r} cannot be written: {error.strerror}.", retry) from None
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"the memory does not suffice for batches of {recipe.data.global_batch} images of {recipe.data.size} "
            f"pixels: {str(error).splitlines()[0] if str(error) else 'none is left'}",
            "Try --accumulate 2 (the same batch, computed in two parts), or a smaller --batch or data.size.",
        ) from error
    except ValueError as error:
        if ONE_VALUE_PER_CHANNEL not in str(error):
            raise
        batch, size = recipe.data.global_batch, recipe.data.size
        message = f"a batch norm gets a single value per channel with a batch of {batch} and images of {size} pixels."
        raise BadValue(message, "Use a larger --batch or data.size.") from error


def refuse_or_find_finished(request: TrainingRequest) -> bool:
    """Return True if the run has nothing left to do; raise BadRun if the request does not fit the directory."""
    run = request.run
    if run.path.exists() and not run.path.is_dir():
        raise BadRun(f"{str(run.path)!r} is a file, not a run's directory.", "Choose another place with --run.")
    if not run.is_begun:
        if run.path.exists() and any(path.name not in (".lock", RATE_PAGE) for path in run.path.iterdir()):
            raise BadRun(f"{str(run.path)!r} is not empty and holds no run.", "Choose another place with --run.")
        if request.resume == "must":
            raise BadRun(f"there is no run in {str(run.path)!r} to resume.")
        if request.loaded.recipe.evaluation.eval_only:
            raise BadRun(f"there is no run in {str(run.path)!r} to evaluate.")
        return False
    if request.resume == "never":
        raise BadRun(f"{str(run.path)!r} holds a run already.", "Choose another place with --run, or --resume auto.")
    run.refuse_special_files()
    # A run without a checkpoint may begin again with other values.
    anew = request.resume == "auto" and not checkpoint.list_checkpoints(run.checkpoints)
    run.refuse_other_recipe(request.loaded, anew=anew)
    if request.loaded.recipe.evaluation.eval_only:
        return False
    summary = run.read_summary()
    is_complete = run.model.is_file() and run.report.is_file()  # a removed file is written again
    return summary is not None and is_complete and is_long_enough(summary, request.loaded.recipe)


def is_long_enough(summary: dict[str, Any], recipe: Recipe) -> bool:
    """Return True if a finished run has at least the steps or epochs of the recipe.

    `summary["steps"]` is the number of steps taken, `summary["length"]` has the `steps` and `epochs` of its recipe.
    """
    length = summary["length"]  # `steps` is 0 if the recipe gives epochs
    if recipe.steps:  # a run that a stop threshold has ended took fewer steps than its recipe has, and has finished
        return bool(max(summary["steps"], length["steps"]) >= recipe.steps)
    return not length["steps"] and bool(length["epochs"] >= recipe.epochs)


def load_images(data: Source, path: Path | None) -> Dataset:
    """Return the recipe's images; an error in the user's `Arrays` function becomes a BadValue with its line."""
    check_path(data, path)
    if not isinstance(data, Arrays):
        return data.open_images(path)
    with explain_part_errors("data.make", data.make):
        return data.open_images(path)


def check_path(data: Source, path: Path | None) -> None:
    """Raise an error if --data is missing for a dataset that needs it, or given for one that takes none."""
    if path == SYNTHETIC:
        return
    if data.needs_path and path is None:
        hints = [data.how_to_get] if data.how_to_get else []
        raise BadData(f"this recipe trains on {data.name}: say where it is with --data DIR.", *hints)
    if path is not None and not data.takes_path:
        message = f"this recipe trains on {data.name} and takes no --data, but {str(path)!r} was given."
        raise BadData(message, "--data synthetic trains on noise.")


def find_start(request: TrainingRequest) -> checkpoint.SavedCheckpoint | None:
    """Return the newest intact checkpoint, and print a note about each newer one, which is damaged.

    Return None if the run has no checkpoint. Raise BadRun if all are damaged, or if there is none to resume or
    evaluate.
    """
    checkpoint.remove_leftovers(request.run.checkpoints)
    saved, damaged = checkpoint.find_newest_intact(request.run.checkpoints)
    for damage in damaged:
        print_note(f"Skipping a damaged checkpoint: {damage}.")
    if saved is None and (damaged or request.resume == "must" or request.loaded.recipe.evaluation.eval_only):
        raise BadRun(f"no intact checkpoint is left in {request.run.checkpoints}.", "Begin anew with another --run.")
    return saved


def record_start(request: TrainingRequest, training: Training, resumed: bool) -> None:
    """Write recipe.json and labels.json, drop metrics of later steps, and print the start line of the run."""
    run, loaded = request.run, request.loaded
    reached = run.read_reached_step()  # last step done before a launcher started the ranks again
    run.drop_metrics_after(training.step)
    stored_images = getattr(training.images.train, "images", None)  # None for files, whose images may differ in size
    record = {
        "name": loaded.name,
        "file": str(loaded.file) if loaded.file else None,
        "recipe": to_record(loaded.recipe),
        "data": str(request.data if request.data == SYNTHETIC else request.data.resolve()) if request.data else None,
        "device": request.device,
        "command": request.command,
        "images": fingerprint_labels(training.images),
        "image_shape": None if stored_images is None else [int(side) for side in stored_images.shape[1:3]],
        "provenance": trace_provenance(request, training, resumed),
        "tuning": training.tuning_record,
        "model_file": describe_model_file(loaded.recipe),
    }
    (run.path / ENDING).unlink(missing_ok=True)  # of an earlier session
    run.record_start(loaded, record, anew=training.step == 0)
    write_json(run.path / LABELS, {"labels": list(training.images.names)})
    if training.group.local_rank is not None and reached > training.step:
        report_redone_steps(training, reached)
    if layout := training.layout.describe():
        print_note(layout)
    for line in describe_execution(training):
        print_note(line)
    if request.data == SYNTHETIC:
        print_note(describe_noise(training))
    elif note := describe_unused_outputs(loaded.recipe.data, request.data, training):
        print_note(note)
    ranks = f"{training.group.ranks} ranks of " if training.group.ranks > 1 else ""
    computed = f"in {training.precision_plan.name}, {training.mode} mode"
    print_note(
        f"{loaded.name}: {training.steps:,} steps of {loaded.recipe.data.global_batch} images on "
        f"{ranks}{training.device.describe_card()} {computed}; run {run.path}"
    )


def trace_provenance(request: TrainingRequest, training: Training, resumed: bool) -> dict[str, Any]:
    """Return the provenance of this session, added to that of the run's earlier sessions."""
    run, group = request.run, training.group
    machine, commit = describe_machine(training.device), read_commit()
    session = describe_session(training.step, group.ranks, machine, commit, training.images, request.data)
    earlier = run.read_recipe_json().get("provenance") if run.is_begun else None
    init = None if resumed else describe_init(request.loaded.recipe.init.source)
    return describe_provenance(earlier, session, init, resumed)


def describe_noise(training: Training) -> str:
    """Return a note about training on noise; it names a folder called `synthetic`, which the user may have meant."""
    count, folder = len(training.images.validation), SYNTHETIC.resolve()
    alternative = f" The folder of that name here would be --data {folder}." if folder.is_dir() else ""
    return f"Training on noise: losses and accuracies say nothing; {count:,} images of it are evaluated.{alternative}"


def describe_unused_outputs(data: Source, path: Path | None, training: Training) -> str:
    """Return a note if the data do not name their classes and two or more of the last outputs occur in no label."""
    if not isinstance(data, Records) or path is None or data.find_stated_classes(path) is not None:
        return ""
    highest = int(training.images.train.labels.max())
    if highest + 2 >= data.classes:
        return ""
    fitting = f"{data.classes:,} outputs are trained; --classes {highest + 1} would fit"
    return f"The training labels of {path} go up to {highest:,} (no labels.txt names its classes): {fitting}."


def describe_execution(training: Training) -> Iterator[str]:
    """Yield lines about viaduct's kernels, sinks and compilation."""
    if training.computation.fused_count:
        yield f"{training.computation.fused_count} parts of the network run on viaduct's own kernels."
    yield from filter(None, (describe_sink(training), describe_unused_compile(training.recipe)))


def report_redone_steps(training: Training, reached: int) -> None:
    """Record and print the steps that are repeated because they were not saved."""
    training.run.note_restart(training.step, reached, training.group.ranks)
    first = training.step + 1
    steps = f"steps {first}-{reached} were" if reached > first else f"step {first} was"
    print_and_log(training, f"{steps.capitalize()} done before and not saved: they are repeated.")


def print_and_log(training: Training, line: str) -> None:
    print_note(line)
    append_line(training.run.path / "log.txt", line)


def write_final_files(request: TrainingRequest, training: Training) -> None:
    """Write the final weights, the report and the summary of a finished run.

    The summary comes last: a run that has one counts as finished.
    """
    run = request.run
    for name in (checkpoint.MODEL_FILE, checkpoint.EMA_FILE):
        final = run.checkpoints / f"step-{training.step}" / name
        if final.is_file():
            with replace_file(run.path / name) as copy, final.open("rb") as file:
                shutil.copyfileobj(file, copy)
    summary = summarise(request.loaded, training, request.command)
    averages = check_suspect_statistics(training)
    summary["batch_norm"] = averages.to_record() if averages else None
    write_report(request.loaded, training, summary)
    write_json(run.path / "summary.json", summary)
    metric = "top-1 on noise" if isinstance(training.images, SyntheticSet) else "validation top-1"
    score = training.score
    result = f"{metric} {100 * score.top1:.2f} % after step {training.step}" if score else "no evaluation"
    print_note(f"Finished: {result}. Report: {run.report}")
    for line in averages.describe(run.path) if averages and averages.is_unsettled else ():
        print_note(line)


def check_suspect_statistics(training: Training) -> StatisticsCheck | None:
    """Check the batch norms' running averages if validation is much worse than training.

    Return None if validation is not much worse, or if the averages cannot be checked.
    """
    logs, score = training.run.read_records("log"), training.score
    if not logs or score is None or isinstance(training.images, SyntheticSet):
        return None
    if not looks_unsettled(logs[-1], score.to_record()):
        return None
    saved = checkpoint.SavedCheckpoint(training.run.checkpoints / f"step-{training.step}")
    if not saved.path.is_dir():
        return None
    try:
        return check_running_statistics(training.recipe, saved, training.images, training.device, training.torch_device)
    except BadData:  # a damaged image that training has not read
        return None
    except RuntimeError as error:
        if is_out_of_memory(error):  # the check needs a second network; the run itself has finished
            return None
        raise


def print_note(line: str) -> None:
    print_line(line, sys.stderr)
