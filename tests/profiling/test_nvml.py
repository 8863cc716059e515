from __future__ import annotations

from typing import Any

import pytest

from viaduct.profiling.nvml import GpuReader, list_visible

NOT_SUPPORTED = 3


class StandInLibrary:
    """NVML's functions with two GPUs, the second of which knows neither power nor PCIe."""

    def __init__(self, init: int = 0) -> None:
        self.init = init

    def nvmlInit_v2(self) -> int:
        return self.init

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, handle: Any) -> int:
        handle._obj.value = 100 + number
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj.gpu = handle.value - 50
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.used = 3 << 30
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> int:
        milliwatts._obj.value = 512_300
        return 0 if handle.value == 100 else NOT_SUPPORTED

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, clock: Any) -> int:
        clock._obj.value = {1: 1980}[kind]
        return 0

    def nvmlDeviceGetPcieThroughput(self, handle: Any, counter: int, rate: Any) -> int:
        rate._obj.value = 1024 * (5 + counter)
        return 0 if handle.value == 100 else NOT_SUPPORTED


def test_without_a_library_or_with_a_driver_that_does_not_start_nothing_is_read() -> None:
    assert GpuReader(None).read() == {}
    assert GpuReader(StandInLibrary(init=9)).read() == {}


def test_figures_that_a_gpu_does_not_have_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    reader = GpuReader(StandInLibrary())
    assert reader.read() == {
        "gpu 0 %": 50, "gpu 0 memory MiB": 3072, "gpu 0 power W": 512.3, "gpu 0 clock MHz": 1980,
        "gpu 0 PCIe out MiB/s": 5, "gpu 0 PCIe in MiB/s": 6,
        "gpu 1 %": 51, "gpu 1 memory MiB": 3072, "gpu 1 clock MHz": 1980,
    }  # fmt: skip
    assert "gpu 0 PCIe in MiB/s" not in reader.read()  # it takes 20 ms and is read seldom


@pytest.mark.parametrize(("chosen", "seen"), [("1", [1]), ("", []), ("1,0", [1, 0]), ("GPU-8f2c", [0, 1]), ("7", [])])
def test_only_visible_gpus_are_read(chosen: str, seen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert list_visible(2) == seen
