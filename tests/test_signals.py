"""Signals that ask a command to end: collected, forwarded, and left alone where they are ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from viaduct.signals import collect_signals, forward_signals, list_stop_signals, name_signal


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the handlers of this process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_a_signal_that_the_shell_had_ignored_is_not_handled() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    assert signal.SIGHUP not in list_stop_signals()
    assert signal.SIGTERM in list_stop_signals()


def test_signals_are_collected_and_the_handlers_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    called: list[int] = []
    with collect_signals(called.append) as received:
        os.kill(os.getpid(), signal.SIGTERM)
    assert called == received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_passed_on_to_a_process_and_its_end_is_no_error() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with forward_signals(child.pid) as received:
        os.kill(os.getpid(), signal.SIGTERM)
        assert child.wait(30) == -signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # the process is gone
    assert received == [signal.SIGTERM, signal.SIGTERM]


def test_a_signal_without_a_name_is_named_by_its_number() -> None:
    assert name_signal(signal.SIGKILL) == "SIGKILL"
    assert name_signal(40) == "signal 40"
