"""`torch_npu.profiler` and `torch_mlu.profiler`: PyTorch's own profiler of the host, with the vendors' names."""

from __future__ import annotations

import enum
from typing import Any

import torch


class ProfilerLevel(enum.Enum):
    """Amount of data about the card."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(enum.Enum):
    """Hardware counters of the cores."""

    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType(enum.Enum):
    """Formats of an exported profile."""

    Db = "db"
    Text = "text"


class _ExperimentalConfig:
    """Options for the card, such as profiler_level and aic_metrics; without effect."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class profile(torch.profiler.profile):
    """torch.profiler.profile of the host; activities, experimental_config and use_cuda are ignored."""

    def __init__(
        self, *, activities: Any = None, experimental_config: Any = None, use_cuda: Any = None, **options: Any
    ) -> None:
        super().__init__(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def tensorboard_trace_handler(
    dir_name: str, worker_name: Any = None, analyse_flag: bool = True, async_mode: bool = False
) -> Any:
    return torch.profiler.tensorboard_trace_handler(dir_name, worker_name)


class emit_cnpx:
    """The MLU's counterpart of torch.autograd.profiler.emit_nvtx, without effect."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None: ...

    def __enter__(self) -> emit_cnpx:
        return self

    def __exit__(self, *error: object) -> None: ...


def make_module_contents() -> dict[str, Any]:
    """Return the names that both vendors' profiler modules have."""
    own = (ProfilerLevel, AiCMetrics, ExportType, _ExperimentalConfig, profile, tensorboard_trace_handler)
    from_torch = ("ProfilerActivity", "ProfilerAction", "schedule", "record_function")
    activities = {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1}
    return {
        **{member.__name__: member for member in own},
        **{name: getattr(torch.profiler, name) for name in from_torch},
        "supported_activities": lambda: set(activities),
        "supported_profiler_level": lambda: set(ProfilerLevel),
        "supported_ai_core_metrics": lambda: set(AiCMetrics),
        "supported_export_type": lambda: set(ExportType),
    }
