"""Pauses of Python's garbage collector."""

import gc

import pytest

from viaduct.profiling import garbage_pauses
from viaduct.profiling.garbage_pauses import GarbagePauses


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times that the host's counter will show."""
    times: list[float] = []
    monkeypatch.setattr(garbage_pauses, "read_host_us", lambda: times.pop(0))
    return times


def observe(pauses: GarbagePauses, generation: int = 2) -> None:
    for phase in ("start", "stop"):
        pauses._observe(phase, {"generation": generation, "collected": 0, "uncollectable": 0})


def test_short_pauses_and_those_outside_of_timed_steps_are_left_out(clock: list[float]) -> None:
    clock += [0.0, 900.0, 0.0, 5000.0]
    pauses = GarbagePauses(lambda: True)
    observe(pauses)
    untimed = GarbagePauses(lambda: False)
    observe(untimed)
    assert pauses.make_tables() == untimed.make_tables() == {}


def test_a_long_pause_becomes_a_row(clock: list[float]) -> None:
    clock += [100.0, 2600.0]
    pauses = GarbagePauses(lambda: True)
    observe(pauses, generation=1)
    assert pauses.make_tables() == {
        "garbage collection": {"columns": ["generation", "pause_us"], "rows": [[1, 2500.0]]}
    }


def test_the_listener_is_added_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_pauses, "LONG_PAUSE_US", 0.0)
    before = list(gc.callbacks)
    pauses = GarbagePauses(lambda: True)
    pauses.start()
    pauses.start()
    gc.collect()
    pauses.stop()
    pauses.stop()
    assert [row[0] for row in pauses.rows] == [2]
    assert gc.callbacks == before
