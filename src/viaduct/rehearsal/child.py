"""The process that runs the user's script, started by `process.py`.

It sets the stage, runs the script as Python itself would, and leaves a note of how that went: `RECORD/ended/PID.json`.
The exit code is the script's; 1 where a bound has stopped it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from viaduct.errors import ViaductError
from viaduct.rehearsal import plan as plans
from viaduct.rehearsal.bounds import Bounds, tree
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.stage import Attendance, set_stage
from viaduct.scripts.runner import Ended, load_file, run_script


def main() -> int:
    plan = plans.current()
    if plan is None:
        print(f"{plans.VARIABLE} is not set: this process is started by `viaduct rehearse`.", file=sys.stderr)
        return 2
    bounds = Bounds(plan.timeout, plan.memory)
    try:
        script = load_file(Path(plan.script), plan.arguments)
        attendance = set_stage(plan, ours=True)
        bounds.start()
        began = time.perf_counter()
        ended = run_script(script)
        note(plan, ended, bounds, attendance, time.perf_counter() - began)
    except ViaductError as error:
        print(f"viaduct rehearse: {error}", file=sys.stderr)
        return error.exit_code
    if bounds.met:
        end_others()
    return 1 if bounds.met else ended.code


def note(plan: Plan, ended: Ended, bounds: Bounds, attendance: Attendance, seconds: float) -> None:
    bounds.close()
    attendance.finish(complete=not (ended.code or ended.stopped or bounds.met))
    folder = Path(plan.record) / "ended"
    folder.mkdir(exist_ok=True)
    said = {
        "rank": plans.rank(),
        "code": ended.code,
        "stopped": ended.stopped and not bounds.met,
        "bound": bounds.met,
        "failure": ended.failure,
        "steps": attendance.taken,
        "seconds": round(seconds, 3),
        "peak_bytes": bounds.peak,
    }
    (folder / f"{os.getpid()}.json").write_text(json.dumps(said))


def end_others() -> None:
    """Processes that the script has started would be waited for at this one's end."""
    for process in multiprocessing.active_children():
        process.terminate()
    for pid in list(tree(os.getpid()))[1:]:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
