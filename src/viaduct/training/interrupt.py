"""Ctrl-C, SIGTERM and SIGHUP end a run after the current step; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from viaduct.signals import list_stop_signals
from viaduct.training.output_streams import print_note


class Interrupt:
    """Within its `with` block the signals set `received`; afterwards the earlier handlers are restored."""

    def __init__(self, quiet: bool = False, saves: bool = True) -> None:
        """`quiet`: print no message. `saves`: the message says that the run ends with a checkpoint."""
        self.quiet, self.saves = quiet, saves
        self.received: int | None = None  # number of the first signal
        self.is_compiling: Callable[[], bool] = lambda: False  # if True, the message says that compiling ends first
        self._earlier_handlers: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        for number in list_stop_signals():
            self._earlier_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *details: object) -> None:
        for number, handler in self._earlier_handlers.items():
            signal.signal(number, handler)

    def get_signal(self) -> int:
        """Return the number of the first signal received; 0 for none."""
        return self.received or 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if number == signal.SIGINT:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self.received = number
        if not self.quiet:
            when = "when the network is compiled and this step is done" if self.is_compiling() else "after this step"
            saving = ", with a checkpoint" if self.saves else ""
            print_note(f"\nEnding {when}{saving}. Ctrl-C once more ends at once.")
