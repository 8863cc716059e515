"""RUN/summary.json: the figures of a run, with its command, versions and machine."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import torch

from viaduct import __version__
from viaduct.devices.base import Device
from viaduct.recipes import LoadedRecipe
from viaduct.recipes._fields import to_record
from viaduct.repository import UnreadableRepository, open_repository
from viaduct.training.facts import TrainingFacts


def summarise(loaded: LoadedRecipe, facts: TrainingFacts, command: str) -> dict[str, Any]:
    """Return the contents of summary.json.

    "mode" is eager or graph, "sink" the number of steps that the device takes without returning to the host, and
    "tuning" names the tuned operators.
    """
    logs, evaluations = facts.run.read_records("log"), facts.run.read_records("evaluation")
    rates = [record["images_per_s"] for record in logs]
    rates_after_warm_up = rates[1:] or rates  # the first log line includes the warm-up
    minutes = {kind: round(seconds / 60, 3) for kind, seconds in facts.seconds.items()}
    return {
        "kind": "training",
        "recipe": loaded.name,
        "summary": loaded.summary,
        "command": command,
        "commit": read_commit(),
        "version": __version__,
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": describe_machine(facts.device),
        "ranks": facts.ranks,
        "precision": facts.precision.compute,
        "mode": facts.mode,
        "compile": loaded.recipe.compile,
        "compiled": facts.compiled,
        "sink": loaded.recipe.sink,
        "sink_length": facts.sink_length,
        "sink_on_device": facts.is_sink_captured,
        "sink_obstacle": facts.sink_obstacle,
        "kernels": loaded.recipe.kernels,
        "own_kernels": facts.own_kernels,
        "tuning": facts.tuning,
        "seed": loaded.recipe.seed,
        "global_batch": loaded.recipe.data.global_batch,
        "length": {name: to_record(loaded.recipe)[name] for name in ("epochs", "steps")},
        "steps": facts.step,
        "epochs": facts.epoch,
        "stopped": facts.stop_reason,
        "minutes": minutes,
        "images_per_s": median(rates_after_warm_up) if rates else None,
        "peak_memory_bytes": facts.peak_memory_bytes,
        "skipped_steps": facts.skipped_steps,
        "redone_steps": sum(restart["last"] - restart["step"] for restart in facts.run.read_restarts()),
        "parallel": facts.parallel,
        "parameters": facts.parameters,
        "final": facts.score.to_record() if facts.score else None,
        "best": facts.best,
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
