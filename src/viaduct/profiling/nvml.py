"""Read NVIDIA GPUs through NVML, the library that nvidia-smi uses.

    gpus = GpuReader.open()
    gpus.read()                  # {"gpu 0 %": 97.0, "gpu 0 memory MiB": 40213.0, "gpu 0 power W": 512.3, …}

The library is part of the driver and is called through ctypes, so no package is needed. Its functions return 0 if they
succeed. Figures that a GPU does not support are left out. GPUs are numbered as in nvidia-smi.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
SM_CLOCK = 1  # NVML_CLOCK_SM
PCIE_OUT, PCIE_IN = 0, 1  # NVML_PCIE_UTIL_TX_BYTES, …RX_BYTES: bytes sent and received by the GPU
PCIE_EVERY = 5  # calls of `read` for each measurement of PCIe, which takes 20 ms
MIB = 1 << 20


class Utilization(ctypes.Structure):
    """Struct nvmlUtilization_t: percent of the last period in which a kernel ran, and in which memory was accessed."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Memory(ctypes.Structure):
    """Struct nvmlMemory_t, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class GpuReader:
    """Reader of this machine's NVIDIA GPUs, or of those in CUDA_VISIBLE_DEVICES."""

    def __init__(self, library: Any) -> None:
        """Find the GPUs through NVML; there are none if `library` is None."""
        self.library = library
        self.handles: dict[int, ctypes.c_void_p] = {}
        self.calls = 0
        if library is not None:
            self.find_gpus()

    @classmethod
    def open(cls) -> GpuReader:
        """Return a reader of this machine's GPUs; without NVIDIA's driver, a reader without GPUs."""
        for name in LIBRARIES:
            try:
                return cls(ctypes.CDLL(name))
            except OSError:
                continue
        return cls(None)

    def find_gpus(self) -> None:
        count = ctypes.c_uint()
        if self.library.nvmlInit_v2() or self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        for number in list_visible(count.value):
            handle = ctypes.c_void_p()
            if not self.library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
                self.handles[number] = handle

    def read(self) -> dict[str, float]:
        """Return use, memory, power and clock of each GPU, and its PCIe traffic in one of PCIE_EVERY calls."""
        values: dict[str, float] = {}
        for number, handle in self.handles.items():
            values |= {f"gpu {number} {name}": value for name, value in self.read_gpu(handle).items()}
        self.calls += 1
        return values

    def read_gpu(self, handle: ctypes.c_void_p) -> dict[str, float]:
        values: dict[str, float] = {}
        utilization, memory = Utilization(), Memory()
        if not self.library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(utilization)):
            values["%"] = float(utilization.gpu)
        if not self.library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            values["memory MiB"] = memory.used / MIB
        values |= self.read_number("power W", 1 / 1000, "nvmlDeviceGetPowerUsage", handle)
        values |= self.read_number("clock MHz", 1, "nvmlDeviceGetClockInfo", handle, SM_CLOCK)
        if self.calls % PCIE_EVERY == 0:
            values |= self.read_number("PCIe out MiB/s", 1 / 1024, "nvmlDeviceGetPcieThroughput", handle, PCIE_OUT)
            values |= self.read_number("PCIe in MiB/s", 1 / 1024, "nvmlDeviceGetPcieThroughput", handle, PCIE_IN)
        return values

    def read_number(self, name: str, scale: float, function: str, *arguments: Any) -> dict[str, float]:
        """Return the result of an NVML function as {name: number}; {} if GPU or driver do not support it."""
        number = ctypes.c_uint()
        call = getattr(self.library, function, None)
        if call is None or call(*arguments, ctypes.byref(number)):
            return {}
        return {name: number.value * scale}


def list_visible(count: int) -> list[int]:
    """Return the numbers of the GPUs in CUDA_VISIBLE_DEVICES; all GPUs if it is not set or holds UUIDs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = [number.strip() for number in visible.split(",") if number.strip()] if visible is not None else []
    if visible is None or not all(number.isdigit() for number in numbers):
        return list(range(count))
    return [int(number) for number in numbers if int(number) < count]
