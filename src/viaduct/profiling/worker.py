"""A process that the profiled script has started itself: mp.spawn, torchrun, a forked rank.

`scripts/hook/sitecustomize.py` calls `join` before the first line of a new Python. Watching begins when the process
imports torch; most never do. What trains writes a folder of its own, as the script's first process does.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from multiprocessing import util
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from viaduct.profiling.script_job import ScriptJob
    from viaduct.profiling.session import Session

CHILD = "viaduct.profiling.child"


def join() -> None:
    """Watch this process if it belongs to a profiled script and is not the one that runs it."""
    from viaduct.profiling.script_job import load_job

    job = load_job()
    if job is not None and not any(CHILD in argument for argument in sys.orig_argv):
        sys.meta_path.insert(0, TorchFinder(job))


class TorchFinder(importlib.abc.MetaPathFinder):
    """Waits for the first import of torch, and begins to watch after it."""

    def __init__(self, job: ScriptJob) -> None:
        self._job = job

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = TorchLoader(spec.loader, self._job)
        return spec


class TorchLoader(importlib.abc.Loader):
    """Loads torch as its own loader does, then begins to watch."""

    def __init__(self, plain: importlib.abc.Loader, job: ScriptJob) -> None:
        self._plain, self._job = plain, job

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._plain.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._plain
        module.__loader__ = self._plain
        self._plain.exec_module(module)
        watch(self._job)


def watch(job: ScriptJob) -> None:
    """Profile the training in this process, whatever else it does."""
    from viaduct.profiling.session import Session

    warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
    session = Session(job, end_worker)
    session.__enter__()
    finish_at_exit(session)
    restart_in_forks(job, session)


def finish_at_exit(session: Session) -> None:
    """Write the profile at the end of the process; those of multiprocessing run no atexit functions."""
    atexit.register(session.finish)
    util.Finalize(None, session.finish, exitpriority=100)


def restart_in_forks(job: ScriptJob, session: Session) -> None:
    """Begin anew in processes that are forked from this one: a rank of its own, or nothing that trains."""
    running = [session]

    def restart() -> None:
        from viaduct.profiling.session import Session

        running.pop().__exit__()
        running.append(Session(job, end_worker).__enter__())
        finish_at_exit(running[0])

    os.register_at_fork(after_in_child=restart)


def end_worker() -> NoReturn:
    """End this process well: its parent shall find no failure."""
    raise SystemExit(0)
