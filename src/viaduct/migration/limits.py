"""A limit on the processor time that one file may take: on a busy machine the limit is the same."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):
    """The limit was reached."""


@contextmanager
def limit_cpu(seconds: float) -> Iterator[None]:
    """Raise TooSlow within the block after this processor time; no limit in other threads, or without such a timer."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        """Handle SIGPROF, which the timer of the processor time sends."""
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
