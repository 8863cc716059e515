"""The process that runs the user's script, started by `process.py`.

This process installs the stand-in, runs the script as Python itself would, and describes the script's end in
ended/PID.json of the record folder. The exit code is the script's; it is 1 if the limit on time or memory has stopped
the script, or watching them has failed (`bounds.py`), and 2 if viaduct could not run the script.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from viaduct.errors import ViaductError
from viaduct.rehearsal import guard, provenance, renaming, terminal
from viaduct.rehearsal import plan as plans
from viaduct.rehearsal.bounds import Bounds, iterate_processes
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.progress import Progress
from viaduct.rehearsal.stage import StepCounter, install_stage
from viaduct.scripts.runner import ScriptResult, import_packages, load_file, load_module, run_script


def main() -> int:
    """Run the script of the current plan; return its exit code."""
    plan = plans.current_plan()
    if plan is None:
        print(f"{plans.PLAN_VARIABLE} is not set: this process is started by `viaduct rehearse`.", file=sys.stderr)
        return 2
    bounds = Bounds(plan.timeout, plan.memory)
    try:
        script = load_file(Path(plan.main_file), guard.redirect_arguments_to_mirror(plan))
        provenance.install(plan)  # in a comparison of two source trees: records the files that are executed
        script = provenance.compile_recorded(script)
        counter = install_stage(plan, started_by_viaduct=True)
        guard.install(plan)  # in a mirror of the user's folders: protects the originals
        renaming.install(plan)  # in an overlay over the user's folders: lets folders be renamed
        terminal.install()  # gives a size of 80 by 24 where stdout is no terminal
        install_progress(plan, bounds, counter)
        bounds.start()
        result = run_module(plan) if plan.module else run_script(script)
        bounds.close()
        counter.finish(ran_to_end=not (result.code or result.stopped or bounds.stopped_by))
        write_note(plan, result, bounds, counter)
    except ViaductError as error:
        print(f"viaduct rehearse: {error}", file=sys.stderr)
        return error.exit_code
    if bounds.stopped_by:
        terminate_children()
    return 1 if bounds.stopped_by else result.code


def run_module(plan: Plan) -> ScriptResult:
    """Run a module as `python -m` does: import its packages first, here on the stand-in."""
    failed = import_packages(plan.module)
    return failed or run_script(
        provenance.compile_recorded(load_module(plan.module, guard.redirect_arguments_to_mirror(plan)))
    )


def install_progress(plan: Plan, bounds: Bounds, counter: StepCounter) -> None:
    """Let the thread of `bounds` write this process's progress at each poll, and a note if it ends the process."""
    progress = Progress(plan.record_folder, "alive")
    bounds.stop_requested_at = lambda: counter.stop_requested_at
    bounds.on_poll = lambda: progress.note(
        rank=plans.current_rank(), steps=counter.step_count, seconds=bounds.seconds, peak_bytes=bounds.peak
    )

    def write_last_note() -> None:
        if bounds.stopped_by:
            write_note(plan, ScriptResult(code=1, failure=bounds.failure), bounds, counter)
        else:  # the script has taken its steps, and does not end
            write_note(plan, ScriptResult(code=0, stopped=True), bounds, counter)
            counter.write_observations()

    bounds.on_exit = write_last_note


def write_note(plan: Plan, result: ScriptResult, bounds: Bounds, counter: StepCounter) -> None:
    """Describe the end of this process in ended/PID.json of the record folder."""
    folder = Path(plan.record_folder) / "ended"
    folder.mkdir(exist_ok=True)
    note = {
        "rank": plans.current_rank(),
        "code": result.code,
        "stopped": (result.stopped or counter.stop_requested_at is not None) and not bounds.stopped_by,
        "bound": bounds.stopped_by,
        "failure": result.failure,
        "steps": counter.step_count,
        "seconds": bounds.seconds,
        "peak_bytes": bounds.peak,
    }
    (folder / f"{os.getpid()}.json").write_text(json.dumps(note))


def terminate_children() -> None:
    """Terminate the processes that the script started; otherwise this process would wait for them at its end."""
    for process in multiprocessing.active_children():
        process.terminate()
    for pid in list(iterate_processes(os.getpid()))[1:]:  # without this process
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
