"""The limit on the time that one file may take."""

from __future__ import annotations

import signal

import pytest

from viaduct.migration.cpu_limit import TooSlow, limit_cpu


def test_work_within_the_limit_is_not_disturbed_and_no_timer_is_left() -> None:
    with limit_cpu(5):
        assert sum(range(1000)) == 499500
    assert signal.getitimer(signal.ITIMER_PROF)[0] == signal.getitimer(signal.ITIMER_VIRTUAL)[0] == 0


def work_for_ever() -> None:
    with limit_cpu(0.05):
        while True:
            pass


def test_work_beyond_the_limit_is_interrupted() -> None:
    with pytest.raises(TooSlow):
        work_for_ever()
