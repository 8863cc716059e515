"""Marks of the host's clock and of a device's events."""

from __future__ import annotations

import pytest
import torch

from viaduct.profiling.clocks import Clock, DeviceClock, open_clock, read_host_us

from .fake_device import FakeVendor


def test_a_mark_of_a_device_is_not_ready_before_the_device_gets_there() -> None:
    vendor = FakeVendor()
    clock = DeviceClock(vendor)
    vendor.is_idle = False
    mark = clock.mark()
    assert not clock.is_ready(mark)
    clock.synchronize()
    assert clock.is_ready(mark)


def test_marks_of_a_device_are_read_on_the_hosts_clock_in_any_order() -> None:
    vendor = FakeVendor()
    before = read_host_us()
    clock = DeviceClock(vendor)
    after = read_host_us()
    marks = []
    for _ in range(3):
        vendor.device_ms += 2
        marks.append(clock.mark())
    third, first, second = (clock.read(marks[i]) for i in (2, 0, 1))
    assert before <= first - 2000 <= after
    assert (second - first, third - first) == (pytest.approx(2000), pytest.approx(4000))
    assert clock.read(marks[1]) == second, "the mark that was read last is the base of the next"


def test_the_host_needs_no_events_and_another_device_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = open_clock("cpu")
    assert isinstance(clock, Clock)
    before = clock.read(clock.mark())
    assert before <= clock.read(clock.mark())
    monkeypatch.setattr(torch, "npu", FakeVendor(), raising=False)
    assert isinstance(open_clock("npu"), DeviceClock)
