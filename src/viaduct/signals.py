"""Handling of the signals that end a command: Ctrl-C, SIGTERM and SIGHUP."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

# Signals that a command may have to ignore: the shell ignores Ctrl-C for a background job, nohup ignores SIGHUP.
MAYBE_IGNORED = (signal.SIGINT, signal.SIGHUP)


def name_signal(number: int) -> str:
    """Return the name of a signal, such as SIGKILL, or a text with its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def list_stop_signals() -> tuple[signal.Signals, ...]:
    """Return SIGTERM, and those of Ctrl-C and SIGHUP that this process does not ignore."""
    ignored = list_ignored_signals()
    return tuple(number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if number not in ignored)


def list_ignored_signals() -> tuple[signal.Signals, ...]:
    """Return the signals in MAYBE_IGNORED that this process ignores."""
    return tuple(number for number in MAYBE_IGNORED if signal.getsignal(number) is signal.SIG_IGN)


@contextmanager
def replace_handlers(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """Handle signals by these functions within the block; `signal.SIG_IGN` ignores one."""
    former_handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former_handlers.items():
            signal.signal(number, handler)


@contextmanager
def collect_signals(on_signal: Callable[[int], None]) -> Iterator[list[int]]:
    """Within the block, call `on_signal` for each Ctrl-C, SIGTERM or SIGHUP; yield a list that collects them."""
    received: list[int] = []

    def collect(number: int, frame: object) -> None:
        received.append(number)
        on_signal(number)

    with replace_handlers(dict.fromkeys(list_stop_signals(), collect)):
        yield received


@contextmanager
def forward_signals(pid: int) -> Iterator[list[int]]:
    """Within the block, send each received Ctrl-C, SIGTERM or SIGHUP to process `pid`, too; yield the received ones."""

    def forward(number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    with collect_signals(forward) as received:
        yield received
