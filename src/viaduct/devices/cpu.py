"""CPU: always available; `viaduct devices --test` compares the other devices with it.

The public functions are described in `base.Device`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from viaduct.cores import count_cores
from viaduct.devices.base import check_index, find_in_file
from viaduct.devices.strided_pointwise import replace_faulty_weight_gradients
from viaduct.errors import BadValue

NAME = "cpu"

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_CLEAR_REFS = Path("/proc/self/clear_refs")

# Overrides the detection of bf16 instructions: 1 means that the processor has them, 0 that it does not.
_BF16_VARIABLE = "VIADUCT_CPU_BF16"
# PyTorch computes in bf16 on any CPU, but without one of these features it converts to fp32 and back.
_BF16_FLAGS = ("amx_bf16", "avx512_bf16", "bf16")
_BF16_PROBES = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
# Parameters of glibc's mallopt, name: (number, value). glibc returns free memory to the system only beyond 2 GiB,
# requests memory in portions of 64 MiB, and maps (mmap) only buffers above 1 GiB.
_MALLOC_OPTIONS = {"M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 64 << 20), "M_MMAP_THRESHOLD": (-3, 1 << 30)}
_SHOWN_FLAGS = (*_BF16_FLAGS, "avx512f", "avx2", "sve", "asimd")  # `describe_card` names the first that the CPU has


def is_available() -> bool:
    return find_problem() is None


def find_problem() -> str | None:
    return None


def count_cards() -> int:
    return 1


def select(index: int = 0) -> torch.device:
    check_index(NAME, index, count_cards(), find_problem())
    _keep_freed_memory()
    replace_faulty_weight_gradients()
    return torch.device(NAME)


def synchronize() -> None:
    return None


def get_peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory() -> None:
    # Writing 5 lowers the peak to what is resident now, see proc(5). Where the kernel forbids this, the peak stays.
    with suppress(OSError):
        _CLEAR_REFS.write_text("5")


def get_free_memory() -> int:
    return min(_get_machine_free(), _get_container_free())


def list_native_dtypes() -> tuple[str, ...]:
    return ("bf16",) if _has_bf16_instructions() else ()


def list_emulated_dtypes() -> tuple[str, ...]:
    return ("fp16",) if _has_bf16_instructions() else ("bf16", "fp16")


def set_tf32(allowed: bool) -> None:
    return None


def get_collective_backend() -> str:
    return "gloo"


def get_graph_class() -> object | None:
    return None


def get_versions() -> dict[str, str]:
    return {"torch": torch.__version__, "python": platform.python_version()}


def describe_card() -> str:
    name = find_in_file(_CPUINFO, r"^model name\s*:\s*(.+)$") or platform.processor() or platform.machine()
    cores = count_cores()
    flag = next((flag for flag in _SHOWN_FLAGS if flag in _read_flags()), None)
    return ", ".join(filter(None, (name, f"{cores} core{'s' * (cores > 1)}", flag)))


def get_random_state() -> torch.Tensor | None:
    return None


def set_random_state(state: torch.Tensor | None) -> None:
    return None


def _read_flags() -> frozenset[str]:
    return frozenset((find_in_file(_CPUINFO, r"^(?:flags|features)\s*:\s*(.+)$") or "").split())


def _has_bf16_instructions() -> bool:
    setting = os.environ.get(_BF16_VARIABLE, "")
    if setting:
        if setting not in ("0", "1"):
            raise BadValue(
                f"{_BF16_VARIABLE}={setting!r} is neither 0 nor 1.",
                "1: the processor has bf16 instructions, 0: it has none; unset it to have them detected.",
            )
        return setting == "1"
    # Private functions of torch 2.11 to 2.13; without them only the processor's flags decide.
    probes = (getattr(torch.cpu, name, None) for name in _BF16_PROBES)
    return any(probe() for probe in probes if probe) or not _read_flags().isdisjoint(_BF16_FLAGS)


def _get_machine_free() -> int:
    """Return the bytes available on the machine, or all of its memory if there is no /proc/meminfo."""
    kibibytes = find_in_file(_MEMINFO, r"^MemAvailable:\s*(\d+) kB")
    return int(kibibytes) * 1024 if kibibytes else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _get_container_free() -> int:
    """Return the bytes left to a container by its control group (version 2); `sys.maxsize` if it has no limit.

    Cached pages of files that can be dropped count as free.
    """
    limit = find_in_file(_CGROUP / "memory.max", r"^(\d+)")
    used = find_in_file(_CGROUP / "memory.current", r"^(\d+)")
    droppable = find_in_file(_CGROUP / "memory.stat", r"^inactive_file (\d+)")
    return int(limit) - int(used) + int(droppable or 0) if limit and used else sys.maxsize


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory, so that the next step reuses the buffers of the last one.

    By default every large tensor is mapped anew in every step and the kernel zeroes its pages. That takes a tenth of a
    ResNet-50 step at batch 8.
    """
    with suppress(OSError, AttributeError):  # without glibc there is no mallopt
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in _MALLOC_OPTIONS.values():
            mallopt(option, value)
