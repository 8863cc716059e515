"""Bounds on time and memory of a rehearsed script.

A thread polls the clock and the memory of this process and its descendants. At a bound it prints the main thread's
stack and sends a signal, whose handler raises `StopScript` in the main thread, so that `finally` blocks and `atexit`
functions still run. If the script has not ended `GRACE_S` seconds later (it computes in C, or it waits for another
rank), the process is ended with exit code 1. If the script has not ended `GRACE_S` seconds after its step counter
stopped it, the process is ended with exit code 0. If polling fails, the process is ended at once with exit code 1.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn

from viaduct.rehearsal import limits
from viaduct.scripts.runner import StopScript

GRACE_S = 10.0  # that a script has to end after it was told to stop
POLL_S = 0.1  # between two polls
MAX_FRAMES_SHOWN = 12  # frames of the stack that are printed, the outermost of the user's first
STOP_SIGNAL = signal.SIGUSR2  # schedulers send SIGUSR1
Bound = Literal["", "time", "memory", "watch"]  # what stopped a script; "watch": polling time and memory has failed


class Bounds:
    """Watches time and memory of this process, from `start` to `close`."""

    def __init__(self, timeout: float | None, memory: int | None) -> None:
        self.timeout, self.memory = timeout, memory
        self.on_poll: Callable[[], None] = lambda: None  # called at every poll
        self.on_exit: Callable[[], None] = lambda: None  # called before the process is ended by os._exit
        # Returns the time at which the step counter requested a stop; None if it did not.
        self.stop_requested_at: Callable[[], float | None] = lambda: None
        self.stopped_by: Bound = ""  # the bound that has stopped this process
        self.failure = ""  # the error with which polling failed
        self.peak = 0  # bytes of memory, of this process and its descendants together
        self._began = time.monotonic()
        self._ended_at = 0.0  # 0: the script is running
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="viaduct-bounds", daemon=True)

    def start(self) -> None:
        self._began = time.monotonic()
        signal.signal(STOP_SIGNAL, self._raise_stop)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, because the script is over."""
        self._ended_at = time.monotonic()
        self._ended.set()
        self.peak = max(self.peak, measure_memory())

    def _watch(self) -> None:
        """Poll; if polling fails, end the process, since nothing would limit it any more."""
        try:
            self._poll()
        except Exception as error:
            if not self._ended.is_set():
                self.stopped_by, self.failure = "watch", f"{type(error).__name__}: {error}"
                self._exit(f"the script's time and memory are no longer watched ({self.failure})", 1, "it is ended")

    def _poll(self) -> None:
        """Compare time and memory with the bounds until the script has ended."""
        while not self._ended.wait(POLL_S):
            self.peak = max(self.peak, allocated := measure_memory())
            self.on_poll()
            stopped_at = self.stop_requested_at()
            if stopped_at is not None and time.monotonic() - stopped_at > GRACE_S:
                self._exit("the script has taken its steps, and does not stop", 0)
            elif self.timeout is not None and time.monotonic() - self._began > self.timeout:
                self._stop_at_bound("time", f"it did not end within {self.timeout:g} s")
            elif self.memory is not None and allocated > self.memory:
                megabytes = f"{allocated / 2**20:,.0f} MiB of {self.memory / 2**20:,.0f} allowed"
                self._stop_at_bound("memory", f"it took {megabytes}")

    def _stop_at_bound(self, bound: Bound, reason: str) -> None:
        """Print the script's stack and raise StopScript in its main thread; end the process if the script continues."""
        self.stopped_by = bound
        print(f"viaduct rehearse: the script is stopped: {reason}. Its stack:", file=sys.stderr)
        print(format_stack(), end="", file=sys.stderr, flush=True)
        os.kill(os.getpid(), STOP_SIGNAL)
        if not self._ended.wait(GRACE_S):
            faulthandler.dump_traceback(all_threads=True)
            self._exit("the script does not stop", 1)

    def _exit(self, reason: str, code: int, action: str = f"it is ended after {GRACE_S:g} s") -> NoReturn:
        """Print a message, call `on_exit` and end the process without `finally` blocks."""
        print(f"viaduct rehearse: {reason}; {action}.", file=sys.stderr, flush=True)
        try:
            self.on_exit()
        finally:
            os._exit(code)

    @property
    def seconds(self) -> float:
        """Return the seconds since the start; the script's end stops the clock."""
        return round((self._ended_at or time.monotonic()) - self._began, 3)

    def _raise_stop(self, number: int, frame: FrameType | None) -> NoReturn:
        raise StopScript


def format_stack() -> str:
    """Return the main thread's stack from the user's outermost frame on, at most MAX_FRAMES_SHOWN frames."""
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    if main is None:
        return "  (the main thread's stack cannot be read)\n"
    stack = traceback.extract_stack(main)
    first = next((index for index, frame in enumerate(stack) if limits.is_users_file(frame.filename)), 0)
    return "".join(traceback.StackSummary.from_list(stack[first:][:MAX_FRAMES_SHOWN]).format())


def measure_memory() -> int:
    """Return the resident bytes of this process and its descendants; shared pages count once for each process."""
    return sum(read_resident_bytes(pid) for pid in iterate_processes(os.getpid()))


def iterate_processes(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from iterate_processes(int(child))
    except OSError:  # the process has ended, or this is not Linux
        return


def read_resident_bytes(pid: int) -> int:
    """Return a process's resident bytes, 0 if it has ended; without /proc this process's peak, and 0 for others."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        if pid != os.getpid():
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, elsewhere KiB
