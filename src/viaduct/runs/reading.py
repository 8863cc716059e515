"""Reader of one run directory: recipe.json, metrics.jsonl, summary.json, ending.json, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from viaduct.run_files import (
    ENDING,
    count_steps,
    is_summary_of,
    list_step_folders,
    read_ending,
    read_recipe_record,
    read_summary,
)
from viaduct.runs.facts import RunFacts
from viaduct.runs.metrics import MetricsDigest, number_or_none, update_digest
from viaduct.typed_fields import matches

FILES = ("recipe.json", "metrics.jsonl", "summary.json", ENDING, "checkpoints")
Signature = list[list[int] | None]
"""Inode, size and modification time (ns) of each of FILES, None for a missing file. The index stores it."""
SIZE, MODIFIED_NS = 1, 2  # positions in an entry of a signature


def read_signature(folder: str) -> Signature:
    signature: Signature = []
    for name in FILES:
        try:
            status = os.stat(f"{folder}/{name}")
        except OSError:
            signature.append(None)
        else:
            signature.append([status.st_ino, status.st_size, status.st_mtime_ns])
    return signature


def read_run(folder: str, signature: Signature, earlier: MetricsDigest | None) -> tuple[RunFacts, MetricsDigest]:
    """Return the facts of a run, without its name and state, and the digest of its metrics.

    `earlier` is the digest of an earlier reading, so that only new lines of metrics.jsonl are read. Raises BadRun if
    recipe.json is missing or damaged.
    """
    path = Path(folder)
    files = dict(zip(FILES, signature, strict=True))
    record = read_recipe_record(path)
    digest = update_digest(f"{folder}/metrics.jsonl", earlier)
    run = describe_record(folder, record)
    set_metrics(run, digest)
    if files["summary.json"] is not None:
        set_summary(run, read_summary(path), record)
    run.ending = read_ending(path) if files[ENDING] is not None else None
    if run.ending is None and files[ENDING] is not None:
        run.unreadable.append(ENDING)
    if files["checkpoints"] is not None and not run.is_complete:
        run.newest_checkpoint = max(list_step_folders(path / "checkpoints"), default=None)
    metrics = files["metrics.jsonl"]
    size = None if metrics is None else metrics[SIZE]
    if size and not digest.step and (digest.damaged or not digest.inode):  # it has content, but no readable step
        run.unreadable.append("metrics.jsonl")
    run.damage = list(describe_damage(run, digest, folder, size))
    changed = metrics or files["recipe.json"]
    run.changed = changed[MODIFIED_NS] / 1e9 if changed else None
    return run, digest


def describe_record(folder: str, record: dict[str, Any]) -> RunFacts:
    """Return the facts in `record`, the contents of recipe.json."""
    data = record.get("data")
    training = (record.get("images") or {}).get("training") or {}
    run = RunFacts(folder, folder, record["name"], flatten_recipe(record["recipe"]))
    run.data_path, run.data = data, name_data(data, record["recipe"])
    run.images, run.command = training.get("count"), record.get("command")
    run.device, run.steps_total = record.get("device"), count_steps(record) or None
    run.user_files = read_user_files(record)
    set_provenance(run, record.get("provenance"))
    return run


def read_user_files(record: dict[str, Any]) -> dict[str, str | None]:
    """Return `RunFacts.user_files`; early versions of viaduct recorded no checksums."""
    files: dict[str, str | None] = {}
    if record["file"] is not None:
        recorded = read_typed(record, "files", dict) or {}
        files = {name: read_typed(recorded, name, str) for name in ["recipe.py", *recorded]}
    model, model_file = record["recipe"].get("model"), read_typed(record, "model_file", dict)
    if model_file is not None:
        files[str(model)] = read_typed(model_file, "sha256", str)
    elif "model_file" not in record and isinstance(model, str) and ":" in model:  # perhaps a user's function
        files[model] = None
    return files


def name_data(data: str | None, recipe: dict[str, Any]) -> str:
    """Return the last component of the data's path, or the class name of the recipe's data if there is no path."""
    if data:
        return os.path.basename(data.rstrip("/")) or data
    kind = (read_typed(recipe, "data", dict) or {}).get("is")
    return str(kind or "")


def set_provenance(run: RunFacts, provenance: Any) -> None:
    """Set the facts that recipe.json records of a run's last session, and when its first session began."""
    if not isinstance(provenance, dict):
        return
    recorded = provenance.get("sessions")
    sessions = [session for session in recorded if isinstance(session, dict)] if isinstance(recorded, list) else []
    run.has_provenance = bool(sessions)
    run.id, run.init = read_typed(provenance, "id", str), read_typed(provenance, "init", dict)
    if not sessions:
        return
    last, machine = sessions[-1], read_typed(sessions[-1], "machine", dict) or {}
    data = read_typed(last, "data", dict) or {}
    run.sessions, run.began = len(sessions), number_or_none(sessions[0].get("began"))
    run.commit, run.version, run.source = (read_typed(last, name, str) for name in ("commit", "version", "source"))
    run.host = read_typed(last, "host", str)
    run.pid, run.ranks = read_typed(last, "pid", int), read_typed(last, "ranks", int)
    run.modified_files = read_typed(last, "modified_files", int)
    run.machine, run.device = machine or None, read_typed(machine, "description", str) or run.device
    run.fingerprint, run.fingerprint_basis = read_typed(data, "fingerprint", str), read_typed(data, "basis", str)
    run.build = read_typed(data, "build", dict)


def set_metrics(run: RunFacts, digest: MetricsDigest) -> None:
    run.steps, run.epoch, run.loss = digest.step, digest.epoch, digest.loss
    run.top1, run.best_top1, run.best_step = digest.top1, digest.best_top1, digest.best_step
    run.images_per_s, run.damaged_lines = digest.images_per_s, digest.damaged
    run.lost_step = digest.lost_step
    run.began = run.began if run.began is not None else digest.first_time


def set_summary(run: RunFacts, summary: dict[str, Any] | None, record: dict[str, Any]) -> None:
    """Set the facts of summary.json (None: it is damaged); it is ignored if the run was made longer after it."""
    if summary is None:
        run.unreadable.append("summary.json")
        return
    run.is_complete = run.steps <= summary["steps"] and is_summary_of(summary, record["recipe"])
    if not run.is_complete:
        return
    run.steps = summary["steps"]
    run.images_per_s = number_or_none(summary.get("images_per_s")) or run.images_per_s
    run.precision, run.parameters = read_typed(summary, "precision", str), read_typed(summary, "parameters", int)
    if not run.has_provenance:
        machine = read_typed(summary, "machine", dict) or {}
        run.commit, run.version = read_typed(summary, "commit", str), read_typed(summary, "version", str)
        run.machine, run.ranks = machine or None, read_typed(summary, "ranks", int)
        run.device = read_typed(machine, "description", str) or run.device


def describe_damage(run: RunFacts, digest: MetricsDigest, folder: str, size: int | None) -> Iterator[str]:
    """Yield descriptions of damaged files. `size` is that of metrics.jsonl, None if it is missing.

    The last line of a run that is not complete may be half-written: that is no damage.
    """
    name = "metrics.jsonl"
    yield from (f"{file} cannot be read" for file in run.unreadable if file != name)
    if digest.damaged:
        yield f"{digest.damaged:,} damaged {'line' if digest.damaged == 1 else 'lines'} in {name}"
    if size is not None and not os.path.isfile(f"{folder}/{name}"):
        yield f"{name} is not a plain file"
    elif size and not digest.inode:
        yield f"{name} cannot be read"
    elif run.is_complete and not size:
        yield f"{name} is {'missing' if size is None else 'empty'}"
    elif run.is_complete and size is not None:
        if digest.offset < size:
            yield f"the last line of {name} is cut off"
        every = read_typed(run.fields, "log.every_steps", int)
        if every and run.steps - digest.step >= every:
            yield f"{name} ends at step {digest.step:,} of {run.steps:,}"


def flatten_recipe(recipe: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten a stored recipe: `optimizer: {is: SGD, lr: 0.1}` becomes `optimizer: SGD` and `optimizer.lr: 0.1`.

    A function of the recipe is stored as `{callable: NAME}` and becomes its name.
    """
    fields: dict[str, Any] = {}
    for name, value in recipe.items():
        if name == "is":
            if prefix:
                fields[prefix.rstrip(".")] = value
        elif isinstance(value, dict) and "callable" not in value:
            fields |= flatten_recipe(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value["callable"] if isinstance(value, dict) else value
    return fields


def read_typed(record: dict[str, Any], name: str, kind: type) -> Any:
    """Return a field of a record if it has this type and is not an empty text, else None."""
    value = record.get(name)
    return value if matches(value, kind) and value != "" else None
