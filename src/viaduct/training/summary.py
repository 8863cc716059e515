"""RUN/summary.json: the figures of a run, with its command, versions and machine."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from viaduct import __version__
from viaduct.devices.base import Device
from viaduct.recipes import LoadedRecipe
from viaduct.recipes._fields import to_record
from viaduct.repository import UnreadableRepository, open_repository

if TYPE_CHECKING:
    from viaduct.training.loop import Training


def summarise(loaded: LoadedRecipe, training: Training, command: str) -> dict[str, Any]:
    """Return the contents of summary.json; docs/speed.md describes the fields about sinks, compiling and kernels."""
    logs, evaluations = training.run.read_records("log"), training.run.read_records("evaluation")
    rates = [record["images_per_s"] for record in logs]
    rates_after_warm_up = rates[1:] or rates  # the first log line includes the warm-up
    minutes = {kind: round(seconds / 60, 3) for kind, seconds in training.stopwatch.seconds.items()}
    own_parameters = sum(parameter.numel() for parameter in training.model.parameters())
    sink = training.sink
    return {
        "kind": "training",
        "recipe": loaded.name,
        "summary": loaded.summary,
        "command": command,
        "commit": read_commit(),
        "version": __version__,
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": describe_machine(training.device),
        "ranks": training.group.ranks,
        "precision": training.precision_plan.compute,
        "mode": training.mode,
        "compile": loaded.recipe.compile,
        "compiled": training.computation.compilation.outcome,
        "sink": loaded.recipe.sink,
        "sink_length": sink.length if sink else 0,
        "sink_on_device": sink is not None and sink.replay is not None,
        "sink_obstacle": training.sink_obstacle,
        "kernels": loaded.recipe.kernels,
        "own_kernels": training.computation.fused_count,
        "tuning": training.tuning_record,
        "seed": loaded.recipe.seed,
        "global_batch": loaded.recipe.data.global_batch,
        "length": {name: to_record(loaded.recipe)[name] for name in ("epochs", "steps")},
        "steps": training.step,
        "epochs": training.epoch,
        "stopped": training.progress.stop_reason,
        "minutes": minutes,
        "images_per_s": median(rates_after_warm_up) if rates else None,
        "peak_memory_bytes": training.device.get_peak_memory(),
        "skipped_steps": training.scale.skipped,
        "redone_steps": sum(restart["last"] - restart["step"] for restart in training.run.read_restarts()),
        "parallel": training.parallel.name,
        "parameters": own_parameters + training.parallel.count_missing_parameters(),
        "final": training.score.to_record() if training.score else None,
        "best": training.progress.best,
        "samples": {"images_per_s": rates, "evaluations": evaluations},
    }


def describe_machine(device: Device) -> dict[str, Any]:
    """Return the facts about the machine that a run records."""
    return {
        "device": device.NAME,
        "description": device.describe_card(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "system": platform.system(),
        "versions": device.get_versions(),
    }


def read_commit() -> str:
    """Return VIADUCT_COMMIT if set, else the commit of this source tree, else viaduct's version."""
    if named := os.environ.get("VIADUCT_COMMIT"):
        return named
    try:
        commit = open_repository(Path(__file__).parents[3]).read_head_commit()[:12]
    except UnreadableRepository:
        commit = ""
    return commit or f"viaduct {__version__}"
