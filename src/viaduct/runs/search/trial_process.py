"""Trials as processes: `viaduct train` in a run directory of the study.

A trial is stopped with SIGTERM, on which `train` writes a checkpoint and ends. On Linux a trial also gets this signal
when the search is killed. Up to `parallel` trials run at a time; each has a slot, which is its part of the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from viaduct.atomic_files import write_file
from viaduct.cluster.environment import VISIBLE_VARIABLES
from viaduct.cores import count_cores
from viaduct.run_files import read_metric_lines, read_summary
from viaduct.runs.search.study_folder import StudyFolder
from viaduct.runs.state import TRIAL_FILE, is_locked

SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
MESSAGE = re.compile(r"viaduct train: (.*)")  # first line of an error that ends the command
TAIL_BYTES = 20_000  # the reason of a failure is searched in this many last bytes of a log


@dataclass(frozen=True)
class Evaluation:
    """Value of the search's metric after some steps of a trial."""

    step: int
    value: float


@dataclass
class TrainProcess:
    """Process of one trial."""

    process: subprocess.Popen[bytes]
    run: Path  # run directory
    log: Path  # file with the output of the process
    metric: str
    number: int
    stopped: bool = False  # True after a request to stop
    read_size: int = -1  # size of metrics.jsonl at the last reading
    evaluations: list[Evaluation] = field(default_factory=list)  # of the last reading

    def poll(self) -> int | None:
        return self.process.poll()

    def list_evaluations(self) -> list[Evaluation]:
        """Return the evaluations so far, earliest first; metrics.jsonl is read again only if its size has changed."""
        file = self.run / "metrics.jsonl"
        size = file.stat().st_size if file.is_file() else 0
        if size != self.read_size:
            self.read_size, self.evaluations = size, self.read_evaluations()
        return self.evaluations

    def read_evaluations(self) -> list[Evaluation]:
        by_step = {}
        for _, record in read_metric_lines(self.run):
            if record is not None and record["kind"] == "evaluation" and is_number(record.get(self.metric)):
                by_step[record["step"]] = Evaluation(record["step"], float(record[self.metric]))
        return list(by_step.values())

    def read_final(self) -> tuple[float | None, int | None]:
        """Return the metric in the summary of a finished trial, and the number of validation images that it is of.

        Either is None if it is missing; the metric also if it is not finite.
        """
        final = (read_summary(self.run) or {}).get("final")
        value, count = (final.get(self.metric), final.get("count")) if isinstance(final, dict) else (None, None)
        return float(value) if is_number(value) else None, count if isinstance(count, int) else None

    def find_failure_reason(self) -> str:
        code = self.process.poll()
        if code == 0:
            return f"its {self.metric} is missing or not finite"
        return find_reason(self.log, code)

    def stop(self) -> None:
        """Ask the process to write a checkpoint and end."""
        if not self.stopped and self.process.poll() is None:
            self.process.terminate()
        self.stopped = True

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()

    def write_outcome(self, state: str, value: float | None, reason: str) -> None:
        """Write the outcome of the trial into its run directory."""
        if not (self.run / "recipe.json").is_file():  # the trial failed early
            return
        record = {"trial": self.number, "study": "..", "state": state, self.metric: value, "reason": reason}
        with contextlib.suppress(OSError):
            write_file(self.run / TRIAL_FILE, (json.dumps(record, indent=1) + "\n").encode())


@dataclass(frozen=True)
class TrainLauncher:
    """Launcher of `viaduct train` for each trial."""

    folder: StudyFolder
    recipe: str
    metric: str
    flags: Sequence[str]  # arguments of all trials: --data, --device, --set
    environments: Sequence[Mapping[str, str]]  # environment variables of each slot: number of threads, or card

    def build_command(self, number: int, settings: Mapping[str, str]) -> list[str]:
        """Return the arguments of a trial's command, after `viaduct`."""
        run = str(self.folder.get_trial_folder(number))
        return ["train", self.recipe, "--run", run, *self.flags, *list_set_flags(settings)]

    def start(self, number: int, settings: Mapping[str, str], slot: int) -> TrainProcess:
        """Start or resume a trial on a slot's part of the machine; its output is appended to its log."""
        run, log = self.folder.get_trial_folder(number), self.folder.get_log_file(number)
        log.parent.mkdir(exist_ok=True)
        while is_locked(str(run)):  # after a killed search, its trial may still write a checkpoint
            time.sleep(0.2)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "viaduct", *self.build_command(number, settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environments[slot]},
                start_new_session=True,  # Ctrl-C reaches only the search, which asks its trials to end
                preexec_fn=make_parent_death_hook(),
            )
        return TrainProcess(process, run, log, self.metric, number)


def list_set_flags(settings: Mapping[str, str]) -> list[str]:
    return [argument for path, text in settings.items() for argument in ("--set", f"{path}={text}")]


def make_parent_death_hook() -> Callable[[], None] | None:
    """Return a function by which a child process asks for SIGTERM at its parent's death; None outside Linux."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def request_signal() -> None:
        libc.prctl(SET_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))

    return request_signal


def find_reason(log: Path, code: int | None) -> str:
    """Return the last message of `viaduct train` in a log; without one, the exit code and the last line."""
    text = ""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    if messages := MESSAGE.findall(text):
        return str(messages[-1]).strip().rstrip(".")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    end = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return f"{end}: {lines[-1]}" if lines else end


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def divide_machine(device: str, parallel: int) -> tuple[list[dict[str, str]], str]:
    """Return the environment variables of each slot, and a line of progress about the cores or cards of the slots."""
    if parallel == 1:
        return [{}], ""
    kind = find_kind(device)
    if kind == "cpu":
        cores = count_cores()
        share = max(1, cores // parallel)
        note = f"{parallel} trials at a time, {share} of {cores} cores each."
        return [{"OMP_NUM_THREADS": str(share)}] * parallel, note
    if ":" in device:
        return [{}] * parallel, f"{parallel} trials at a time, all on {device}."
    cards = list_visible_cards(kind)
    chosen = [cards[slot % len(cards)] for slot in range(parallel)]
    shared = f"; {parallel} trials share {len(cards)} cards" if parallel > len(cards) else ""
    note = f"{parallel} trials at a time, on cards {', '.join(chosen)}{shared}."
    return [{VISIBLE_VARIABLES[kind]: card} for card in chosen], note


def find_kind(device: str) -> str:
    """Return the kind of a device such as `cuda:1`; for `auto`, the kind that training on this machine would use."""
    from viaduct import devices

    if device != "auto":
        return device.partition(":")[0]
    return str(devices.pick("auto")[0].NAME)


def list_visible_cards(kind: str) -> list[str]:
    """Return the cards that this process may use: those in its environment variable, else all by number."""
    from viaduct import devices
    from viaduct.devices.base import check_index

    device = devices.get(kind)
    check_index(device.NAME, 0, device.count_cards(), device.find_problem())
    names = [card.strip() for card in os.environ.get(VISIBLE_VARIABLES[kind], "").split(",") if card.strip()]
    return names or [str(number) for number in range(device.count_cards())]
