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
    """Options for the card, stored without effect."""

    def __init__(
        self,
        profiler_level: Any = ProfilerLevel.Level0,
        aic_metrics: Any = AiCMetrics.AiCoreNone,
        l2_cache: bool = False,
        msprof_tx: bool = False,
        data_simplification: bool = True,
        record_op_args: bool = False,
        op_attr: bool = False,
        gc_detect_threshold: Any = None,
        export_type: Any = None,
        **kwargs: Any,
    ) -> None:
        self.options = {name: value for name, value in locals().items() if name != "self"}


class profile(torch.profiler.profile):
    """torch.profiler.profile of the host; arguments about the card are ignored."""

    def __init__(
        self,
        *,
        activities: Any = None,
        schedule: Any = None,
        on_trace_ready: Any = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        use_cuda: Any = None,
    ) -> None:
        super().__init__(
            activities=[torch.profiler.ProfilerActivity.CPU],
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
        )


def tensorboard_trace_handler(
    dir_name: str, worker_name: Any = None, analyse_flag: bool = True, async_mode: bool = False
) -> Any:
    return torch.profiler.tensorboard_trace_handler(dir_name, worker_name)


def supported_profiler_level() -> set[ProfilerLevel]:
    return set(ProfilerLevel)


def supported_ai_core_metrics() -> set[AiCMetrics]:
    return set(AiCMetrics)


def supported_export_type() -> set[ExportType]:
    return set(ExportType)


def supported_activities() -> set[Any]:
    return {torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1}


class emit_cnpx:
    """The MLU's counterpart of torch.autograd.profiler.emit_nvtx, without effect."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None: ...

    def __enter__(self) -> emit_cnpx:
        return self

    def __exit__(self, *error: object) -> None: ...


def make_module_contents() -> dict[str, Any]:
    """Return the names that both vendors' profiler modules have."""
    classes = (ProfilerLevel, AiCMetrics, ExportType, _ExperimentalConfig, profile, tensorboard_trace_handler)
    supported = (supported_activities, supported_profiler_level, supported_ai_core_metrics, supported_export_type)
    names = ("ProfilerActivity", "ProfilerAction", "schedule", "record_function")
    from_torch = {name: getattr(torch.profiler, name) for name in names}
    return {**{member.__name__: member for member in (*classes, *supported)}, **from_torch}
