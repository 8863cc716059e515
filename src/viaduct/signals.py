"""The signals that ask a command to end."""

from __future__ import annotations

import signal

INHERITED = (signal.SIGINT, signal.SIGHUP)
"""The signals that a shell starts a command with as ignored: Ctrl-C in a background job, SIGHUP under nohup."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that a command handles: Ctrl-C, SIGTERM and SIGHUP, without those it was told to ignore."""
    ignored = ignored_signals()
    return tuple(number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if number not in ignored)


def ignored_signals() -> tuple[signal.Signals, ...]:
    """Return those of Ctrl-C and SIGHUP that this process ignores."""
    return tuple(number for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN)
