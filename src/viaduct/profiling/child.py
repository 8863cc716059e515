"""Main function of the process that runs the profiled script; `script_run.py` starts it.

The script runs as Python itself would run it. Its end is recorded in ended.json; the process exits with its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

from viaduct.errors import ViaductError
from viaduct.profiling.script_job import ENDED_FILE, JOB_VARIABLE, ScriptJob, load_job
from viaduct.profiling.session import Session
from viaduct.profiling.worker import start_session_in_forks
from viaduct.scripts.runner import ScriptResult, StopScript, import_packages, load_script, run_script


def main() -> int:
    job = load_job()
    if job is None:
        print(f"{JOB_VARIABLE} is not set: this process is started by `viaduct profile run`.", file=sys.stderr)
        return 2
    if os.getppid() == 1 and job.launcher != 1:  # the launcher has ended; in a container it may itself be process 1
        return 2
    try:
        return run(job)
    except ViaductError as error:
        print(f"viaduct profile run: {error}", file=sys.stderr)
        return error.exit_code


def run(job: ScriptJob) -> int:
    """Run the script in a session, write profile and ended.json, and return the exit code."""
    signal.signal(signal.SIGTERM, end_script)
    session = Session(job, stop_script)
    start_session_in_forks(job, session)  # a forked process may be a rank
    with session:
        failed_import = import_packages(job.target) if job.is_module else None
        ended = failed_import or run_script(load_script(job.target, job.arguments, job.is_module))
    session.finish()
    write_end(session, ended)
    return ended.code


def stop_script() -> NoReturn:
    raise StopScript


def end_script(signal_number: int, frame: Any) -> NoReturn:
    """End the script on SIGTERM as `sys.exit` does, so that the collected profile is written."""
    raise SystemExit(128 + signal_number)


def write_end(session: Session, ended: ScriptResult) -> None:
    """Write ended.json, with fields of `gather.ScriptEnd`."""
    record = {
        "code": ended.code,
        "rank": session.collector.rank,
        "failure": ended.failure,
        "missing_steps": "" if session.collector.ended_steps else session.phases.explain_missing_steps(),
        "time_s": time.time(),
    }
    (session.open_folder() / ENDED_FILE).write_text(json.dumps(record), encoding="utf-8")
