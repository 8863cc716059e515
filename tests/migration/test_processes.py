"""Work in forked processes, and the limit on the time that one file may take."""

from __future__ import annotations

import os
import signal

import pytest

from viaduct.errors import OutOfMemory
from viaduct.migration.processes import TooSlow, iterate_in_processes, limit_cpu


@pytest.mark.process
def test_each_item_has_its_result() -> None:
    assert sorted(iterate_in_processes(lambda item: item * item, [1, 2, 3, 4], workers=2)) == [1, 4, 9, 16]


def test_one_item_is_worked_on_in_this_process() -> None:
    assert list(iterate_in_processes(lambda _: os.getpid(), ["item"], workers=8)) == [os.getpid()]


@pytest.mark.process
def test_a_killed_worker_is_an_error_that_names_memory() -> None:
    with pytest.raises(OutOfMemory, match="a process of the migration was killed"):
        list(iterate_in_processes(lambda _: os.kill(os.getpid(), signal.SIGKILL), [1, 2], workers=2))


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
