from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from viaduct import devices
from viaduct.devices.timing import Clock, Sample, compute_speedup, take_turns, use_threads, warm_up


def cpu_clock() -> Clock:
    return Clock(devices.get("cpu"), "cpu")


def test_steps_of_the_warm_up_are_in_no_window() -> None:
    taken: list[int] = []
    warm_up(taken.append, cpu_clock(), 3)
    windows = take_turns({"one": taken.append}, cpu_clock(), steps=2, windows=2)
    assert taken == [3, 2, 2]
    assert len(windows["one"]) == 2


def test_no_warm_up_takes_no_step() -> None:
    taken: list[int] = []
    assert warm_up(taken.append, cpu_clock(), 0) == 0.0
    assert taken == []


def test_a_window_is_seconds_for_each_step() -> None:
    windows = take_turns({"one": lambda steps: time.sleep(0.02 * steps)}, cpu_clock(), steps=3, windows=2)
    assert all(0.02 <= seconds < 0.1 for seconds in windows["one"])


def test_each_turn_begins_with_another_variant() -> None:
    order: list[str] = []
    variants = {name: lambda steps, name=name: order.append(name) for name in "abc"}
    turns: list[int] = []
    take_turns(variants, cpu_clock(), steps=1, windows=3, after_turn=turns.append)
    assert "".join(order) == "abcbcacab"
    assert turns == [1, 2, 3]


def test_a_slow_moment_of_the_machine_does_not_change_a_ratio() -> None:
    base, own = [2.0, 20.0, 200.0], [1.0, 10.0, 100.0]
    assert compute_speedup(base, own) == 2.0
    assert compute_speedup([2.0, 2.0, 2.0], [1.0, 1.0, 9.0]) == 2.0


def test_windows_of_different_turns_are_not_compared() -> None:
    with pytest.raises(ValueError, match="zip"):
        compute_speedup([1.0, 2.0], [1.0])


def test_one_window_has_no_spread() -> None:
    assert Sample([3.0]).quartiles == (3.0, 3.0)
    assert Sample([3.0]).spread == 0.0


def test_the_spread_is_that_of_the_middle_half() -> None:
    sample = Sample([1.0, 2.0, 3.0, 4.0, 1000.0])
    assert sample.median == 3.0
    assert sample.quartiles == (2.0, 4.0)
    assert sample.spread == pytest.approx(2 / 3)


def test_on_a_card_its_own_events_are_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            calls.append("event")

        def elapsed_time(self, last: Any) -> float:
            calls.append("elapsed")
            return 1500.0

    card: Any = SimpleNamespace(synchronize=lambda: calls.append("wait"))
    monkeypatch.setattr(torch, "npu", SimpleNamespace(Event=Event), raising=False)
    assert Clock(card, "npu").measure_seconds(lambda: calls.append("work")) == 1.5
    assert calls == ["wait", "event", "work", "event", "wait", "elapsed"]


def test_threads_are_as_before_after_an_error() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with use_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        fail()
    assert torch.get_num_threads() == before
