"""Options as they travel: from an NPURunConfig into the custom optimizer of a session's config."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from viaduct.rehearsal.tf1_stage.options import FIELDS

OPTIMIZERS = (
    *("pruning", "function", "constfold", "shape", "arithmetic", "loop", "dependency", "layout"),
    "GradFusionOptimizer",
)


def npu_session_config(config: Any = None) -> Any:
    """A copy that holds NpuOptimizer, soft placement, no remapping and no XLA; what was there already stays."""
    made = config_pb2.ConfigProto()
    if config is not None:
        made.CopyFrom(config)
    rewrites = made.graph_options.rewrite_options
    if not any(entry.name == "NpuOptimizer" for entry in rewrites.custom_optimizers):
        rewrites.custom_optimizers.add().name = "NpuOptimizer"
        rewrites.memory_optimization = RewriterConfig.OFF
    own = custom_op(made)
    if "use_off_line" not in own.parameter_map:
        own.parameter_map["use_off_line"].b = True
    rewrites.remapping = RewriterConfig.OFF
    made.allow_soft_placement = True
    made.graph_options.optimizer_options.global_jit_level = config_pb2.OptimizerOptions.OFF
    return made


def custom_op(config: Any) -> Any:
    entries = config.graph_options.rewrite_options.custom_optimizers
    return next(entry for entry in entries if entry.name == "NpuOptimizer")


def fill(config: Any, run_config: Any) -> None:
    """Copy the options of an NPURunConfig into a config."""
    entries = custom_op(config).parameter_map
    for key, value in spoken(run_config).items():
        if value is not None and key in FIELDS and key not in entries:
            field = FIELDS[key]
            setattr(entries[key], field, str(value).encode() if field == "s" else value)


def spoken(run_config: Any) -> dict[str, Any]:
    own = {key: value for key, value in vars(run_config).items() if not key.startswith("_")}
    for part in ("_dump_config", "memory_config", "dynamic_input_config", "experimental_config"):
        own.update({key[1:]: value for key, value in vars(getattr(run_config, part) or Nothing()).items()})
    profiling = run_config._profiling_config
    if profiling is not None and profiling._enable_profiling:
        own.update(profiling_mode=True, profiling_options=profiling._profiling_options)
    return own


class Nothing:
    """Nothing was given."""


def add_optimizers(config: Any) -> None:
    """A list that is not empty replaces Grappler's own: all of it is written."""
    rewrites = config.graph_options.rewrite_options
    rewrites.optimizers.extend(name for name in OPTIMIZERS if name not in rewrites.optimizers)
