"""Ends a session: the final files of a finished run, and the record and report of one that was stopped."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator

from viaduct.atomic_files import replace_file
from viaduct.data.synthetic import SyntheticSet
from viaduct.errors import BadData, LostRank, MetricFails, ViaductError, is_out_of_memory
from viaduct.run_files import ENDING
from viaduct.signals import name_signal
from viaduct.training import checkpoint
from viaduct.training.batch_norm import StatisticsCheck, check_running_statistics, looks_unsettled
from viaduct.training.loop import FINISHED, Training
from viaduct.training.output_streams import print_note
from viaduct.training.report import write_report
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import write_json
from viaduct.training.summary import summarise


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
    with contextlib.suppress(OSError):  # on a full disk writing the report fails, too, and prints the reason
        write_json(run.path / ENDING, record)
    if not with_report:
        return
    try:
        summary = summarise(request.loaded, training, request.command)
        write_report(request.loaded, training, summary, stopped=reason)
    except (OSError, BadData) as error:
        print_note(f"The report could not be written: {error}")
        return
    print_note(f"Report so far: {run.report}")


def fit_and_save(training: Training) -> str:
    """Train, and return `finished` or `interrupted`.

    If an image cannot be read or a metric of the recipe fails, save a checkpoint and raise the error. Nothing is saved
    with several ranks, or if this session has not taken a step.
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
    training.print_note(f"Stopped after step {training.step} of {training.steps}. Continue with:")
    training.print_note(f"  {training.run.format_resume_command(training.group.ranks_flag)}")


def report_end(request: TrainingRequest, training: Training, outcome: str) -> None:
    """Write the final files of a finished run, or record and print that the session was interrupted."""
    is_evaluation = training.recipe.evaluation.eval_only
    if outcome == FINISHED:
        if training.group.is_rank_zero and not is_evaluation:
            write_final_files(request, training)
    elif is_evaluation:
        training.print_note("The evaluation was interrupted: it has no result.")
    else:
        number = training.agreement.get_signal()
        print_resume_command(training)
        record_stop(request, training, "interrupted", name_signal(number) if number else "")


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
    if training.progress.stop_reason and training.step < training.steps:
        result += f" of {training.steps}, ended early: {training.progress.stop_reason.rstrip('.')}"
    print_note(f"Finished: {result}. Report: {run.report}")
    for line in averages.describe(run.path) if averages and averages.is_unsettled else ():
        print_note(line)


def check_suspect_statistics(training: Training) -> StatisticsCheck | None:
    """Check the batch norms' running averages if validation is much worse than training.

    Return None if validation is not much worse, on noise, or if the averages cannot be checked.
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
