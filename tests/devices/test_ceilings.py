"""Measured peak rates, on a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from viaduct import devices
from viaduct.devices import ceilings
from viaduct.devices.ceilings import Ceilings, measure, set_matmul_precision, time_fastest


class FakeClock:
    """Clock that runs the work and answers with seconds from a list; the last one is repeated."""

    def __init__(self, *seconds: float) -> None:
        self.answers = list(seconds)

    def measure_seconds(self, work: Callable[[], object]) -> float:
        work()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_matrix_precision_is_as_before_after_an_error() -> None:
    before = torch.get_float32_matmul_precision()

    def fail() -> None:
        with set_matmul_precision(tf32=before == "highest"):
            assert torch.get_float32_matmul_precision() != before
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        fail()
    assert torch.get_float32_matmul_precision() == before


def test_the_fastest_window_counts_and_the_warm_up_does_not() -> None:
    calls: list[int] = []
    clock: Any = FakeClock(0.02, 0.5, 0.25, 0.4, 0.6, 0.5)  # 0.01 s for each of two calls: windows of five
    assert time_fastest(clock, lambda: calls.append(1)) == 0.25 / 5
    assert len(calls) == 2 + 5 * ceilings.WINDOWS


@pytest.mark.parametrize(("once", "times"), [(10.0, 1), (1e-9, 50)])
def test_a_window_is_long_enough_to_time_and_never_endless(once: float, times: int) -> None:
    calls: list[int] = []
    clock: Any = FakeClock(2 * once, 1.0)
    time_fastest(clock, lambda: calls.append(1))
    assert len(calls) == 2 + times * ceilings.WINDOWS


def test_rates_are_bytes_read_and_written_and_two_operations_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "time_fastest", lambda clock, work: (work(), 0.5)[1])
    monkeypatch.setattr(ceilings, "COPY_BYTES", {"cpu": 4096})
    monkeypatch.setattr(ceilings, "MATRIX_SIDE", {"cpu": 16})
    found = measure(devices.get("cpu"), torch.device("cpu"), torch.float32, tf32=False)
    assert found == Ceilings(bandwidth=2 * 4096 / 0.5, matrix=2 * 16**3 / 0.5)
