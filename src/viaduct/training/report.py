"""The page of a finished run: what it reached, how it got there, what it still gets wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from viaduct.data.balance import class_quotas
from viaduct.recipes import Loaded
from viaduct.recipes._fields import to_record
from viaduct.reporting import (
    Code,
    Facts,
    Heatmap,
    ImageGrid,
    LineChart,
    Page,
    Picture,
    Section,
    Series,
    Table,
    Tile,
    write_page,
)
from viaduct.training.loop import Training
from viaduct.training.metrics import MOST_CONFUSION, Score

SAMPLES = 32  # pictures in the grid
WRONG_AT_MOST = 16


def write_report(loaded: Loaded, training: Training, summary: dict[str, Any]) -> None:
    logs, evaluations = training.run.records("log"), training.run.records("evaluation")
    sections = [Section("Curves", "", curves(logs, evaluations))]
    if training.score is not None:
        sections += [
            Section("Evaluations", "", [evaluation_table(evaluations)]),
            confusion(training, training.score),
            Section("Predictions", "Validation pictures, the wrong ones first.", [samples(training, training.score)]),
        ]
    if training.recipe.data.balance:
        sections.append(balance(training))
    if training.train_batches.skipped or training.validation.skipped:
        sections.append(skipped_records(training))
    if training.run.restarts():
        sections.append(restarts(training))
    sections += [
        Section("Recipe", loaded.summary, [Code(json.dumps(to_record(loaded.recipe), indent=1))]),
        Section("Machine", "", [machine_facts(summary)]),
    ]
    length = f"{training.step:,} steps, {training.epoch:.1f} epochs"
    subtitle = f"{length}, on {training.device.description()}; {summary['date']}"
    write_page(Page(loaded.name, subtitle, tiles(loaded, training, summary), sections), training.run.report)


def names(training: Training) -> list[str]:
    known = list(training.images.names)
    return known + [str(label) for label in range(len(known), training.recipe.data.classes)]


def name_of(training: Training, label: int) -> str:
    known = training.images.names
    return known[label] if label < len(known) else str(label)


def tiles(loaded: Loaded, training: Training, summary: dict[str, Any]) -> list[Tile]:
    found = []
    if training.score is not None:
        top1, expects = 100 * training.score.top1, loaded.recipe.expects
        reached = None if expects is None else top1 >= expects.percent - expects.within
        note = f"expected {expects.percent:g} %" if expects else ""
        found = [
            Tile("validation top-1", f"{top1:.2f} %", note, reached),
            Tile("validation top-5", f"{100 * training.score.top5:.2f} %"),
            Tile("macro F1", f"{training.score.f1:.3f}"),
        ]
    rate = summary["images_per_s"]
    minutes = sum(summary["minutes"].values())
    return [
        *found,
        Tile("throughput", f"{rate:,.0f} images/s" if rate else "–", f"{summary['precision']}, {summary['mode']}"),
        Tile("time", f"{minutes:.1f} min", f"{summary['minutes']['training']:.1f} min of it training"),
    ]


def curves(logs: list[dict[str, Any]], evaluations: list[dict[str, Any]]) -> list[LineChart]:
    return [
        LineChart("Loss", "step", "loss", both(logs, evaluations, "loss")),
        LineChart("Top-1", "step", "share right", both(logs, evaluations, "top1")),
        LineChart("Learning rate", "step", "rate", [line("rate", logs, "lr")]),
        LineChart("Speed", "step", "images/s", [line("training", logs, "images_per_s")]),
    ]


def both(logs: list[dict[str, Any]], evaluations: list[dict[str, Any]], field: str) -> list[Series]:
    return [line("training", logs, field), line("validation", evaluations, field)]


def line(name: str, records: list[dict[str, Any]], field: str) -> Series:
    return Series(name, [record["step"] for record in records], [record[field] for record in records])


def skipped_records(training: Training) -> Section:
    bad = [*training.train_batches.skipped, *training.validation.skipped]
    return Section("Skipped records", f"{len(bad)} could not be used.", [Code("\n".join(bad))])


def balance(training: Training) -> Section:
    strength, known = training.recipe.data.balance, names(training)
    classes, counts, quotas = class_quotas(training.images.train.labels, strength)
    rows = [
        [known[label] if label < len(known) else str(label), int(count), round(float(quota), 1), float(quota / count)]
        for label, count, quota in zip(classes.tolist(), counts, quotas, strict=True)
    ]
    lead = f"Strength {strength:g}: what an epoch sees of each class."
    return Section("Balance", lead, [Table(("class", "pictures", "seen in an epoch", "times"), rows)])


def restarts(training: Training) -> Section:
    """Ranks were lost: which steps were done twice."""
    rows = [[f"{one['first']}–{one['last']}", one["step"], one["ranks"]] for one in training.run.restarts()]
    table = Table(("steps done twice", "continued from step", "ranks"), rows)
    return Section("Restarts", "A rank was lost; all began again at the last checkpoint.", [table])


def confusion(training: Training, score: Score) -> Section:
    if score.confusion is None:
        classes = training.recipe.data.classes
        return Section("Confusion", f"Not drawn: {classes:,} classes, and at most {MOST_CONFUSION:,} fit.", [])
    heatmap = Heatmap("True class by row, predicted by column", names(training), score.confusion)
    return Section("Confusion", "", [heatmap])


def evaluation_table(evaluations: list[dict[str, Any]]) -> Table:
    fields = ("step", "epoch", "top1", "top5", "loss", "precision", "recall", "f1")
    return Table(fields, [[record[field] for field in fields] for record in evaluations])


def samples(training: Training, score: Score) -> ImageGrid:
    split = training.images.validation
    predicted = np.array(score.predictions)
    wrong = np.flatnonzero(predicted != split.labels)
    right = np.flatnonzero(predicted == split.labels)
    mistakes = wrong[:WRONG_AT_MOST]
    chosen = [*mistakes, *right[: SAMPLES - len(mistakes)]]
    pictures = [picture(training, int(index), int(predicted[index])) for index in chosen]
    return ImageGrid(pictures, f"{len(wrong):,} of {score.count:,} are wrong; {len(mistakes)} of them are shown.")


def picture(training: Training, index: int, predicted: int) -> Picture:
    label = int(training.images.validation.labels[index])
    truth, guess = (name_of(training, number) for number in (label, predicted))
    caption = truth if label == predicted else f"{truth}, taken for {guess}"
    return Picture(training.images.validation.picture(index), caption, marked=label != predicted)


def machine_facts(summary: dict[str, Any]) -> Facts:
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
            **machine["versions"],
        }
    )
