"""Start and end of the device's resources without a session."""

from __future__ import annotations

import os
from typing import Any

from viaduct.rehearsal.tf1_stage import state

_saturation_mode = 1  # argument of set_device_sat_mode; the CPU always computes inf and nan


def npu_resource_init(
    graph_run_mode: int = 1,
    op_debug_level: int = 0,
    enable_profiling: bool = False,
    profiling_options: str | None = None,
    precision_mode: str | None = None,
    enable_scope_fusion_passes: str | None = None,
    enable_exception_dump: int = 2,
    aoe_mode: str | None = None,
    work_path: str | None = None,
    op_compiler_cache_mode: str | None = None,
    op_compiler_cache_dir: str | None = None,
    debug_dir: str | None = None,
    hcom_multi_mode: bool = False,
    distribute_config: str | None = None,
    aoe_config_file: str | None = None,
    precision_mode_v2: str | None = None,
) -> None:
    """Start communication; raise ValueError for an invalid option.

    Checked are the options with a fixed set of values, and that work_path is a folder. The others are ignored.
    """
    from viaduct.rehearsal.tf1_stage.options import OPTION_CHOICES

    checked: dict[str, Any] = {"graph_run_mode": graph_run_mode, "precision_mode": precision_mode, "aoe_mode": aoe_mode}
    checked |= {"precision_mode_v2": precision_mode_v2, "enable_exception_dump": enable_exception_dump}
    for name, value in checked.items():
        if value is not None and value not in OPTION_CHOICES[name]:
            raise ValueError(f"{name} must be one of {list(OPTION_CHOICES[name])}, got {value!r}")
    if work_path is not None and not os.path.isdir(work_path):
        raise ValueError(f"work_path {work_path!r} is no folder")
    state.set_communication(True)


def npu_resource_shutdown() -> None:
    state.set_communication(False)


npu_close = npu_resource_shutdown


def set_device_sat_mode(mode: int) -> None:
    """Store the mode for values that overflow: 0 saturates them, 1 makes them inf or nan."""
    global _saturation_mode
    if mode not in (0, 1):
        raise ValueError(f"mode must be 0 or 1, got {mode!r}")
    _saturation_mode = mode


def is_inf_nan_enabled() -> bool:
    return _saturation_mode == 1
