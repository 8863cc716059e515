"""Signals that ask a command to end, and the names of signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

INHERITED = (signal.SIGINT, signal.SIGHUP)
"""The signals that a shell starts a command with as ignored: Ctrl-C in a background job, SIGHUP under nohup."""


def name_signal(number: int) -> str:
    """Return the name of a signal, as SIGKILL; a text with the number for real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that a command handles: Ctrl-C, SIGTERM and SIGHUP, without those it was told to ignore."""
    ignored = ignored_signals()
    return tuple(number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if number not in ignored)


def ignored_signals() -> tuple[signal.Signals, ...]:
    """Return those of Ctrl-C and SIGHUP that this process ignores."""
    return tuple(number for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN)


@contextmanager
def collect_signals(on_signal: Callable[[int], None]) -> Iterator[list[int]]:
    """Call `on_signal` for each signal that asks this command to end, instead of ending; yield those that came."""
    received: list[int] = []

    def collect(number: int, frame: object) -> None:
        received.append(number)
        on_signal(number)

    before = {number: signal.signal(number, collect) for number in stop_signals()}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def forward_signals(pid: int) -> Iterator[list[int]]:
    """Pass Ctrl-C and its like on to a process, which may clean up; yield those that came."""

    def forward(number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    with collect_signals(forward) as received:
        yield received
