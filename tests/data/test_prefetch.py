"""Threads that prepare ahead, and are gone afterwards."""

from __future__ import annotations

import threading
import time

import pytest

from viaduct.data.prefetch import prepare_ahead


def data_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("viaduct-data")]


def slow_double(item: int) -> int:
    time.sleep(0.01 if item % 2 else 0.0)
    return 2 * item


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_results_come_in_order(workers: int) -> None:
    assert list(prepare_ahead(slow_double, range(20), workers=workers, ahead=3)) == list(range(0, 40, 2))
    assert data_threads() == []


def test_no_more_than_requested_is_prepared_ahead() -> None:
    begun: list[int] = []
    iterator = prepare_ahead(begun.append, range(100), workers=1, ahead=3)
    next(iterator)
    time.sleep(0.05)
    assert len(begun) == 4
    iterator.close()
    assert data_threads() == []


def test_an_error_comes_in_its_turn_and_ends_the_threads() -> None:
    def fail_at_three(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    seen: list[int] = []
    with pytest.raises(ValueError, match="three"):
        seen.extend(prepare_ahead(fail_at_three, range(100), workers=2, ahead=4))
    assert seen == [0, 1, 2]
    assert data_threads() == []


def test_the_threads_of_a_dropped_iterator_end() -> None:
    iterator = prepare_ahead(slow_double, range(1000), workers=2, ahead=4)
    next(iterator)
    assert data_threads()
    del iterator
    assert data_threads() == []
