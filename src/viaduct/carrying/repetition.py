"""The second run of each side. If it differs from the first by more than rounding, the script is not deterministic.

Nothing is proved of such a script. The second run is a separate process. It runs beside the first if the machine has
two cores, there is one rank, the sources show no sign of network use (`NETWORK_USE`), and no argument is an absolute
path. Otherwise it runs after the first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from viaduct.carrying.agreement import ValuePair, make_training_key, pair_observations
from viaduct.carrying.drift import find_first_differing_module
from viaduct.carrying.executed_files import read_executed_files
from viaduct.carrying.observations import read_observations
from viaduct.carrying.running import OUTPUT_FILE, Run
from viaduct.carrying.sides import Side
from viaduct.cores import count_cores
from viaduct.rehearsal import plan as plans
from viaduct.rehearsal import project
from viaduct.rehearsal.bounds import GRACE_S
from viaduct.rehearsal.files import set_record_folder, split_arguments
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.process import rehearse
from viaduct.rehearsal.summary import Summary, load_summary
from viaduct.scripts.child_process import make_child_command

ROUNDING_TOLERANCE = 1e-5  # relative; if the first value that differs is off by less, the reason is rounding
NETWORK_USE = ("init_process_group", "MASTER_PORT", "tcp://", "socket")  # such runs may need the same port


@dataclass(frozen=True)
class Repetition:
    """The second run of one side, and the pairs of both runs' values; no pairs if it failed."""

    second_run: Run
    pairs: list[ValuePair]

    @property
    def is_equal(self) -> bool:
        """Return True if the second run finished with the same values."""
        return self.second_run.is_finished and bool(self.pairs) and all(pair.same for pair in self.pairs)

    @property
    def is_deterministic(self) -> bool:
        """Return True if the runs are equal, or if the first value that differs is off by rounding only.

        Threads that add in no fixed order cause such a difference. The tolerance is fixed: a perturbed run, by which
        agreement.py measures it, would be as random.
        """
        first = self.first_unequal
        return self.is_equal or (first is not None and not first.why and first.error <= ROUNDING_TOLERANCE)

    @property
    def first_unequal(self) -> ValuePair | None:
        """Return the first pair in training order that is not exactly equal; of several at once the first recorded."""
        return min((pair for pair in self.pairs if not pair.same), key=make_training_key, default=None)


class SecondRun:
    """A second run with the same plan.

    As a context manager it starts before the block if it can run beside the first, and is stopped if the block raises.
    """

    def __init__(self, side: Side, plan: Plan) -> None:
        record = Path(plan.record_folder).with_name(f"{side}_again")
        self.side, self.plan = side, set_record_folder(plan, record)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        Path(self.plan.record_folder).mkdir(parents=True)
        self.plan.save()
        with open(Path(self.plan.record_folder) / OUTPUT_FILE, "wb") as output:
            command = make_child_command(sys.executable, __name__, self.plan.record_folder)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def finish(self) -> Run | None:
        """Wait for the end of the run, after starting it if necessary; return None if it left no summary."""
        if self._process is None:
            self.start()
        assert self._process is not None
        self._process.wait()
        summary = load_summary(self.plan.record_folder)
        if summary is None:
            return None
        return Run(self.side, self.plan, summary, read_observations(self.plan), read_executed_files(self.plan))

    def stop(self) -> None:
        """End the run with all its processes."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()  # it ends the script's processes, too
        try:
            process.wait(GRACE_S + 5)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> SecondRun:
        if can_run_beside(self.plan):
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.stop()


def can_run_beside(plan: Plan) -> bool:
    """Return True if a second run can share the machine and the files with the first."""
    if plan.ranks > 1 or count_cores() < 2:
        return False
    if any(map(os.path.isabs, split_arguments(plan.arguments))):  # both runs may write there
        return False
    sources = (source.path.read_bytes() for source in project.read_project(Path(plan.script)).sources)
    return not any(sign.encode() in source for source in sources for sign in NETWORK_USE)


def main(record: str) -> int:
    """Run the plan in the folder `record`: the main function of a second run's process. Return the exit code."""
    plan = plans.load_plan(Path(record) / plans.PLAN_FILE)
    summary: Summary = rehearse(plan, lambda line: print(f"viaduct carry: {line}", flush=True))
    return 128 + summary.interrupting_signal if summary.interrupting_signal else 0


def compare_runs(first: Run, again: Run) -> Repetition:
    return Repetition(again, pair_observations(first.observations, again.observations) if again.is_finished else [])


def find_second_run(repetitions: Mapping[Side, Repetition], side: Side) -> Run | None:
    repetition = repetitions.get(side)
    return None if repetition is None else repetition.second_run


def describe_place(first: Run, again: Run, pair: ValuePair) -> str:
    """Describe `pair`, which differs between two runs of a side, with the first module whose tensors differ."""
    rank = f" of rank {pair.rank}" if pair.rank else ""
    name = pair.name if pair.kind == "loss" else f"{pair.kind} of {pair.name}"
    module = find_first_differing_module(again.plan.record_folder, first.plan.record_folder)
    return f"{name}{rank}; first in {module}" if module else f"{name}{rank}"
