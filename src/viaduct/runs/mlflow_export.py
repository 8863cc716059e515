"""Export of runs as an MLflow file store, which `mlflow ui --backend-store-uri FOLDER` opens; MLflow is not needed.

    mlruns/<experiment>/meta.yaml                       one experiment for each recipe
    mlruns/<experiment>/<run>/meta.yaml                 name, status, times
    mlruns/<experiment>/<run>/params/optimizer.lr       a file for each field of the recipe
    mlruns/<experiment>/<run>/metrics/validation.top1   a line for each value: milliseconds, value, step
    mlruns/<experiment>/<run>/tags/viaduct.path         code, machine, data, state

Artifacts are hard links to the files of the run: they take no space, and `mlflow gc` removes only the links. A store on
another disk cannot have links; there the tag `viaduct.path` is the only reference to the files. The store is written
under a temporary name and renamed at the end. Values that are not finite are left out. MLflow's names consist of
letters, digits and `_-. `.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from viaduct.atomic_files import stage_folder
from viaduct.errors import BadValue
from viaduct.json_records import Json
from viaduct.run_files import EVALUATION_FIELDS, read_metric_lines
from viaduct.runs.facts import RunFacts

STATUS = {"running": 1, "finished": 3, "crashed": 4, "interrupted": 5, "pruned": 5}
"""MLflow's RunStatus: RUNNING, FINISHED, FAILED, KILLED. The other states (never begun, unknown) are SCHEDULED."""
SCHEDULED = 2
ENDED_STATES = ("finished", "crashed", "interrupted", "pruned")
SOURCE_TYPE_LOCAL = 4  # MLflow's SourceType
ARTIFACTS = (
    "recipe.json",
    "metrics.jsonl",
    "summary.json",
    "report.html",
    "labels.json",
    "log.txt",
    "model.safetensors",
    "ema.safetensors",
)
MAX_PARAM_CHARS, MAX_TAG_CHARS = 6000, 8000  # limits of MLflow
TRAINING_METRICS = ("loss", "total_loss", "top1", "top5", "lr", "images_per_s", "epoch")  # fields of a log line
FORBIDDEN_IN_NAMES = re.compile(r"[^\w\-. ]", re.ASCII)


def check_store(out: Path) -> None:
    """Raise BadValue if the path exists or cannot be written."""
    if out.exists() or out.is_symlink():
        raise BadValue(f"{str(out)!r} is there already.", "Name a new folder with --out; a store is not added to.")
    parent = out.absolute().parent
    if not parent.is_dir():
        raise BadValue(f"there is no folder {str(parent)!r} to write to.", "Make it first, or name another --out.")
    if not os.access(parent, os.W_OK):
        raise BadValue(f"{str(parent)!r} may not be written to.", "Name another folder with --out.")


def write_store(runs: Sequence[RunFacts], out: Path) -> int:
    """Write the store atomically; return the number of runs with artifacts that could not be linked."""
    unlinked = 0
    with stage_folder(out) as draft:
        write_experiment(draft, "0", "Default", out)
        for recipe in dict.fromkeys(run.recipe for run in runs):
            # The id depends only on the recipe's name, so that every export has the same one. Bit 56 keeps it apart
            # from small ids, such as 0 of the default experiment.
            digest = hashlib.sha256(recipe.encode("utf-8", "surrogateescape")).digest()
            experiment = str(int.from_bytes(digest[:7], "big") | 1 << 56)
            write_experiment(draft, experiment, recipe, out)
            for run in (run for run in runs if run.recipe == recipe):
                is_linked = write_run(draft / experiment, out.absolute() / experiment, run)
                unlinked += 0 if is_linked else 1
        draft.rename(out)
    return unlinked


def write_experiment(store: Path, experiment: str, name: str, out: Path) -> None:
    """Write the folder and meta.yaml of an experiment; `out` is the final path of the store."""
    folder = store / experiment
    folder.mkdir()
    now = int(time.time() * 1000)
    location = (out.absolute() / experiment).as_uri()
    meta = {"artifact_location": location, "creation_time": now, "experiment_id": experiment, "last_update_time": now}
    write_meta(folder, meta | {"lifecycle_stage": "active", "name": name or "unnamed"})


def write_run(experiment: Path, location: Path, run: RunFacts) -> bool:
    """Write one run; return False if not all of its artifacts could be linked.

    `experiment` is the folder that is written to, `location` its final path.
    """
    path = str(Path(run.path).absolute())
    identity = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    folder = experiment / identity
    for name in ("params", "metrics", "tags", "artifacts"):
        (folder / name).mkdir(parents=True)
    linked = link_artifacts(Path(path), folder / "artifacts")
    ended = run.changed if run.state in ENDED_STATES else None
    meta: dict[str, Any] = {
        "artifact_uri": (location / identity / "artifacts").as_uri(),
        "end_time": int(ended * 1000) if ended is not None else None,
        "entry_point_name": "",
        "experiment_id": location.name,
        "lifecycle_stage": "active",
        "run_id": identity,
        "run_name": run.name,
        "run_uuid": identity,
        "source_name": "",
        "source_type": SOURCE_TYPE_LOCAL,
        "source_version": run.commit or "",
        "start_time": int((run.began or run.changed or 0.0) * 1000),
        "status": STATUS.get(run.state, SCHEDULED),
        "tags": [],
        "user_id": name_user(),
    }
    write_meta(folder, meta)
    write_params(folder / "params", run)
    write_tags(folder / "tags", run, path)
    write_metrics(folder / "metrics", Path(run.path))
    return linked


def link_artifacts(run: Path, folder: Path) -> bool:
    """Hard-link the files in ARTIFACTS that a run has; return False if one of them could not be linked."""
    linked = True
    for name in ARTIFACTS:
        if (run / name).is_file():
            try:
                os.link(run / name, folder / name, follow_symlinks=True)
            except OSError:  # another disk, or another user's file
                linked = False
    return linked


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.yaml; JSON scalars are valid YAML."""
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in meta.items()]
    (folder / "meta.yaml").write_text("".join(lines), encoding="ascii")


def name_user() -> str:
    """Return the name of the user of this process; empty if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without an entry in the password database
        return ""


def write_params(folder: Path, run: RunFacts) -> None:
    for name, value in run.fields.items():
        text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
        write_value(folder, name, text[:MAX_PARAM_CHARS])


def write_tags(folder: Path, run: RunFacts, path: str) -> None:
    tags = {
        "mlflow.runName": run.name,
        "mlflow.source.name": run.command,
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": run.commit,
        "viaduct.path": path,
        "viaduct.state": run.state,
        "viaduct.reason": run.reason,
        "viaduct.damaged_lines": run.damaged_lines or None,  # of metrics.jsonl, which the metrics lack
        "viaduct.data": run.data_path or run.data,
        "viaduct.data.fingerprint": run.fingerprint,
        "viaduct.device": run.device,
        "viaduct.host": run.host,
        "viaduct.ranks": run.ranks,
        "viaduct.version": run.version,
        "viaduct.id": run.id,
        "viaduct.init": run.init.get("source") if run.init else None,
    }
    for name, value in tags.items():
        if value is not None and value != "":
            write_value(folder, name, str(value)[:MAX_TAG_CHARS])


def write_value(folder: Path, name: str, text: str) -> None:
    (folder / clean_name(name)).write_text(text, encoding="utf-8", errors="backslashreplace")


def clean_name(name: str) -> str:
    """Return a file name that MLflow accepts and that cannot lead out of its folder."""
    return FORBIDDEN_IN_NAMES.sub("_", name).strip(".")[:200] or "_"


def write_metrics(folder: Path, run: Path) -> None:
    """Write one file for each curve: training.loss, validation.top1 …"""
    lines: dict[str, list[str]] = {}
    for _, record in read_metric_lines(run):
        if record is None:
            continue
        moment = record.get("time")
        milliseconds = int(moment * 1000) if isinstance(moment, int | float) else 0
        for name, value in read_values(record):
            point = f"{milliseconds} {float(value)!r} {record.get('step', 0)}\n"
            lines.setdefault(clean_name(name), []).append(point)
    for name, points in lines.items():
        (folder / name).write_text("".join(points), encoding="ascii")


def read_values(record: Json) -> Iterator[tuple[str, float]]:
    """Yield name and value of each number in a log line or an evaluation, also of the recipe's own metrics."""
    if record["kind"] == "log":
        prefix, names = "training", list(TRAINING_METRICS)
    elif record["kind"] == "evaluation":
        recipe_metrics = [name for name in record if name not in ("kind", "step", "time", *EVALUATION_FIELDS)]
        prefix, names = "validation", [*(name for name in EVALUATION_FIELDS if name != "count"), *recipe_metrics]
    else:
        return
    for name in dict.fromkeys(names):
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}.{name}", value
