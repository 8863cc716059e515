"""Ctrl-C, SIGTERM and SIGHUP: end after the current step; a second Ctrl-C ends at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from viaduct.signals import stop_signals
from viaduct.training.output_streams import print_line


class Interrupt:
    """Within its `with` block the signals only set `received`; afterwards they mean what they meant before."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.received: int | None = None
        self.compiling: Callable[[], bool] = lambda: False  # a first step that takes minutes wants an explanation
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in stop_signals():
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        first, self.received = self.received is None, self.received or number
        if first and not self.quiet:
            when = "when the network is compiled and this step is done" if self.compiling() else "after this step"
            print_line(f"\nEnding {when}, with a checkpoint. Ctrl-C once more ends at once.", sys.stderr)
