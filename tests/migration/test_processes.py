"""Work in forked processes."""

from __future__ import annotations

import os
import signal

import pytest

from viaduct.errors import OutOfMemory
from viaduct.migration.processes import iterate_in_processes


@pytest.mark.process
def test_each_item_has_its_result() -> None:
    assert sorted(iterate_in_processes(lambda item: item * item, [1, 2, 3, 4], workers=2)) == [1, 4, 9, 16]


def test_one_item_is_worked_on_in_this_process() -> None:
    assert list(iterate_in_processes(lambda _: os.getpid(), ["item"], workers=8)) == [os.getpid()]


@pytest.mark.process
def test_a_killed_worker_is_an_error_that_names_memory() -> None:
    with pytest.raises(OutOfMemory, match="a process of the migration was killed"):
        list(iterate_in_processes(lambda _: os.kill(os.getpid(), signal.SIGKILL), [1, 2], workers=2))
