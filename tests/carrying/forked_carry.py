"""`viaduct carry` whose runs are forks of a process that has imported torch already: a run takes 0.3 s instead of 3 s.

The start of Python processes and torch's elastic agent are not tested this way; other tests of this folder use them.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from forked_viaduct import run_viaduct_main, start_command
from viaduct.rehearsal.overlay import OVERLAY_VARIABLE


def carry_with_forks(
    cwd: Path, *words: str | Path, recorded: Path | None = None, framework: str = "torch", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `viaduct carry` with these arguments and return its result. `recorded`: see `run_carry_with_forks`."""
    full_command = ["carry", *map(str, words)]
    with start_command(run_carry_with_forks, full_command, cwd, environment, recorded, framework) as command:
        output, stderr = command.communicate()
        assert command.returncode is not None
        return subprocess.CompletedProcess(["viaduct", *full_command], command.returncode, output, stderr)


def run_carry_with_forks(
    words: list[str], cwd: Path, environment: Mapping[str, str], recorded: Path | None, framework: str
) -> None:
    """Run `viaduct` in this process, with forks in place of new Python processes.

    With the folder `recorded`, the records of the original's runs are stored there, and reused by the next command that
    counts the same lines. The caller uses one folder for each original and its flags. No page is written then.
    """
    importlib.import_module(framework)  # once for all runs
    environment = {**environment, OVERLAY_VARIABLE: "off"}  # a fork cannot enter an overlay
    replace_processes_by_forks()
    if recorded is not None:
        page: Any = importlib.import_module("viaduct.carrying.report")
        page.write = lambda result, path: None
        reuse_recorded_runs(recorded)
    run_viaduct_main(words, cwd, environment)


def reuse_recorded_runs(recorded: Path) -> None:
    """Replace `rehearse` by a function that copies the record of an earlier run of the original, if there is one."""
    from viaduct.carrying import running
    from viaduct.rehearsal import process
    from viaduct.rehearsal.summary import load_summary

    plain = process.rehearse

    def rehearse(plan: Any, report: Callable[[str], None]) -> Any:
        if plan.platform != "original" or plan.replaced_source_tree:
            return plain(plan, report)
        counted = Path(plan.record_folder) / "edits.json"  # absent in the second run
        key = hashlib.sha256(counted.read_bytes() if counted.exists() else b"").hexdigest()
        kept = recorded / f"{'shaken' if plan.perturb else 'plain'}-{key}"
        if not kept.exists():
            plain(plan, report)
            made = Path(tempfile.mkdtemp(dir=recorded)) / "record"
            shutil.copytree(plan.record_folder, made)
            with suppress(OSError):  # another command was quicker
                made.rename(kept)
        else:
            shutil.copytree(kept, plan.record_folder, dirs_exist_ok=True)
        return load_summary(plan.record_folder)

    for module in (running, process):
        replaced: Any = module
        replaced.rehearse = rehearse


def replace_processes_by_forks() -> None:
    from viaduct.carrying import repetition
    from viaduct.rehearsal import process

    replaced: Any = process
    replaced.run_alone = run_alone
    replaced.run_ranks = run_ranks
    second: Any = repetition
    second.can_run_beside = lambda plan: False
    second.SecondRun.finish = finish


def run_alone(plan: Any, command: list[str]) -> Any:
    from viaduct.rehearsal.environment import make_environment
    from viaduct.rehearsal.process import kill_group
    from viaduct.rehearsal.summary import ProcessEnd

    pid = fork_child(plan, make_environment(plan))
    _, status = os.waitpid(pid, 0)
    kill_group(pid)
    code = os.waitstatus_to_exitcode(status)
    return ProcessEnd(code if code >= 0 else 128 - code)


def run_ranks(plan: Any, command: list[str], report: Callable[[str], None]) -> Any:
    """Start the ranks as forks with torchrun's variables; kill all after the first failure."""
    from viaduct.cluster.launch import limit_threads
    from viaduct.rehearsal.environment import make_environment, make_rank_variables
    from viaduct.rehearsal.process import kill_group
    from viaduct.rehearsal.summary import ProcessEnd

    port = find_free_port()
    pids = []
    for rank in range(plan.ranks):
        given = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": plan.ranks, "LOCAL_WORLD_SIZE": plan.ranks}
        given |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables = {**make_environment(plan), **{name: str(value) for name, value in given.items()}}
        pids.append(
            fork_child(plan, {**variables, **limit_threads(plan.ranks), **make_rank_variables(plan, variables)})
        )
    failed: tuple[int, int] | None = None
    for _ in pids:
        pid, status = os.waitpid(-1, 0)
        code = os.waitstatus_to_exitcode(status)
        if code and failed is None:
            failed = pids.index(pid), code if code >= 0 else 128 - code
            for other in pids:
                kill_group(other)
    return ProcessEnd(0) if failed is None else ProcessEnd(failed[1], rank=failed[0])


def find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def fork_child(plan: Any, environment: Mapping[str, str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        run_child(plan, environment)
    return pid


def run_child(plan: Any, environment: Mapping[str, str]) -> NoReturn:
    """Run `viaduct.rehearsal.child` in this process, a fork, and end it."""
    code = 1
    try:
        os.setsid()
        atexit._clear()
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(plan.visible_start_folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        paths = environment["PYTHONPATH"].split(os.pathsep)
        sys.path[:] = [*paths, *(path for path in sys.path if path)]
        from viaduct.rehearsal.child import main
        from viaduct.terminal import stop_escaping_output

        stop_escaping_output()
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(second: Any) -> Any:
    """Replace SecondRun.finish: run the second run as a fork."""
    from viaduct.carrying.executed_files import read_executed_files
    from viaduct.carrying.observations import read_observations
    from viaduct.carrying.output_capture import capture_output
    from viaduct.carrying.running import OUTPUT_FILE, Run
    from viaduct.rehearsal.process import rehearse

    plan = second.plan
    Path(plan.record_folder).mkdir(parents=True)
    with capture_output(Path(plan.record_folder) / OUTPUT_FILE, "again"):
        summary = rehearse(plan, lambda line: None)
    return Run(second.side, plan, summary, read_observations(plan), read_executed_files(plan))
