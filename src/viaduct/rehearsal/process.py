"""Runs a rehearsal: the script in a process of its own, or several ranks of it, in a folder of its own.

One process is started directly; several by torch's elastic agent, as `viaduct launch` does, with a rank table: one
rank that fails ends all. Whatever the script has started is gone when `rehearse` returns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from viaduct.rehearsal.bounds import GRACE_S
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.scene import Scene
from viaduct.rehearsal.summary import Summary, gather
from viaduct.rehearsal.surroundings import ROOT, environment, of_rank, surroundings, write_table

# Not `-m`: that would put the folder where we stand before everything else that can be imported. The first entry is
# that folder here too; it makes way for the viaduct that this process runs, which then makes way for the script's.
CODE = (
    "import sys; sys.path[:1] = [{root!r}]; import viaduct; sys.path[:1] = []; "
    "from viaduct.rehearsal.child import main; sys.exit(main())"
)
IMPORTS_S = 120.0  # beyond the script's own time: setting the stage, and ending
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def rehearse(plan: Plan, scene: Scene | None, tell: Callable[[str], None]) -> Summary:
    """Run it to its end; without a scene it runs in `plan.work` as that is."""
    Path(plan.record).mkdir(parents=True, exist_ok=True)
    if scene is not None:
        scene.set_up()
        tell_links(scene, tell)
    plan.save()
    if plan.processes > 1 and plan.on == "npu":
        write_table(plan)
    command = [plan.python, "-c", CODE.format(root=str(ROOT))]
    code = run_ranks(plan, command, tell) if plan.processes > 1 else run_alone(plan, command)
    wrote = scene.clear() if scene is not None else []
    return gather(plan, code, wrote)


def tell_links(scene: Scene, tell: Callable[[str], None]) -> None:
    if scene.linked:
        more = "" if len(scene.linked) < 4 else f" and {len(scene.linked) - 3} more"
        listed = ", ".join(scene.linked[:3]) + more
        tell(f"links to your own folders: {listed}; what the script writes into them is written there.")


def run_alone(plan: Plan, command: list[str]) -> int:
    process = subprocess.Popen(
        command, env=surroundings(plan), cwd=plan.work, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        with forwarded(process):
            code = process.wait(plan.timeout + GRACE_S + IMPORTS_S if plan.timeout else None)
    except subprocess.TimeoutExpired:
        print("viaduct rehearse: the process does not answer and is killed.", file=sys.stderr, flush=True)
        code = 1
    finally:
        end_group(process.pid)
        process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def forwarded(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Ctrl-C and its like reach the script, which may clean up; we wait for it."""

    def forward(number: int, frame: Any) -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_group(pid: int) -> None:
    """The script's process and what it has left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def run_ranks(plan: Plan, command: list[str], tell: Callable[[str], None]) -> int:
    from viaduct.cluster.launch import quiet_import, threads

    with quiet_import():
        from viaduct.cluster.agent import conduct, one_machine

    def own(given: Mapping[str, str]) -> dict[str, str]:
        return {**threads(plan.ranks), **of_rank(plan, given)}

    logs = Path(plan.record) / "ranks"
    here = os.getcwd()
    with environment(surroundings(plan)):
        os.chdir(plan.work)
        try:
            outcome = conduct(
                command,
                plan.ranks,
                one_machine(uuid.uuid4().hex),
                max_restarts=0,
                log_dir=str(logs),
                show_all=True,
                own=own,
                tell=tell,
            )
        finally:
            os.chdir(here)
    if outcome.signal:
        return 128 + outcome.signal
    if not outcome.failures:
        return 0
    first = outcome.failures[0]
    tell(f"rank {first.rank} ended with {first.exit_code}; the others are ended.")
    return first.exit_code if first.exit_code >= 0 else 128 - first.exit_code
