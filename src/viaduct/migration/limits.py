"""A limit on the time that one file may take, in seconds of a core, so that a busy machine does not shorten it."""

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
    """Raise TooSlow within the block once it has taken so much of a core; no limit where there is no such timer."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        """Raise TooSlow: the handler of the processor time's signal."""
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
