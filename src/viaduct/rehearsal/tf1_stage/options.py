"""Checks the NPU's session options, which a script sets in the parameter_map of the custom optimizer NpuOptimizer.

TensorFlow itself reads none of these options. So a misspelled key, a flag in the wrong field or a rewrite that the
device does not support has no effect on a CPU. They are reported at the line that opened the session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from viaduct.cards import NPU
from viaduct.cards.cann_options import DUMP_STEPS, PRECISION_MODES, PRECISION_MODES_V2
from viaduct.errors import find_closest
from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import state

Location = limits.Line | None  # the script's line that opened the session
NPU_OPTIMIZER = "NpuOptimizer"

# Keys of parameter_map by the type of their values.
BOOLEAN_OPTIONS = (
    "use_off_line", "mix_compile_mode", "lower_functional_ops", "enable_data_pre_proc", "hcom_parallel",
    "enable_reduce_precision", "hcom_multi_mode", "is_tailing_optimization", "external_weight", "frozen_variable",
    "profiling_mode", "enable_dump", "enable_dump_debug", "enable_compress_weight", "dynamic_input",
    "in_out_pair_flag", "variable_format_optimize", "enable_graph_parallel", "min_group_size",
)  # fmt: skip
INTEGER_OPTIONS = (
    "iterations_per_loop", "deterministic", "hccl_timeout", "local_rank_id", "session_device_id", "task_index",
    "graph_run_mode", "static_memory_policy", "atomic_clean_policy", "stream_sync_timeout", "event_sync_timeout",
    "op_wait_timeout", "op_execute_timeout", "graph_exec_timeout", "enable_exception_dump", "op_debug_level",
    "enable_small_channel", "topo_sorting_mode", "dynamic_node_type",
)  # fmt: skip
STRING_OPTIONS = (
    "precision_mode", "precision_mode_v2", "modify_mixlist", "op_precision_mode", "customize_dtypes",
    "HCCL_algorithm", "local_device_list", "device_type", "soc_config", "job", "graph_memory_max_size",
    "variable_memory_max_size", "memory_optimization_policy", "variable_placement", "stream_max_parallel_num",
    "ac_parallel_enable", "profiling_options", "dump_path", "dump_step", "dump_mode", "dump_debug_mode", "dump_data",
    "dump_layer", "op_debug_config", "debug_dir", "fusion_switch_file", "buffer_optimize", "compress_weight_conf",
    "op_select_implmode", "optypelist_for_implmode", "op_compiler_cache_mode", "op_compiler_cache_dir",
    "enable_scope_fusion_passes", "insert_op_file", "input_shape", "dynamic_dims", "dynamic_graph_execute_mode",
    "dynamic_inputs_shape_range", "aoe_mode", "work_path", "distribute_config", "aoe_config_file", "jit_compile",
    "graph_slice", "in_out_pair", "auto_tune_mode", "es_cluster_config", "resource_config_path",
    "graph_parallel_option_path", "graph_compiler_cache_dir",
)  # fmt: skip
# By key: the field of its AttrValue (a protocol buffer) that must hold the value.
OPTION_FIELDS: dict[str, str] = {
    **dict.fromkeys(BOOLEAN_OPTIONS, "b"),
    **dict.fromkeys(INTEGER_OPTIONS, "i"),
    **dict.fromkeys(STRING_OPTIONS, "s"),
}
OPTION_CHOICES: dict[str, tuple[str | int, ...]] = {
    "precision_mode": PRECISION_MODES,
    "precision_mode_v2": PRECISION_MODES_V2,
    "dump_mode": ("input", "output", "all"),
    "dump_debug_mode": ("aicore_overflow", "atomic_overflow", "all"),
    "dump_data": ("tensor", "stats"),
    "buffer_optimize": ("l2_optimize", "off_optimize"),
    "enable_exception_dump": (0, 1, 2),
    "graph_run_mode": (0, 1),
    "jit_compile": ("true", "false", "auto"),
    "graph_slice": ("auto", "manual"),
    "dynamic_graph_execute_mode": ("lazy_recompile", "dynamic_execute"),
    "aoe_mode": ("1", "2", "4", "mdat"),
}
DYNAMIC_INPUT_OPTIONS = ("input_shape", "dynamic_dims", "dynamic_node_type")  # all three or none
FIELD_TYPES = {"s": "bytes", "b": "bool", "i": "int"}  # by field of an AttrValue


@dataclass(frozen=True)
class SessionOptions:
    """The NPU's options of a session; the defaults for a session without NpuOptimizer."""

    is_on_npu: bool = False  # the session computes on the NPU
    values: dict[str, Any] = field(default_factory=dict)


# Value of inter_op_parallelism_threads with which the thread that calls Session.run executes all operators.
CALLERS_THREAD = -1


def prepare_config(config: Any, threads: int) -> Any:
    """Return a copy of a session's config for TensorFlow, with at least `threads` threads.

    Several ranks need threads for collectives that wait. With one rank `threads` is 0, and operators are computed one
    by one: a read and a write of a variable whose order the script leaves open have the same order in every run.
    """
    from tensorflow.core.protobuf.config_pb2 import ConfigProto

    copy = ConfigProto()
    if config is not None:
        copy.CopyFrom(config)
    if threads:
        copy.inter_op_parallelism_threads = max(threads, copy.inter_op_parallelism_threads)
    else:
        copy.inter_op_parallelism_threads = CALLERS_THREAD
    return copy


def read_options(config: Any, at: Location) -> SessionOptions:
    """Return the NPU's options of a config after checking them."""
    if config is None or state.platform != "npu":
        return SessionOptions()
    rewrites = config.graph_options.rewrite_options
    optimizers = [entry for entry in rewrites.custom_optimizers if entry.name == NPU_OPTIMIZER]
    if not optimizers:
        return SessionOptions()
    check_rewrites(config, rewrites, at)
    check_visible_devices(at)
    parameter_map = optimizers[0].parameter_map
    values = {key: read_value(entry) for key, entry in parameter_map.items()}
    check_map(parameter_map, values, at)
    return SessionOptions(bool(values.get("use_off_line", True)), values)


def read_value(entry: Any) -> Any:
    """Return the value of an entry of parameter_map; bytes become str."""
    field_name = entry.WhichOneof("value")
    value = getattr(entry, field_name) if field_name else None
    return value.decode() if isinstance(value, bytes) else value


# ---- rewrites


def check_rewrites(config: Any, rewrites: Any, at: Location) -> None:
    """Report Grappler's passes that rewrite the graph for other devices."""
    if rewrites.remapping != rewrites.OFF:
        limits.report_violation("remapping", at=at)
    for case, setting in list_unsupported(config, rewrites):
        limits.report_violation("rewrite-options", case, setting=setting, at=at)


def list_unsupported(config: Any, rewrites: Any) -> Iterator[tuple[str, str]]:
    """Yield each setting that the NPU does not support, after its case of the limit "rewrite-options"."""
    if config.graph_options.optimizer_options.global_jit_level > 0:
        yield "xla", "global_jit_level (XLA)"
    if rewrites.disable_model_pruning:
        yield "pruning", "disable_model_pruning"
    if rewrites.auto_mixed_precision == rewrites.ON:
        yield "mixed precision", "auto_mixed_precision = ON"
    required = ("function_optimization", "constant_folding", "shape_optimization", "arithmetic_optimization")
    for name in (*required, "loop_optimization", "dependency_optimization", "layout_optimizer"):
        if getattr(rewrites, name) == rewrites.OFF:
            yield "pass off", f"{name} = OFF"


def check_visible_devices(at: Location) -> None:
    """Report visible devices that are not numbers in ascending order, each once, joined by commas."""
    variable = NPU.visible_variable  # ASCEND_RT_VISIBLE_DEVICES
    value = os.environ.get(variable)
    if value is None:
        return
    numbers = sorted({int(number) for number in re.findall(r"\d+", value)})
    ascending = ",".join(map(str, numbers)) or "0"
    if value != ascending:
        limits.report_violation("visible-devices", variable=variable, value=value, ascending=ascending, at=at)


# ---- the parameter map

# Fault of an option: the case of the limit "parameter-map", and the fields of its sentences.
Fault = tuple[str, dict[str, Any]]


def check_map(entries: Any, values: dict[str, Any], at: Location) -> None:
    """Report options of parameter_map that are unknown, have the wrong type, or contradict each other."""
    faults = [find_fault(key, entry.WhichOneof("value"), values[key]) for key, entry in entries.items()]
    for case, fields in (*filter(None, faults), *find_contradictions(values)):
        limits.report_violation("parameter-map", case, at=at, **fields)


def find_fault(key: str, field_name: str | None, value: Any) -> Fault | None:
    """Return the fault of one entry; None if the entry is valid."""
    if key not in OPTION_FIELDS and not key.startswith("experimental_"):
        closest = find_closest(key, OPTION_FIELDS)
        return ("similar", {"key": key, "closest": closest}) if closest else ("unknown", {"key": key})
    required = OPTION_FIELDS.get(key, "s")
    if field_name != required:
        fields = {"key": key, "actual": field_name, "field": required, "type": FIELD_TYPES[required]}
        return ("field" if field_name else "no value"), fields
    choices = OPTION_CHOICES.get(key)
    if choices and value not in choices:
        return "choice", {"key": key, "value": value, "choices": ", ".join(map(str, choices))}
    return None


def find_contradictions(values: dict[str, Any]) -> Iterator[Fault]:
    """Yield the faults of options that need or exclude each other, and of folders and steps of a dump.

    A value in the wrong field may have any type; `find_fault` reports that.
    """
    if values.get("enable_dump") or values.get("enable_dump_debug"):
        path = values.get("dump_path")
        if not path:
            yield "dump without path", {}
        elif not os.path.isdir(str(path)) or not os.access(str(path), os.W_OK):
            yield "dump path", {"path": path}
    if (steps := values.get("dump_step")) and not is_step_list(str(steps)):
        yield "dump steps", {"steps": steps}
    if values.get("precision_mode") and values.get("precision_mode_v2"):
        yield "two precision modes", {}
    mode = values.get("precision_mode") or values.get("precision_mode_v2") or "unset"
    if values.get("modify_mixlist") and "mix" not in str(mode):
        yield "mixlist", {"mode": mode}
    if values.get("enable_compress_weight") and values.get("compress_weight_conf"):
        yield "two compressions", {}
    if values.get("optypelist_for_implmode") and not values.get("op_select_implmode"):
        yield "operator list", {}
    present = [name for name in DYNAMIC_INPUT_OPTIONS if name in values]
    if 0 < len(present) < len(DYNAMIC_INPUT_OPTIONS):
        yield "dynamic input", {"names": ", ".join(DYNAMIC_INPUT_OPTIONS), "present": ", ".join(present)}
    iterations = values.get("iterations_per_loop", 1)
    if values.get("mix_compile_mode") and iterations != 1:
        yield "mixed loop", {"iterations": iterations}


def is_step_list(text: str) -> bool:
    """Return True for steps such as 0|3-5, at most 100 entries, each range ascending."""
    entries = text.split("|")
    ranges = [entry.split("-") for entry in entries if "-" in entry]
    return bool(DUMP_STEPS.fullmatch(text)) and len(entries) <= 100 and all(int(a) < int(b) for a, b in ranges)
