"""Profiling of processes that the profiled script starts itself: mp.spawn, torchrun, a forked rank.

`scripts/hook/sitecustomize.py` calls `join` at the start of each Python process. A process is profiled from its first
import of torch on. Each process that trains writes its own folder (script_job.py).
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from multiprocessing import util
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from viaduct.profiling.script_job import ScriptJob
    from viaduct.profiling.session import Session

CHILD = "viaduct.profiling.child"


def join() -> None:
    """Profile this process from its import of torch on, if it belongs to a profiled script.

    The script's first process, which runs child.py, starts its session itself.
    """
    from viaduct.profiling.script_job import load_job

    job = load_job()
    if job is not None and not any(CHILD in argument for argument in sys.orig_argv):
        sys.meta_path.insert(0, TorchFinder(job))


class TorchFinder(importlib.abc.MetaPathFinder):
    """Starts a session after the first import of torch."""

    def __init__(self, job: ScriptJob) -> None:
        self._job = job

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            self._start_session_after(spec.loader)
        return spec

    def _start_session_after(self, loader: Any) -> None:
        """Replace the `exec_module` of torch's loader, for one call, by a function that then starts a session."""
        load = loader.exec_module

        def load_and_start(module: ModuleType) -> None:
            del loader.exec_module
            load(module)
            start_session(self._job)

        loader.exec_module = load_and_start


def start_session(job: ScriptJob) -> None:
    """Profile the training in this process until it ends, or until all steps are taken."""
    from viaduct.profiling.session import Session

    session = Session(job, end_worker)
    session.__enter__()  # until the process ends
    finish_at_exit(session)
    start_session_in_forks(job, session)


def finish_at_exit(session: Session) -> None:
    """Write the profile at the end of the process, also of a process of multiprocessing, which does not run atexit."""
    atexit.register(session.finish)
    util.Finalize(None, session.finish, exitpriority=100)


def start_session_in_forks(job: ScriptJob, session: Session) -> None:
    """Start a new session in processes that are forked from this one, because each may be a rank."""

    def restart() -> None:
        from viaduct.profiling.session import Session

        nonlocal session
        session.__exit__()
        session = Session(job, end_worker).__enter__()
        finish_at_exit(session)

    os.register_at_fork(after_in_child=restart)


def end_worker() -> NoReturn:
    """End this process with exit code 0, so that its parent sees no failure."""
    raise SystemExit(0)
