"""Run a script under the profiler in a process of its own, or in several as ranks, and gather what was collected.

    run = run_script_job(job, ranks=1, stdout=None, tell=print)
    run.code, run.reason, run.ranks

Every step is in a file as soon as it ends, so that steps taken before a crash of the script are kept.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import viaduct
from viaduct.profiling.gather import RankProfile, ScriptEnd, find_first_end, gather_ranks, has_all_profiles
from viaduct.profiling.script_job import JOB_VARIABLE, PYTHON_VARIABLE, ScriptJob
from viaduct.signals import forward_signals, name_signal

HOOK = Path(__file__).parents[1] / "scripts" / "hook"
ROOT = Path(viaduct.__file__).parents[1]
# `-c` and `-m` both put the current folder first in sys.path. Here that entry is replaced by the folder of the viaduct
# that this process runs, and removed once viaduct is imported.
CHILD_CODE = (
    "import sys; sys.path[:1] = [{root!r}]; import viaduct; sys.path[:1] = []; "
    "from viaduct.profiling.child import main; sys.exit(main())"
)
POLL_S = 0.25
GRACE_S = 15.0  # time for the script to end after its last step, or after a signal; then it is killed
VIADUCT_VARIABLES = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "GOMP_SPINCOUNT": "1000"}
"""Variables that viaduct sets for itself (cli.py) and does not pass on to the script."""


@dataclass(frozen=True)
class ScriptRun:
    """How a profiled script ended, and what its processes left."""

    code: int  # exit code for `viaduct profile`; 0 if the script was ended after its steps
    reason: str  # why it ended before all steps were taken; empty if they were
    ranks: list[RankProfile]
    interrupted: int = 0  # number of the signal that asked viaduct to stop; 0 without one


def run_script_job(job: ScriptJob, ranks: int, stdout: int | None, tell: Callable[[str], None]) -> ScriptRun:
    """Run the script to its end, or until it has taken its steps."""
    path = job.save()
    command = [sys.executable, "-c", CHILD_CODE.format(root=str(ROOT))]
    variables = build_environment(path)
    if ranks > 1:
        failures, interrupted = run_ranks(job, command, variables, ranks, tell)
    else:
        failures, interrupted = run_alone(job, command, variables, stdout)
    gathered = gather_ranks(job)
    end = find_first_end(job, failures)
    return ScriptRun(
        choose_code(end.code, gathered), explain_end(job, end, gathered, interrupted), gathered, interrupted
    )


def build_environment(job: Path) -> dict[str, str]:
    """Return the environment of the script's processes: the user's own, and what lets them take part in the job."""
    users = {name: value for name, value in os.environ.items() if VIADUCT_VARIABLES.get(name) != value}
    paths = [path for path in users.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # torch's profiler warns of memory that was allocated before it began
        **users,
        "PYTHONPATH": os.pathsep.join([str(HOOK), *paths]),
        JOB_VARIABLE: str(job),
        PYTHON_VARIABLE: sys.executable,
    }


def run_alone(
    job: ScriptJob, command: list[str], variables: dict[str, str], stdout: int | None
) -> tuple[dict[int | None, int], int]:
    """Run the script in one process; return its exit code under None, and a signal that viaduct got or 0."""
    process = subprocess.Popen(command, env=variables, stdout=stdout, start_new_session=True)
    with forward_signals(process.pid) as signals:
        try:
            wait_for_end(process, job, signals)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also processes that the script has left behind
            code = process.wait()
    return {None: code}, signals[0] if signals else 0


def wait_for_end(process: subprocess.Popen[Any], job: ScriptJob, signals: list[int]) -> None:
    """Wait for the process; after a signal, or when its steps are taken, `GRACE_S` longer and no more."""
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
            return
        if deadline is None and (signals or has_all_profiles(job)):
            deadline = time.monotonic() + GRACE_S


def run_ranks(
    job: ScriptJob, command: list[str], variables: dict[str, str], ranks: int, tell: Callable[[str], None]
) -> tuple[dict[int | None, int], int]:
    """Start the ranks as `viaduct launch` does; return exit codes of failed ranks, and a signal that viaduct got or 0.

    The rank that most likely caused the failure comes first.
    """
    from viaduct.cluster.launch import choose_loopback_variables, limit_threads, quiet_import

    with quiet_import():
        from viaduct.cluster.agent import run_agent
        from viaduct.cluster.rendezvous import LocalRendezvous

    def add_variables(environment: Mapping[str, str]) -> dict[str, str]:
        return {**limit_threads(ranks), **choose_loopback_variables()}

    with replace_environment(variables):
        outcome = run_agent(
            command,
            ranks,
            LocalRendezvous(uuid.uuid4().hex),
            max_restarts=0,
            log_dir=str(Path(job.record) / "logs"),
            show_all=True,
            get_variables=add_variables,
            report=tell,
        )
    if outcome.signal:
        return {None: -outcome.signal}, 0 if outcome.by_ranks else outcome.signal
    return {failure.rank: failure.exit_code for failure in outcome.failures}, 0


@contextmanager
def replace_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Replace this process's environment within the block: torch's agent passes it on to the ranks."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def choose_code(code: int, ranks: list[RankProfile]) -> int:
    """Return 0 where all steps were taken, else the script's exit code; 2 if it ended well without any step.

    A script that a signal ended has a negative code, for which a shell's 128 + signal is returned.
    """
    if ranks and all(rank.done for rank in ranks):
        return 0
    if code:
        return code if code > 0 else 128 - code
    return 0 if any(rank.taken for rank in ranks) else 2


def explain_end(job: ScriptJob, end: ScriptEnd, ranks: list[RankProfile], interrupted: int = 0) -> str:
    """Return why the script ended before all steps were taken; "" if they were."""
    if ranks and all(rank.done for rank in ranks):
        return ""
    taken = min((rank.taken for rank in ranks), default=0)
    what = describe_code(end.code) + (f" ({end.failure})" if end.failure else "")
    if len(ranks) > 1 and end.rank is not None and end.code:
        what = what.replace("the script", f"rank {end.rank}", 1)
    if end.killed_by:
        what += f" and its process by {name_signal(end.killed_by)}"
    if interrupted:
        what = f"the script was interrupted by {name_signal(interrupted)}"
    if taken:
        return f"{what} after {taken} of {job.plan.total} steps"
    return f"{what}, and no training step was found" + (f": {end.absence}" if end.absence else "")


def describe_code(code: int) -> str:
    """Return what an exit code says; a negative one is a signal, as subprocess has it."""
    if code == 0:
        return "the script ended by itself"
    if code > 0:
        return f"the script ended with exit code {code}"
    return f"the script was ended by {name_signal(-code)}"
