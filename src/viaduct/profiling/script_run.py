"""Run a script under the profiler in a separate process, or in several as ranks, and gather the profiles.

    run = run_script_job(job, ranks=1, stdout=None, notify=print)
    run.code, run.reason, run.ranks

The times of every step are written to a file soon after its end, so a crash of the script does not lose them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viaduct.profiling.gather import RankProfile, ScriptEnd, find_first_end, gather_ranks, has_all_profiles
from viaduct.profiling.script_job import JOB_VARIABLE, PYTHON_VARIABLE, ScriptJob
from viaduct.scripts.child_process import HOOK_FOLDER, make_child_command
from viaduct.signals import forward_signals, name_signal

POLL_S = 0.25  # interval between checks of the script's process
GRACE_S = 15.0  # after the last step or a signal, the script has this time to end before it is killed
VIADUCT_VARIABLES = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "GOMP_SPINCOUNT": "1000"}
"""Variables that viaduct sets for itself (cli.py) and removes from the script's environment."""


@dataclass(frozen=True)
class ScriptRun:
    """Result of a profiled script."""

    code: int  # exit code for `viaduct profile`, from `choose_code`
    reason: str  # why the script ended before all steps were taken; "" if all were taken
    ranks: list[RankProfile]
    stop_signal: int = 0  # number of the signal that ended viaduct itself, such as SIGINT; 0 without one


def run_script_job(job: ScriptJob, ranks: int, stdout: int | None, notify: Callable[[str], None]) -> ScriptRun:
    """Run the script until it ends or has taken all steps."""
    path = job.save()
    command = make_child_command(sys.executable, "viaduct.profiling.child")
    variables = build_environment(path)
    if ranks > 1:
        failures, stop_signal = run_ranks(job, command, variables, ranks, notify)
    else:
        failures, stop_signal = run_alone(job, command, variables, stdout)
    gathered = gather_ranks(job)
    end = find_first_end(job, failures)
    return ScriptRun(
        choose_code(end.code, gathered), explain_end(job, end, gathered, stop_signal), gathered, stop_signal
    )


def build_environment(job: Path) -> dict[str, str]:
    """Return the environment of the script's processes: the user's, and the variables of the job."""
    user_variables = {name: value for name, value in os.environ.items() if VIADUCT_VARIABLES.get(name) != value}
    paths = [path for path in user_variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # torch's profiler warns about memory allocated before it started
        **user_variables,
        "PYTHONPATH": os.pathsep.join([str(HOOK_FOLDER), *paths]),
        JOB_VARIABLE: str(job),
        PYTHON_VARIABLE: sys.executable,
    }


def run_alone(
    job: ScriptJob, command: list[str], variables: dict[str, str], stdout: int | None
) -> tuple[dict[int | None, int], int]:
    """Run the script in one process; return {None: exit code}, and the number of the signal that viaduct got, or 0."""
    process = subprocess.Popen(command, env=variables, stdout=stdout, start_new_session=True)
    with forward_signals(process.pid) as signals:
        try:
            wait_for_end(process, job, signals)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # including processes left by the script
            code = process.wait()
    return {None: code}, signals[0] if signals else 0


def wait_for_end(process: subprocess.Popen[Any], job: ScriptJob, signals: list[int]) -> None:
    """Wait for the process, but at most GRACE_S after a signal or the last step."""
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
            return
        if deadline is None and (signals or has_all_profiles(job)):
            deadline = time.monotonic() + GRACE_S


def run_ranks(
    job: ScriptJob, command: list[str], variables: dict[str, str], ranks: int, notify: Callable[[str], None]
) -> tuple[dict[int | None, int], int]:
    """Start the ranks as `viaduct launch` does; return {rank: exit code} of failed ranks, and viaduct's signal or 0.

    The rank that most likely caused the failure comes first. After a signal, the result is {None: -signal}.
    """
    from viaduct.cluster.launch import choose_loopback_variables, limit_threads, quiet_import, replace_environment

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
            log_dir=str(Path(job.record_folder) / "logs"),
            show_all=True,
            get_variables=add_variables,
            report=notify,
        )
    if outcome.signal:  # it was sent to viaduct or, with `rank_was_signalled`, to a rank
        return {None: -outcome.signal}, 0 if outcome.rank_was_signalled else outcome.signal
    return {failure.rank: failure.exit_code for failure in outcome.failures}, 0


def choose_code(code: int, ranks: list[RankProfile]) -> int:
    """Return 0 if all steps were taken, else the script's exit code; 2 if that is 0 and no step was taken.

    The negative code of a script killed by a signal becomes 128 + signal, as in a shell.
    """
    if ranks and all(rank.done for rank in ranks):
        return 0
    if code:
        return code if code > 0 else 128 - code
    return 0 if any(rank.step_count for rank in ranks) else 2


def explain_end(job: ScriptJob, end: ScriptEnd, ranks: list[RankProfile], stop_signal: int = 0) -> str:
    """Return the reason if the script ended before all steps were taken, else ""."""
    if ranks and all(rank.done for rank in ranks):
        return ""
    steps_taken = min((rank.step_count for rank in ranks), default=0)
    is_one_of_several = len(ranks) > 1 and end.rank is not None and end.code
    outcome = describe_code(end.code, f"rank {end.rank}" if is_one_of_several else "the script")
    if end.failure:
        outcome += f" ({end.failure})"
    if end.killed_by:
        outcome += f" and its process by {name_signal(end.killed_by)}"
    if stop_signal:
        outcome = f"the script was interrupted by {name_signal(stop_signal)}"
    if steps_taken:
        return f"{outcome} after {steps_taken} of {job.plan.total} steps"
    return f"{outcome}, and no training step was found" + (f": {end.missing_steps}" if end.missing_steps else "")


def describe_code(code: int, subject: str) -> str:
    """Describe the end of a script or rank by its exit code; a negative one is a signal, as in subprocess."""
    if code == 0:
        return f"{subject} ended by itself"
    if code > 0:
        return f"{subject} ended with exit code {code}"
    return f"{subject} was ended by {name_signal(-code)}"
