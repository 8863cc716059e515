"""Read the files of a run directory and check the fields that viaduct reads from them.

A run may be truncated by a full disk, copied in part or edited by hand; none of this may cause a traceback.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from viaduct.errors import BadRun
from viaduct.json_records import (
    Damaged,
    Json,
    has_fields,
    load_object,
    parse_object,
    rename_pictures,
    require_fields,
    require_type,
)
from viaduct.typed_fields import show_value

MAX_METRICS_BYTES = 4 << 30  # of metrics.jsonl
STEP_LIMIT = 1 << 62  # steps are below this number; a larger one is damage
MANIFEST = "manifest.json"
LABELS = "labels.json"
RATE_PAGE = "rate_finder.html"  # of `train --lr find`; may be in the directory before its run begins
ENDING = "ending.json"
Number = float | None  # null in JSON means not finite

STEP_FOLDER = re.compile(r"step-(0|[1-9][0-9]{0,18})")
RECIPE_FIELDS: dict[str, Any] = {"name": str, "file": str | None, "recipe": dict}
OPTIONAL_RECIPE_FIELDS: dict[str, Any] = {
    "data": str | None,
    "device": str,
    "command": str,
    "images": dict | None,
    "image_shape": list | None,
    "provenance": dict | None,
    "tuning": dict | None,
}
IMAGE_FIELDS = {"count": int, "labels": int}  # of each split in recipe.json
FILE_FIELDS = {"size": int, "sha256": str}  # of each file in a checkpoint's manifest
SCORE_TYPES = dict.fromkeys(("loss", "top1", "top5", "precision", "recall", "f1"), Number)
EVALUATION_FIELDS = ("count", *SCORE_TYPES, "seconds")  # fields of an evaluation in metrics.jsonl
# Kind of a record in metrics.jsonl -> the fields that it must have.
RECORD_FIELDS: dict[str, dict[str, Any]] = {
    "log": {"epoch": float, "images_per_s": Number, **dict.fromkeys(("loss", "top1", "lr"), Number)},
    "evaluation": {"epoch": float, **SCORE_TYPES},
    "restart": {"first": int, "last": int, "ranks": int},
}


def read_json_object(path: Path) -> Json:
    """Return the object in a JSON file; raise BadRun if it is damaged or too large, OSError if it cannot be read."""
    try:
        return load_object(path)
    except Damaged as error:
        raise BadRun(f"{path} is damaged: {error}.") from None


def read_recipe_record(run: Path) -> Json:
    """Return RUN/recipe.json; raise BadRun if it is missing or damaged, OSError if it cannot be read."""
    file = run / "recipe.json"
    try:
        record = rename_pictures(read_json_object(file))
    except (FileNotFoundError, NotADirectoryError):
        raise BadRun(f"{str(run)!r} is not a run: it has no recipe.json.") from None
    try:
        require_fields(record, RECIPE_FIELDS)
        for name, kind in OPTIONAL_RECIPE_FIELDS.items():
            if name in record:
                require_type(record[name], kind, name)
        for name in ("file", "data"):
            if "\0" in (record.get(name) or ""):
                raise Damaged(f"{name} is {show_value(record[name])}; no path contains a NUL byte")
        for split in ("training", "validation") if record.get("images") is not None else ():
            require_fields(record["images"], {split: dict}, "images.")
            require_fields(record["images"][split], IMAGE_FIELDS, f"images.{split}.")
    except Damaged as error:
        raise BadRun(f"{file} is damaged: {error}.") from None
    return record


def count_steps(record: Mapping[str, Any]) -> int:
    """Return the number of steps of a whole training, from the contents of recipe.json; 0 if unknown."""
    recipe = record.get("recipe")
    if not isinstance(recipe, dict):
        return 0
    if steps := read_count(recipe, "steps"):
        return steps
    images = read_count((record.get("images") or {}).get("training"), "count")
    batch, epochs = read_count(recipe.get("data"), "global_batch"), recipe.get("epochs")
    if not images or not batch or not isinstance(epochs, int | float):
        return 0
    product = epochs * float(images // batch)
    return max(1, int(product)) if 0 <= product < STEP_LIMIT else 0


def read_count(record: Any, name: str) -> int:
    """Return `record[name]` if that is a positive int, else 0."""
    value = record.get(name) if isinstance(record, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def read_labels(run: Path) -> tuple[str, ...]:
    """Return the class names of a run in the order of outputs; empty if it has no labels.json."""
    file = run / LABELS
    if not file.is_file():
        return ()
    labels = read_json_object(file).get("labels")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise BadRun(f"{file} is damaged: labels must be a list of names.", "Give the names with --labels FILE.")
    return tuple(labels)


def read_summary(run: Path) -> Json | None:
    """Return RUN/summary.json; None if it is missing (the run is unfinished) or damaged."""
    try:
        summary = read_json_object(run / "summary.json")
        require_fields(summary, {"steps": int, "length": dict})
        require_fields(summary["length"], {"steps": int, "epochs": float}, "length.")
    except (FileNotFoundError, NotADirectoryError, BadRun, Damaged):
        return None
    return summary


def is_summary_of(summary: Mapping[str, Any], recipe: Mapping[str, Any]) -> bool:
    """Return True if a summary was written for the length of the recipe in recipe.json.

    A finished run that is resumed with a longer recipe keeps its first summary until it has finished again.
    """
    return all(summary["length"].get(name) == recipe.get(name) for name in ("epochs", "steps"))


def read_ending(run: Path) -> Json | None:
    """Return RUN/ending.json, which tells why the last session stopped early; None if it is missing or damaged.

    It is missing if the run has finished, is still running, or was killed.
    """
    try:
        ending = read_json_object(run / ENDING)
        require_fields(ending, {"outcome": str, "step": int, "reason": str})
    except (OSError, BadRun, Damaged):
        return None
    return ending


def compute_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_manifest(folder: Path) -> Json:
    """Return the manifest of a checkpoint, with size and checksum of each file; raise BadRun if it is damaged."""
    file = folder / MANIFEST
    try:
        manifest = read_json_object(file)
        require_fields(manifest, {"files": dict})
        for name, facts in manifest["files"].items():
            require_type(facts, dict, f"files.{name}")
            require_fields(facts, FILE_FIELDS, f"files.{name}.")
        if "epoch" in manifest:
            require_type(manifest["epoch"], float, "epoch")
    except OSError as error:
        raise BadRun(f"{file} cannot be read: {error.strerror}.") from None
    except Damaged as error:
        raise BadRun(f"{file} is damaged: {error}.") from None
    return manifest


def list_step_folders(checkpoints: Path) -> dict[int, Path]:
    """Return the folders of checkpoints, intact or damaged, by step in ascending order."""
    named = ((STEP_FOLDER.fullmatch(path.name), path) for path in checkpoints.glob("step-*"))
    folders = {int(match[1]): path for match, path in named if match and int(match[1]) < STEP_LIMIT}
    return dict(sorted(folders.items()))


def read_metric_lines(run: Path) -> Iterator[tuple[str, Json | None]]:
    """Yield each line of RUN/metrics.jsonl with its record, None if damaged; raise BadRun if the file is too large."""
    file = run / "metrics.jsonl"
    if not file.is_file():
        return
    if file.stat().st_size > MAX_METRICS_BYTES:
        raise BadRun(f"{file} is larger than {MAX_METRICS_BYTES >> 30} GiB.")
    with file.open("rb") as opened:
        for line in opened:
            text = line.decode("utf-8", errors="replace").rstrip("\r\n")
            yield text, parse_metric(text)


def parse_metric(line: str) -> Json | None:
    """Return the record in a line of metrics.jsonl; None if the line is damaged."""
    try:
        record = parse_object(line)
        require_fields(record, {"kind": str, "step": int})
        if not 0 <= record["step"] < STEP_LIMIT:
            raise Damaged("step is out of range")
    except Damaged:
        return None
    return record


def read_metrics(run: Path, kind: str) -> list[Json]:
    """Return the records of a kind (log, evaluation, restart …) in RUN/metrics.jsonl; damaged ones are skipped."""
    records = [record for _, record in read_metric_lines(run) if record is not None and record["kind"] == kind]
    return [record for record in records if has_fields(record, RECORD_FIELDS.get(kind, {}))]
