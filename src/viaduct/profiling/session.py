"""Profile the training in this process, and write the profile to the process's folder (script_job.py).

The times of each step are appended to a file as soon as they are known, so that they survive a kill; operators, kernels
and memory are written at the end.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import warnings
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from viaduct.atomic_files import replace_file
from viaduct.cores import count_cores
from viaduct.profiling.collector import Collector, PlanPart, clear_constant_interruptions
from viaduct.profiling.record import Facts, Step
from viaduct.profiling.script_job import FINISHED_FILE, STEPS_FILE, ScriptJob
from viaduct.profiling.script_phases import ScriptPhases


class Session:
    """Context manager that profiles this process; after the last step it calls `stop`, which ends the script."""

    def __init__(self, job: ScriptJob, stop: Callable[[], None]) -> None:
        self.job, self._stop = job, stop
        self._process = os.getpid()
        self._ranks = 1
        self._is_finished = False
        self._folder: Path | None = None
        self._log: int | None = None
        self.collector = Collector(
            job.plan, "cpu", rank=0, script_folder=Path(job.script_folder), on_step=self._write_step
        )
        self.phases = ScriptPhases(self.collector, self._finish_and_stop, self._on_network_facts)

    def __enter__(self) -> Session:
        # torch.compile would warn about hooks that are ours, not the script's.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        self.phases.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.phases.__exit__()

    def finish(self) -> None:
        """Write the complete profile once, unless this process did not train or is a fork of the session's process."""
        has_trained = self.phases.passes or self.phases.backwards or self.phases.updates
        if self._is_finished or not has_trained or self._process != os.getpid():
            return
        self._is_finished = True
        profile = clear_constant_interruptions(self.collector.finish(self.build_facts()))
        with replace_file(self.open_folder() / FINISHED_FILE, durable=False) as file:
            pickle.dump((profile, self.collector.events, self.collector.done), file)

    def build_facts(self) -> Facts:
        import torch

        network = self.phases.facts
        return Facts(
            source=self.job.target,
            kind="script",
            ranks=self._ranks,
            device=self.collector.device,
            description=describe_device(self.collector.device),
            batch=network.samples_per_step if network is not None else None,
            precision=network.precision if network is not None else "",
            mode=self.phases.mode,
            phases_found_by=self.phases.describe_time_points() if self.phases.backwards or self.phases.updates else (),
            notes=tuple(self.phases.list_notes()),
            workers=self.phases.workers,
            versions={"torch": str(torch.__version__)},
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            cores=count_cores(),
        )

    def open_folder(self) -> Path:
        """Return the folder RECORD/PID of this process (script_job.py); the first call creates it."""
        if self._folder is None:
            self._folder = Path(self.job.record_folder) / str(os.getpid())
            self._folder.mkdir(exist_ok=True)
        return self._folder

    def _finish_and_stop(self) -> None:
        self.finish()
        self._stop()

    def _on_network_facts(self) -> None:
        self.collector.rank, self._ranks = find_rank_and_size()
        self._write_facts()

    def _write_facts(self) -> None:
        self._write({"kind": "facts", "facts": asdict(self.build_facts()), "rank": self.collector.rank})

    def _write_step(self, part: PlanPart, step: Step) -> None:
        fields = asdict(step) if step.collectives else vars(step)  # asdict takes 30 µs
        self._write({"kind": "step", "part": part, "step": fields})
        if step.number == 0:  # only now is it known how the end of a step is found, which is one of the facts
            self._write_facts()

    def _write(self, line: dict[str, Any]) -> None:
        """Append a record with one system call, so that it survives a kill of the process."""
        if self._log is None:
            self._log = os.open(self.open_folder() / STEPS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self._log, json.dumps(line).encode() + b"\n")


@functools.cache
def describe_device(kind: str) -> str:
    """Return the device's description; "" if the device cannot be used."""
    from viaduct import devices

    try:
        return devices.get(kind).describe_card()
    except Exception:  # the device is in an error state
        return ""


def find_rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks.

    They come from torch.distributed if it is initialised, else from the environment, else they are 0 and 1.
    """
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    numbers = [os.environ.get(name, "") for name in ("RANK", "LOCAL_RANK", "RANK_ID")]
    size = os.environ.get("WORLD_SIZE", "")
    rank = next((int(number) for number in numbers if number.isdigit()), 0)
    return rank, int(size) if size.isdigit() else 1
