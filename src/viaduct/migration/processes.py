"""Call a function for many items in forked processes, which share the parent's data; limit a block's CPU time."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any, TypeVar

from viaduct.errors import OutOfMemory

Item = TypeVar("Item")
Result = TypeVar("Result")
_work: Callable[[Any], Any] | None = None
"""Function that forked workers call. They inherit it with the data that it refers to, so nothing is pickled."""


def iterate_in_processes(work: Callable[[Item], Result], items: list[Item], workers: int) -> Iterator[Result]:
    """Call a function for each item, in up to `workers` processes, and yield the results as they finish.

    With one worker or one item this process calls the function itself.
    """
    global _work
    if min(workers, len(items)) < 2:
        yield from map(work, items)
        return
    _work = work
    gc.freeze()  # a collection would write into memory pages that the workers share, and so copy them
    pool = ProcessPoolExecutor(
        min(workers, len(items)), mp_context=multiprocessing.get_context("fork"), initializer=set_worker_signals
    )
    try:
        with block_sigint():
            pending = {pool.submit(work_on, item) for item in items}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        pool.shutdown()
    except BrokenProcessPool:
        raise OutOfMemory("a process of the migration was killed.", "Perhaps memory was short: try --jobs 1.") from None
    finally:
        kill_workers(pool)
        gc.unfreeze()
        _work = None


def work_on(item: Any) -> Any:
    """Call the function for one item in a worker process."""
    assert _work is not None
    result = _work(item)
    gc.collect()  # frees the syntax trees of the item's files, which are in reference cycles
    return result


@contextlib.contextmanager
def block_sigint() -> Iterator[None]:
    """Defer Ctrl-C while workers are forked: a worker before `set_worker_signals` would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def set_worker_signals() -> None:
    """Ignore Ctrl-C in a worker: the terminal sends it to all processes, and the parent kills its workers.

    SIGTERM ends the worker: a handler that it has inherited from the parent is removed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def kill_workers(pool: ProcessPoolExecutor) -> None:
    """Kill workers that are still running; after a normal end there are none."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)


def can_fork() -> bool:
    return sys.platform.startswith("linux") and "fork" in multiprocessing.get_all_start_methods()


class TooSlow(Exception):
    """The block of `limit_cpu` has reached its limit."""


@contextlib.contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """Raise TooSlow in the block after `seconds` of CPU time, which does not depend on the load of the machine.

    There is no limit on Windows or outside the main thread.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    former_handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former_handler)
