"""Copies the options of an NPURunConfig into the custom optimizer NpuOptimizer of a session's config."""

from __future__ import annotations

from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from viaduct.rehearsal.tf1_stage.options import OPTION_FIELDS

OPTIMIZER_PASSES = (  # of Grappler, TensorFlow's graph optimizer: the default passes and the NPU's
    "pruning", "function", "constfold", "shape", "arithmetic", "loop", "dependency", "layout",
    "GradFusionOptimizer",
)  # fmt: skip


def npu_session_config(config: Any = None) -> Any:
    """Return a copy of a config with NpuOptimizer and soft placement, and without remapping and XLA."""
    npu_config = config_pb2.ConfigProto()
    if config is not None:
        npu_config.CopyFrom(config)
    rewrites = npu_config.graph_options.rewrite_options
    if not any(entry.name == "NpuOptimizer" for entry in rewrites.custom_optimizers):
        rewrites.custom_optimizers.add().name = "NpuOptimizer"
        rewrites.memory_optimization = RewriterConfig.OFF
    parameters = parameter_map(npu_config)
    if "use_off_line" not in parameters:
        parameters["use_off_line"].b = True
    rewrites.remapping = RewriterConfig.OFF
    npu_config.allow_soft_placement = True
    npu_config.graph_options.optimizer_options.global_jit_level = config_pb2.OptimizerOptions.OFF
    return npu_config


def parameter_map(config: Any) -> Any:
    """Return the parameter_map of a config's NpuOptimizer."""
    entries = config.graph_options.rewrite_options.custom_optimizers
    return next(entry for entry in entries if entry.name == "NpuOptimizer").parameter_map


def copy_options(run_config: Any, config: Any) -> None:
    """Copy the options of an NPURunConfig into a config; options of the config are not replaced."""
    parameters = parameter_map(config)
    for key, value in collect_options(run_config).items():
        if value is not None and key in OPTION_FIELDS and key not in parameters:
            field = OPTION_FIELDS[key]
            setattr(parameters[key], field, str(value).encode() if field == "s" else value)


def collect_options(run_config: Any) -> dict[str, Any]:
    """Return the options of an NPURunConfig and its inner objects by their keys in parameter_map."""
    options = {key: value for key, value in vars(run_config).items() if not key.startswith("_")}
    for name in ("_dump_config", "memory_config", "dynamic_input_config", "experimental_config"):
        if (inner := getattr(run_config, name)) is not None:
            options |= {key.removeprefix("_"): value for key, value in vars(inner).items()}
    profiling = run_config._profiling_config
    if profiling is not None and profiling._enable_profiling:
        options |= {"profiling_mode": True, "profiling_options": profiling._profiling_options}
    return options


def add_optimizers(config: Any) -> None:
    """Add OPTIMIZER_PASSES to a config; with a list of passes TensorFlow runs no others, also not its default ones."""
    rewrites = config.graph_options.rewrite_options
    rewrites.optimizers.extend(name for name in OPTIMIZER_PASSES if name not in rewrites.optimizers)
