"""The report of a run: how it ended, its scores and curves, and images it classifies wrongly."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

from viaduct.data.balance import compute_quotas
from viaduct.data.synthetic import SyntheticSet
from viaduct.profiling.outputs import REPORT_FILE
from viaduct.recipes import LoadedRecipe, Top1
from viaduct.recipes._fields import to_record
from viaduct.reporting import (
    Callout,
    Code,
    Facts,
    GridImage,
    Heatmap,
    ImageGrid,
    Link,
    Page,
    Remark,
    Section,
    Table,
    Tile,
    write_page,
)
from viaduct.training.curves import NOISE_WARNING, build_curves, build_evaluation_table, format_percent
from viaduct.training.metrics import MAX_CONFUSION_CLASSES, Score
from viaduct.training.profile_callback import PROFILE_FOLDER, Profiling

if TYPE_CHECKING:
    from viaduct.training.loop import Training

SAMPLES, MAX_WRONG = 32, 16  # images in the grid, and how many of them may be wrongly classified ones


def write_report(loaded: LoadedRecipe, training: Training, summary: dict[str, Any], stopped: str = "") -> None:
    """Write RUN/report.html; `stopped` is the reason if a signal or an error has stopped the run, otherwise empty."""
    logs, evaluations = training.run.read_records("log"), training.run.read_records("evaluation")
    sections = [Section("Curves", "", charts)] if (charts := build_curves(logs, evaluations)) else []
    if evaluations:
        sections.append(Section("Evaluations", "", [build_evaluation_table(evaluations)]))
    if training.score is not None:
        samples = build_samples(training, training.score)
        sections.append(build_confusion(training, training.score))
        sections.append(Section("Predictions", "Validation images, wrongly classified ones first.", [samples]))
    if training.recipe.data.balance:
        sections.append(build_balance(training))
    if skipped := [*training.train_batches.skipped, *training.validation.skipped]:
        lead = f"{len(skipped)} could not be used."
        sections.append(Section("Skipped records", lead, [Code("\n".join(skipped))]))
    if training.run.read_restarts():
        sections.append(build_restarts(training))
    if profiles := build_profile_link(training):
        sections.append(profiles)
    sections += [
        Section("Recipe", loaded.summary, [Code(json.dumps(to_record(loaded.recipe), indent=1))]),
        Section("Machine", "", [build_machine_facts(summary)]),
    ]
    total = f" of {training.steps:,}" if training.step < training.steps else ""
    length = f"{training.step:,}{total} steps, {training.epoch:.1f} epochs"
    noise_warnings = [Callout("warn", NOISE_WARNING)] if isinstance(training.images, SyntheticSet) else []
    page = Page(
        loaded.name,
        f"{length}, on {summary['machine']['description']}; {summary['date']}",
        build_tiles(training, summary, has_reached_end(training, stopped)),
        sections,
        [*describe_early_end(training, stopped), *noise_warnings, *warn_of_running_averages(training, summary)],
        kind="training report",
    )
    write_page(page, training.run.report)


def has_reached_end(training: Training, stopped: str) -> bool:
    """Return True if the run has taken every step of its recipe and evaluated the last one."""
    return not stopped and training.step >= training.steps and training.progress.is_complete


def describe_early_end(training: Training, stopped: str) -> list[Callout]:
    """Return a callout with the step and the reason if a run ended before its recipe's end."""
    if has_reached_end(training, stopped):
        return []
    where = f"after step {training.step:,} of {training.steps:,}"
    reason = (stopped or training.progress.stop_reason or "").strip().rstrip(".")
    because = f": {reason}" if reason else ""
    if training.progress.is_complete and not stopped:
        return [Callout("warn", f"Ended early, {where}{because}.")]
    if training.step >= training.steps and not stopped:
        headline = f"Stopped {where}: all steps are done, the final evaluation is missing."
    else:
        headline = f"Stopped {where}{because}."
    remarks = [Remark("What is shown", "The figures up to there; none of them is a final result.")]
    if training.run.checkpoints.is_dir() and any(training.run.checkpoints.iterdir()):
        remarks.append(Remark("Resume", training.run.format_resume_command(training.group.ranks_flag)))
    return [Callout("bad" if stopped else "warn", headline, remarks)]


def warn_of_running_averages(training: Training, summary: dict[str, Any]) -> list[Callout]:
    """Return a warning if the batch norms' running averages were found not to have settled."""
    check = summary.get("batch_norm")
    if not check or not check["unsettled"]:
        return []
    figures = (
        f"Top-1 on {check['images']:,} validation images: {format_percent(check['top1'])} with the running averages, "
        f"{format_percent(check['recomputed_top1'])} with averages recomputed from {check['training_batches']} batches."
    )
    command = f"viaduct evaluate {shlex.quote(str(training.run.path))} --recompute-batch-norm 100"
    remarks = [Remark("Measured", figures), Remark("Recompute", command)]
    return [Callout("warn", "The running averages of the batch norms have not settled.", remarks)]


def find_class_name(training: Training, label: int) -> str:
    """Return the name of a class, or its number if the data do not name it."""
    class_names = training.images.names
    return class_names[label] if label < len(class_names) else str(label)


def build_tiles(training: Training, summary: dict[str, Any], at_end: bool) -> list[Tile]:
    """Return the headline figures; scores are shown with their step unless the run is at its end (`at_end`)."""
    scores = []
    if training.score is not None:
        score, step = training.score, f"at step {training.progress.evaluated_at:,}" if not at_end else ""
        expects = None if isinstance(training.images, SyntheticSet) else training.recipe.expects
        scores = [
            build_top1_tile(expects, score, step),
            Tile("validation top-5", format_percent(score.top5), step),
            Tile("macro F1", format_percent(score.f1), step),
            *(Tile(name, f"{value:.4g}", step) for name, value in score.recipe_metrics.items()),
        ]
    rate = summary["images_per_s"]
    minutes = sum(summary["minutes"].values())
    return [
        *scores,
        Tile("throughput", f"{rate:,.0f} images/s" if rate else "–", f"{summary['precision']}, {summary['mode']}"),
        Tile("time", f"{minutes:.1f} min", f"{summary['minutes']['training']:.1f} min of it training"),
    ]


def build_top1_tile(expects: Top1 | None, score: Score, step: str) -> Tile:
    """Return the tile of top-1; at the end of the run it says whether the recipe's expectation is reached.

    `step` is a text such as "at step 100"; it is empty at the end of the run.
    """
    if expects is None:
        return Tile("validation top-1", format_percent(score.top1), step)
    expected = f"expected {expects.percent:g} %" + (f" ± {expects.within:g}" if expects.within else "")
    if step:
        return Tile("validation top-1", format_percent(score.top1), f"{step}; {expected} at the end")
    reached = 100 * score.top1 >= expects.percent - expects.within
    return Tile("validation top-1", format_percent(score.top1), expected, reached)


def build_balance(training: Training) -> Section:
    """Return a table of the number of images of each class that an epoch sees."""
    strength = training.recipe.data.balance
    classes, counts, quotas = compute_quotas(training.images.train.labels, strength)
    class_names = [find_class_name(training, label) for label in classes.tolist()]
    per_class = zip(class_names, counts, quotas, strict=True)
    rows = [[name, int(count), round(float(quota), 1), float(quota / count)] for name, count, quota in per_class]
    lead = f"Strength {strength:g}: the number of images of each class in an epoch."
    return Section("Balance", lead, [Table(("class", "images", "seen in an epoch", "times"), rows)])


def build_profile_link(training: Training) -> Section | None:
    """Return a section with the path of the run's profile; None if there is none."""
    default = training.run.path / PROFILE_FOLDER
    profilings = [callback for callback in training.callbacks if isinstance(callback, Profiling)]
    folder = next((profiling.folder for profiling in profilings if profiling.published), default)
    if not (folder / REPORT_FILE).is_file():
        return None
    links = [Link("its report", f"{PROFILE_FOLDER}/{REPORT_FILE}")] if folder == default else []
    headline = f"Some steps of this run were profiled: {folder}"
    return Section("Profile", "", [Callout("new", headline, links=links)])


def build_restarts(training: Training) -> Section:
    """Return a table of the steps that were repeated after ranks were lost."""
    restarts = training.run.read_restarts()
    rows = [[f"{restart['first']}–{restart['last']}", restart["step"], restart["ranks"]] for restart in restarts]
    table = Table(("steps done twice", "continued from step", "ranks"), rows)
    return Section("Restarts", "The ranks were started again and repeated some steps.", [table])


def build_confusion(training: Training, score: Score) -> Section:
    """Return the confusion matrix, or the reason why it is not drawn."""
    classes = training.recipe.data.classes
    if score.confusion is None:
        return Section("Confusion", f"Not drawn: {classes:,} classes, and at most {MAX_CONFUSION_CLASSES:,} fit.", [])
    names = [find_class_name(training, label) for label in range(classes)]
    heatmap = Heatmap("True class by row, predicted by column", names, score.confusion)
    return Section("Confusion", "", [heatmap])


def build_samples(training: Training, score: Score) -> ImageGrid:
    """Return a grid of SAMPLES validation images, up to MAX_WRONG of them wrongly classified."""
    split = training.images.validation
    predicted = np.array(score.predictions)
    wrong = np.flatnonzero(predicted != split.labels)
    right = np.flatnonzero(predicted == split.labels)
    mistakes = wrong[:MAX_WRONG]
    chosen = [*mistakes, *right[: SAMPLES - len(mistakes)]]
    images = [build_grid_image(training, int(index), int(predicted[index])) for index in chosen]
    return ImageGrid(images, f"{len(wrong):,} of {score.count:,} are wrong; {len(mistakes)} of them are shown.")


def build_grid_image(training: Training, index: int, predicted: int) -> GridImage:
    """Return a validation image with its true class and, if it differs, the predicted one."""
    label = int(training.images.validation.labels[index])
    truth, guess = (find_class_name(training, number) for number in (label, predicted))
    caption = truth if label == predicted else f"{truth}, taken for {guess}"
    return GridImage(training.images.validation.read_image(index), caption, marked=label != predicted)


def build_machine_facts(summary: dict[str, Any]) -> Facts:
    machine = summary["machine"]
    memory = summary["peak_memory_bytes"]
    return Facts(
        {
            "command": summary["command"],
            "commit": summary["commit"],
            "device": machine["description"],
            "processors": machine["cpus"],
            "peak memory": f"{memory / 2**30:.2f} GiB",
            "parameters": summary["parameters"],
            "skipped steps": summary["skipped_steps"],
            "seed": str(summary["seed"]),
            "Python": machine["python"],
            **{name: version for name, version in machine["versions"].items() if name != "python"},
        }
    )
