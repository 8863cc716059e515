"""Runs a rehearsal: the script, or several ranks of it, in separate processes.

One process is started directly. Several are started by torch's elastic agent, as `viaduct launch` does; on the NPU they
get a rank table, the vendor's list of the job's devices. A rank that fails ends all ranks. If one process is started,
the processes that it leaves in its process group are killed before `rehearse` returns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from viaduct.rehearsal.bounds import GRACE_S, iterate_processes
from viaduct.rehearsal.environment import make_environment, make_rank_variables, write_rank_table
from viaduct.rehearsal.files import open_file_view
from viaduct.rehearsal.plan import PLAN_FILE, PLAN_VARIABLE, Plan
from viaduct.rehearsal.progress import read_last_activity
from viaduct.rehearsal.summary import ProcessEnd, Summary, describe_end, make_summary
from viaduct.rehearsal.terminal import open_terminal
from viaduct.scripts.child_process import make_child_command
from viaduct.signals import forward_signals

POLL_S = 0.5  # between two checks for the process's end and for signals
IMPORTS_S = 120.0  # allowed beyond the script's time limit and GRACE_S, to install the stand-in and to end
MAX_CHANGED_SHOWN = 5  # paths of changed files that are printed


def rehearse(plan: Plan, report: Callable[[str], None]) -> Summary:
    """Run a rehearsal to its end, save its summary and return it; `report` prints a note to the user."""
    Path(plan.record_folder).mkdir(parents=True, exist_ok=True)
    plan.save()
    if plan.processes_to_start > 1 and plan.platform == "npu":
        write_rank_table(plan)
    view = open_file_view(plan)
    try:
        command = view.wrap_command(make_child_command(plan.python, "viaduct.rehearsal.child"))
        end = run_ranks(plan, command, report) if plan.processes_to_start > 1 else run_alone(plan, command)
    finally:
        written_files, changed = view.close()
    for path in changed[:MAX_CHANGED_SHOWN]:
        report(f"ATTENTION: your own {path} was changed while the script ran; it is reached through a link.")
    if len(changed) > MAX_CHANGED_SHOWN:
        report(f"ATTENTION: so were {len(changed) - MAX_CHANGED_SHOWN} more; summary.json names them.")
    return make_summary(plan, end, written_files, changed)


def run_alone(plan: Plan, command: list[str]) -> ProcessEnd:
    """Run the script in one process; an end by signal N becomes exit code 128 + N, as in a shell."""
    stopped_by_limit = ""  # "time" if the process was killed because it exceeded its time limit
    with open_terminal() as stdin:
        environment = make_environment(plan)
        process = subprocess.Popen(
            command, env=environment, cwd=plan.visible_start_folder, stdin=stdin, start_new_session=True
        )
        try:
            with forward_signals(process.pid) as signals:
                code = wait_for_exit(process, plan.timeout + GRACE_S + IMPORTS_S if plan.timeout else None, signals)
        except subprocess.TimeoutExpired:
            print("viaduct rehearse: the process does not answer and is killed.", file=sys.stderr, flush=True)
            code = 128 + signals[0] if signals else 1
            stopped_by_limit = "" if signals else "time"
        finally:
            kill_group(process.pid)
            process.wait()
    return ProcessEnd(
        code if code >= 0 else 128 - code,
        interrupting_signal=signals[0] if signals else 0,
        stopped_by_limit=stopped_by_limit,
    )


def wait_for_exit(process: subprocess.Popen[Any], limit: float | None, signals: list[int]) -> int:
    """Return a process's exit code; raise TimeoutExpired after `limit` seconds.

    After the first signal is added to `signals`, the process has at most `GRACE_S` left.
    """
    end = time.monotonic() + limit if limit is not None else None
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(POLL_S)
        if signals and (end is None or end > time.monotonic() + GRACE_S):
            end = time.monotonic() + GRACE_S
            limit = GRACE_S
        if end is not None and time.monotonic() > end:
            raise subprocess.TimeoutExpired(process.args, limit or 0.0)


def kill_group(pid: int) -> None:
    """Kill the remaining processes of the group whose leader is `pid`; the leader may have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def run_ranks(plan: Plan, command: list[str], report: Callable[[str], None]) -> ProcessEnd:
    """Run the script in one process for each rank, started by torch's elastic agent."""
    from viaduct.cluster.launch import limit_threads, quiet_import, replace_environment

    with quiet_import():
        from viaduct.cluster.agent import run_agent
        from viaduct.cluster.rendezvous import LocalRendezvous

    logs = Path(plan.record_folder) / "ranks"
    folder_before = os.getcwd()
    with replace_environment(make_environment(plan)), RankTimeout(plan) as timeout:
        os.chdir(plan.visible_start_folder)
        try:
            outcome = run_agent(
                command,
                plan.ranks,
                LocalRendezvous(uuid.uuid4().hex),
                max_restarts=0,
                log_dir=str(logs),
                show_all=True,
                get_variables=lambda torchrun: {**limit_threads(plan.ranks), **make_rank_variables(plan, torchrun)},
                report=report,
            )
        finally:
            os.chdir(folder_before)
    if outcome.signal:
        return ProcessEnd(128 + outcome.signal, interrupting_signal=0 if outcome.rank_was_signalled else outcome.signal)
    if not outcome.failures:
        return ProcessEnd(0)
    # torch polls its ranks ten times a second, and may see several ends at once. The rank whose progress file was
    # written longest ago is taken for the first that failed.
    activity = read_last_activity(Path(plan.record_folder))
    failed = min(outcome.failures, key=lambda failure: activity.get(failure.rank, 0.0))
    code = failed.exit_code if failed.exit_code >= 0 else 128 - failed.exit_code
    report(f"rank {failed.rank} {describe_end(code)}; the others are ended.")
    return ProcessEnd(code, rank=failed.rank, stopped_by_limit=timeout.stopped_by_limit)


class RankTimeout:
    """Kills ranks that exceed their time limit and do not end by themselves; `stopped_by_limit` is then "time"."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.stopped_by_limit = plan, ""
        limit = plan.timeout + GRACE_S + IMPORTS_S if plan.timeout else threading.TIMEOUT_MAX
        self._timer = threading.Timer(limit, self.kill)
        self._timer.daemon = True

    def __enter__(self) -> RankTimeout:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def kill(self) -> None:
        self.stopped_by_limit = "time"
        print("viaduct rehearse: the ranks do not answer and are killed.", file=sys.stderr, flush=True)
        for pid in self.find_processes():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def find_processes(self) -> list[int]:
        """Return the descendants of this process whose environment names this rehearsal's plan."""
        mark = f"{PLAN_VARIABLE}={Path(self.plan.record_folder) / PLAN_FILE}".encode()
        pids = []
        for pid in [*iterate_processes(os.getpid())][1:]:
            with suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    pids.append(pid)
        return pids
