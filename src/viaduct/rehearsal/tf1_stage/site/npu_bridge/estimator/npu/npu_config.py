"""NPURunConfig and the classes of its arguments, with the checks of Ascend's TF Adapter."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable
from enum import Enum
from typing import Any

import tensorflow.compat.v1 as tf

from viaduct.rehearsal import limits

LEGACY_ARGUMENTS = ("auto_tune_mode", "enable_auto_mix_precision")  # of older releases; ignored with a warning
# Default steps between checkpoints; TensorFlow would save every 600 s.
CHECKPOINT_STEPS = 100


class NpuExecutePlacement(Enum):
    """Engines of the NPU on which an operator may run."""

    ALL = "all"
    CUBE = "cube"
    VECTOR = "vector"
    TAISHAN = "taishan"
    DVPP = "dvpp"
    HOST = "host"


class CheckedArguments(type):
    """Metaclass of NPURunConfig. It reports arguments that the class does not have, before Python refuses them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        for name in [name for name in kwargs if name in LEGACY_ARGUMENTS]:
            tf.logging.warning("NPURunConfig: %s is no longer an option and does nothing", name)
            kwargs.pop(name)
        parameters = inspect.signature(cls).parameters
        if args and not isinstance(args[0], int):  # RunConfig(model_dir) was changed to NPURunConfig(model_dir)
            limits.report_violation("run-config", "positional", config=cls.__name__, value=args[0])
        for name in kwargs:
            if name not in parameters:
                limits.report_violation("run-config", config=cls.__name__, name=name)
        return super().__call__(*args, **kwargs)


class NPURunConfig(tf.estimator.RunConfig, metaclass=CheckedArguments):  # type: ignore[misc]
    """The Estimator's RunConfig with attributes for the options of the NPU."""

    def __init__(
        self,
        iterations_per_loop: int = 1,
        profiling_config: Any = None,
        model_dir: str | None = None,
        tf_random_seed: int | None = None,
        save_summary_steps: int = 0,
        save_checkpoints_steps: int | None = None,
        save_checkpoints_secs: int | None = None,
        session_config: Any = None,
        keep_checkpoint_max: int = 5,
        keep_checkpoint_every_n_hours: int = 10000,
        log_step_count_steps: int = 100,
        distribute: Any = None,
        enable_data_pre_proc: bool = True,
        precision_mode: str | None = None,
        enable_reduce_precision: bool = False,
        variable_format_optimize: bool | None = None,
        mix_compile_mode: bool = False,
        hcom_parallel: bool = True,
        graph_memory_max_size: Any = None,
        variable_memory_max_size: Any = None,
        dump_config: Any = None,
        stream_max_parallel_num: str | None = None,
        is_tailing_optimization: bool = False,
        horovod_mode: bool = False,
        graph_run_mode: int = 1,
        op_debug_level: int | None = None,
        enable_scope_fusion_passes: str | None = None,
        enable_exception_dump: int = 2,
        op_select_implmode: str | None = None,
        optypelist_for_implmode: str | None = None,
        dynamic_input_config: Any = None,
        aoe_mode: str | None = None,
        work_path: str | None = None,
        buffer_optimize: str = "l2_optimize",
        enable_small_channel: int = 0,
        fusion_switch_file: str | None = None,
        enable_compress_weight: bool = False,
        compress_weight_conf: str | None = None,
        op_compiler_cache_mode: str | None = None,
        op_compiler_cache_dir: str | None = None,
        debug_dir: str | None = None,
        hcom_multi_mode: bool = False,
        dynamic_input: bool | None = None,
        dynamic_graph_execute_mode: str = "dynamic_execute",
        dynamic_inputs_shape_range: str | None = None,
        train_distribute: Any = None,
        eval_distribute: Any = None,
        local_rank_id: int | None = None,
        local_device_list: str | None = None,
        session_device_id: int | None = None,
        distribute_config: str | None = None,
        modify_mixlist: str | None = None,
        op_precision_mode: str | None = None,
        device_type: str = "default_device_type",
        soc_config: str | None = None,
        hccl_timeout: int | None = None,
        op_wait_timeout: int | None = None,
        op_execute_timeout: int | None = None,
        HCCL_algorithm: str | None = None,
        customize_dtypes: str | None = None,
        op_debug_config: str | None = None,
        memory_config: Any = None,
        experimental_config: Any = None,
        topo_sorting_mode: int | None = None,
        aoe_config_file: str | None = None,
        insert_op_file: str | None = None,
        stream_sync_timeout: int = -1,
        event_sync_timeout: int = -1,
        external_weight: bool = False,
        es_cluster_config: str | None = None,
        deterministic: int = 0,
        frozen_variable: bool = False,
        variable_placement: str = "Device",
        jit_compile: str = "auto",
        precision_mode_v2: str | None = None,
        ac_parallel_enable: str | None = None,
    ) -> None:
        arguments = dict(locals())
        check_values(arguments)
        check_cluster(distribute, mix_compile_mode)
        for name in OWN_OPTIONS:
            setattr(self, name, arguments[name])
        self._profiling_config, self._dump_config = profiling_config, dump_config  # the adapter's names for these two
        if save_checkpoints_steps is None and save_checkpoints_secs is None:
            arguments["save_checkpoints_steps"] = CHECKPOINT_STEPS
        super().__init__(**{name: arguments[name] for name in BASE_OPTIONS})


PARAMETERS = list(inspect.signature(NPURunConfig.__init__).parameters.values())[1:]  # without `self`
BASE_PARAMETERS = inspect.signature(tf.estimator.RunConfig.__init__).parameters
BASE_OPTIONS = [parameter.name for parameter in PARAMETERS if parameter.name in BASE_PARAMETERS]
OWN_OPTIONS = [parameter.name for parameter in PARAMETERS if parameter.name not in BASE_PARAMETERS]
# For the metaclass and help(): inspect would return the signature of the metaclass's `__call__`.
NPURunConfig.__signature__ = inspect.Signature(PARAMETERS)


def check_values(arguments: dict[str, Any]) -> None:
    """Raise ValueError for invalid arguments of NPURunConfig, in the order of the adapter's checks."""
    loops, mixed = arguments["iterations_per_loop"], arguments["mix_compile_mode"]
    if not isinstance(loops, int) or isinstance(loops, bool) or loops < 1:
        raise ValueError(f"iterations_per_loop must be an positive integer, got {loops!r}")
    if not isinstance(mixed, bool):
        raise ValueError(f'"mix_compile_mode" type must be bool, got {mixed!r}')
    if mixed and loops > 1:
        raise ValueError(f'"iterations_per_loop" must be 1 when "mix_compile_mode" is True, got {loops}')
    if not isinstance(arguments["jit_compile"], str):
        raise ValueError(f'"jit_compile" type must be str, got {arguments["jit_compile"]!r}')
    if not isinstance(arguments["horovod_mode"], bool):
        raise ValueError(f'"horovod_mode" type must be bool, got {arguments["horovod_mode"]!r}')
    if arguments["graph_run_mode"] not in (0, 1):
        raise ValueError(f'"graph_run_mode" value must be 0 or 1, got {arguments["graph_run_mode"]!r}')
    classes = {"dump_config": DumpConfig, "dynamic_input_config": DynamicInputConfig}
    for name, kind in {**classes, "experimental_config": ExperimentalConfig}.items():
        if arguments[name] is not None and not isinstance(arguments[name], kind):
            raise ValueError(f"`{name}` must be provided with type `{kind.__name__}`")


def check_cluster(distribute: Any, mixed: bool) -> None:
    """Raise ValueError if TF_CONFIG has a cluster, but no ParameterServerStrategy or no mix_compile_mode is set."""
    if not json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster"):
        return
    if type(distribute).__name__ not in ("ParameterServerStrategy", "ParameterServerStrategyV1"):
        raise ValueError('"distribute" must be a ParameterServerStrategy when TF_CONFIG names a cluster')
    if not mixed:
        raise ValueError('"mix_compile_mode" can only be True when "distribute" is a ParameterServerStrategy')


def set_private_attributes(arguments: dict[str, Any]) -> None:
    """Store the arguments of an `__init__`, its locals(), in attributes with a leading underscore."""
    vars(arguments["self"]).update({f"_{name}": value for name, value in arguments.items() if name != "self"})


class ProfilingConfig:
    """Options of CANN's profiler."""

    def __init__(self, enable_profiling: bool = False, profiling_options: str | None = None) -> None:
        set_private_attributes(locals())


class DumpConfig:
    """Options of a dump of the device's tensors."""

    def __init__(
        self,
        enable_dump: bool = False,
        dump_path: str | None = None,
        dump_step: str | None = None,
        dump_mode: str = "output",
        enable_dump_debug: bool = False,
        dump_debug_mode: str = "all",
        dump_data: str = "tensor",
        dump_layer: str | None = None,
    ) -> None:
        set_private_attributes(locals())


class MemoryConfig:
    """Options of the device's memory."""

    def __init__(
        self, atomic_clean_policy: int = 0, static_memory_policy: int = 0, memory_optimization_policy: str | None = None
    ) -> None:
        set_private_attributes(locals())


class DynamicInputConfig:
    """Shapes that a dynamic input may have."""

    def __init__(self, input_shape: str, dynamic_dims: str, dynamic_node_type: int) -> None:
        set_private_attributes(locals())


class GraphMemoryOptimizeConfig:
    """Options of recomputing and slicing to save memory."""

    def __init__(self, recompute: str | None = None, graph_slice: str | None = None) -> None:
        for name, value in (("recompute", recompute), ("graph_slice", graph_slice)):
            if value not in (None, "auto", "manual"):
                raise ValueError(f'"{name}" must be in ["auto", "manual"], got {value!r}')
        self._recompute = recompute
        self._graph_slice = graph_slice


class ExperimentalConfig:
    """Experimental options of Ascend's TF Adapter."""

    def __init__(
        self,
        logical_device_cluster_deploy_mode: str = "LB",
        logical_device_id: str | None = None,
        model_deploy_mode: str | None = None,
        model_deploy_devicelist: str | None = None,
        graph_memory_optimize_config: GraphMemoryOptimizeConfig | None = None,
        enable_graph_parallel: bool | None = None,
        graph_parallel_option_path: str | None = None,
        graph_compiler_cache_dir: str | None = None,
        resource_config_path: str | None = None,
        accelerate_train_mode: str | None = None,
    ) -> None:
        set_private_attributes(locals())


def decorator_tf_session(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a session class's `__init__` so that its config has the NPU's options."""

    @functools.wraps(func)
    def wrapper(self: Any, target: str = "", graph: Any = None, config: Any = None) -> Any:
        from ...npu_init import npu_config_proto

        return func(self, target, graph, npu_config_proto(config))

    return wrapper
