"""Ctrl-C and SIGTERM: end after the current step; a second Ctrl-C ends at once."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """Within its `with` block the signals only set `received`; afterwards they mean what they meant before."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
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
        self.received = number
        if not self.quiet:
            print("\nEnding after this step, with a checkpoint. Ctrl-C once more ends at once.", file=sys.stderr)
