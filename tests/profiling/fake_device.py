"""A stand-in of torch.cuda whose device lags behind the host."""

from __future__ import annotations

from typing import Any


class FakeVendor:
    """The parts of torch.cuda that clocks use; while `is_idle` is False, no event has completed."""

    def __init__(self) -> None:
        self.device_ms, self.is_idle = 0.0, True
        vendor = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                self.ms: float | None = None

            def record(self) -> None:
                self.ms = vendor.device_ms

            def query(self) -> bool:
                return vendor.is_idle

            def elapsed_time(self, later: Any) -> float:
                assert vendor.is_idle, "both events must have completed"
                assert self.ms is not None
                return float(later.ms - self.ms)

        self.Event = Event

    def synchronize(self) -> None:
        self.is_idle = True
