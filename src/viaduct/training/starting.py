"""Begins or resumes a run: checks its directory, restores a checkpoint, writes recipe.json and the first lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from viaduct.data.records import Records
from viaduct.data.source import Dataset, Source
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadRun
from viaduct.recipes import Recipe
from viaduct.recipes._fields import to_record
from viaduct.run_files import ENDING, LABELS, RATE_PAGE
from viaduct.training import checkpoint
from viaduct.training.compiling import describe_unused_compile
from viaduct.training.images import fingerprint_labels
from viaduct.training.logs import append_line
from viaduct.training.loop import Training
from viaduct.training.networks import describe_model_file
from viaduct.training.output_streams import print_note
from viaduct.training.provenance import describe_init, describe_provenance, describe_session
from viaduct.training.request import TrainingRequest
from viaduct.training.rundir import RunDir, write_json
from viaduct.training.sink import describe_sink
from viaduct.training.summary import describe_machine, read_commit
from viaduct.training.transfer import load_initial_weights


def refuse_or_find_finished(request: TrainingRequest) -> bool:
    """Return True if the run has nothing left to do; raise BadRun if the request does not fit the directory."""
    run = request.run
    if run.path.exists() and not run.path.is_dir():
        raise BadRun(f"{str(run.path)!r} is a file, not a run's directory.", "Choose another place with --run.")
    if not run.is_begun:
        # A new run may have its lock already, and the page of a learning-rate range test.
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
    averages = [run.path / checkpoint.EMA_FILE] if request.loaded.recipe.ema else []
    is_complete = all(path.is_file() for path in (run.model, run.report, *averages))  # a removed file is written again
    return summary is not None and is_complete and is_long_enough(summary, request.loaded.recipe)


def is_long_enough(summary: dict[str, Any], recipe: Recipe) -> bool:
    """Return True if a finished run has at least the steps or epochs of the recipe.

    `summary["steps"]` is the number of steps taken, `summary["length"]` has the `steps` and `epochs` of its recipe.
    """
    length = summary["length"]  # `steps` is 0 if the recipe gives epochs
    if recipe.steps:  # a run that a stop threshold has ended took fewer steps than its recipe has, and has finished
        return bool(max(summary["steps"], length["steps"]) >= recipe.steps)
    return not length["steps"] and bool(length["epochs"] >= recipe.epochs)


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
        problem = "no intact checkpoint is left" if damaged else "there is no checkpoint"
        raise BadRun(f"{problem} in {request.run.checkpoints}.", "Begin anew with another --run.")
    return saved


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
        for line in load_initial_weights(training.train_step):
            training.print_note(line)
    if not recipe.evaluation.eval_only:
        record_start(request, training, resumed=saved is not None)


def refuse_fewer_steps(request: TrainingRequest, training: Training) -> None:
    """Raise an error if the run has already taken more steps than the recipe now has."""
    if training.step > training.steps and not request.loaded.recipe.evaluation.eval_only:
        run, steps = request.run, f"{training.step:,} steps are done already in {str(request.run.path)!r}"
        raise BadRun(
            f"{steps}, more than the {training.steps:,} now asked for.",
            f"Ask for more with --steps or --epochs; `{run.format_resume_command()}` resumes it as it was begun.",
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
    if count := training.computation.fused_count:
        print_note(f"{count} parts of the network run on viaduct's own kernels.")
    sink_line = describe_sink(training.sink_obstacle, training.recipe.sink, training.device)
    for line in filter(None, (sink_line, describe_unused_compile(training.recipe))):
        print_note(line)
    if request.data == SYNTHETIC:
        print_note(describe_noise(training.images))
    elif note := describe_unused_outputs(loaded.recipe.data, request.data, training.images):
        print_note(note)
    ranks = f"{training.group.ranks} ranks of " if training.group.ranks > 1 else ""
    images = f"{training.steps:,} steps of {loaded.recipe.data.global_batch} images"
    execution = f"{ranks}{training.device.describe_card()} in {training.precision_plan.name}, {training.mode} mode"
    print_note(f"{loaded.name}: {images} on {execution}; run {run.path}")


def trace_provenance(request: TrainingRequest, training: Training, resumed: bool) -> dict[str, Any]:
    """Return the provenance of this session, added to that of the run's earlier sessions."""
    run = request.run
    machine, commit = describe_machine(training.device), read_commit()
    session = describe_session(training.step, training.group.ranks, machine, commit, training.images, request.data)
    earlier = run.read_recipe_json().get("provenance") if run.is_begun else None
    init = None if resumed else describe_init(request.loaded.recipe.init.source)
    return describe_provenance(earlier, session, init, resumed)


def describe_noise(images: Dataset) -> str:
    """Return a note about training on noise; it names a folder called `synthetic`, which the user may have meant."""
    count, folder = len(images.validation), SYNTHETIC.resolve()
    alternative = f" The folder of that name here would be --data {folder}." if folder.is_dir() else ""
    return f"Training on noise: losses and accuracies say nothing; {count:,} images of it are evaluated.{alternative}"


def describe_unused_outputs(data: Source, path: Path | None, images: Dataset) -> str:
    """Return a note if the data do not name their classes and two or more of the last outputs occur in no label."""
    if not isinstance(data, Records) or path is None or data.find_stated_classes(path) is not None:
        return ""
    highest = int(images.train.labels.max())
    if highest + 2 >= data.classes:
        return ""
    fitting = f"{data.classes:,} outputs are trained; --classes {highest + 1} would fit"
    return f"The training labels of {path} go up to {highest:,} (no labels.txt names its classes): {fitting}."


def report_redone_steps(training: Training, reached: int) -> None:
    """Record and print the steps that are repeated because they were not saved."""
    training.run.note_restart(training.step, reached, training.group.ranks)
    first = training.step + 1
    steps = f"steps {first}-{reached} were" if reached > first else f"step {first} was"
    print_and_log(training.run, f"{steps.capitalize()} done before and not saved: they are repeated.")


def print_and_log(run: RunDir, line: str) -> None:
    """Print a line for the user, and append it to RUN/log.txt."""
    print_note(line)
    append_line(run.path / "log.txt", line)
