"""Names for `from npu_bridge.npu_init import *`, and functions that add the NPU's options to configs.

As in Ascend's TF Adapter since April 2022, importing this module gives every session the NPU's config.
"""

# ruff: noqa: F401 - names that scripts import from here

from __future__ import annotations

import os
from typing import Any

import tensorflow.compat.v1 as tf
from hccl.manage.api import (
    create_group,
    destroy_group,
    get_group_rank_from_world_rank,
    get_local_rank_id,
    get_local_rank_size,
    get_rank_id,
    get_rank_size,
    get_world_rank_from_group_rank,
)
from hccl.split.api import set_split_strategy_by_idx, set_split_strategy_by_size
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.client import session
from tensorflow.python.training import session_run_hook

from .embedding import npu_embedding
from .estimator import npu_ops
from .estimator.npu import keras_to_npu, npu_common, npu_plugin, npu_rnn, npu_scope, npu_strategy, util
from .estimator.npu.npu_callbacks import NPUBroadcastGlobalVariablesCallback
from .estimator.npu.npu_config import (
    DumpConfig,
    DynamicInputConfig,
    MemoryConfig,
    NPURunConfig,
    ProfilingConfig,
    decorator_tf_session,
)
from .estimator.npu.npu_estimator import NPUEstimator, NPUEstimatorSpec
from .estimator.npu.npu_hook import (
    NPUBroadcastGlobalVariablesHook,
    NPUCheckpointSaverHook,
    NPUOutputTensorHook,
    SetIterationsVarHook,
    TellMeStepOrLossHook,
)
from .estimator.npu.npu_loss_scale_manager import ExponentialUpdateLossScaleManager, FixedLossScaleManager
from .estimator.npu.npu_loss_scale_optimizer import NPULossScaleOptimizer
from .estimator.npu.npu_optimizer import (
    KerasDistributeOptimizer,
    NPUDistributedOptimizer,
    NPUOptimizer,
    npu_allreduce,
    npu_distributed_optimizer_wrapper,
)
from .estimator.npu_unary_ops import npu_unary_ops
from .hccl import hccl_ops

backend = tf.keras.backend
# What scripts pass to tf.config.optimizer.set_experimental_options.
experimental_options: dict[str, Any] = {
    "disable_model_pruning": False,
    "function_optimization": True,
    "constant_folding": True,
    "shape_optimization": True,
    "arithmetic_optimization": True,
    "loop_optimization": True,
    "dependency_optimization": True,
    "layout_optimizer": True,
    "remapping": False,
    "memory_optimization": False,
}
# Results of get_npu_rank_id, get_npu_rank_size and their local variants; set by init_resource.
_ranks = {"rank_id": 0, "local_rank_id": 0, "rank_size": 1, "local_rank_size": 1}


class NpuEmptyHook(session_run_hook.SessionRunHook):  # type: ignore[misc]
    """Hook without effect, as a placeholder in a list of hooks."""


def npu_hooks_append(hooks_list: Any = ()) -> list[Any]:
    """Return a list of hooks with a broadcast hook at its end; other arguments than lists are ignored."""
    hooks = list(hooks_list) if isinstance(hooks_list, list) else []
    return [*hooks, NPUBroadcastGlobalVariablesHook(0, int(os.getenv("RANK_ID", "0")))]


def npu_callbacks_append(callbacks_list: Any = ()) -> list[Any]:
    callbacks = list(callbacks_list) if isinstance(callbacks_list, list) else []
    return [*callbacks, NPUBroadcastGlobalVariablesCallback(0)]


def npu_config_proto(config_proto: Any = None) -> Any:
    """Return a config with the NPU's options; `config_proto` is changed in place."""
    npu_config = npu_common.npu_session_config(config_proto)
    if config_proto is None:
        return npu_config
    config_proto.CopyFrom(npu_config)
    return config_proto


def npu_graph_options(graph_options: Any = None) -> Any:
    config = config_pb2.ConfigProto()
    if graph_options is not None:
        config.graph_options.CopyFrom(graph_options)
    return npu_common.npu_session_config(config).graph_options


def npu_optimizer_options(optimizer_options: Any = None) -> Any:
    options = optimizer_options if optimizer_options is not None else config_pb2.OptimizerOptions()
    options.global_jit_level = config_pb2.OptimizerOptions.OFF
    return options


def npu_run_config_init(run_config: Any = None) -> Any:
    """Return a RunConfig with the NPU's session config, for canned Estimators."""
    run_config = run_config if run_config is not None else tf.estimator.RunConfig()
    return run_config.replace(session_config=npu_common.npu_session_config(run_config.session_config))


def set_keras_session_npu_config(config: Any = None) -> Any:
    npu_session = session.Session(config=npu_common.npu_session_config(config))
    backend.set_session(npu_session)
    return npu_session


def init_resource(config: Any = None) -> tuple[Any, Any]:
    """Start communication in a new session; return the session and the operator that ends communication."""
    npu_session = session.Session(config=npu_common.npu_session_config(config))
    with npu_session.graph.as_default():
        start, stop = npu_ops.initialize_system(), npu_ops.shutdown_system()
    npu_session.run(start)
    _ranks.update(rank_id=get_rank_id(), local_rank_id=get_local_rank_id())
    _ranks.update(rank_size=get_rank_size(), local_rank_size=get_local_rank_size())
    return npu_session, stop


def shutdown_resource(sess: Any, npu_shutdown: Any) -> None:
    sess.run(npu_shutdown)


def close_session(sess: Any) -> None:
    sess.close()


def get_npu_rank_id() -> int:
    return _ranks["rank_id"]


def get_npu_local_rank_id() -> int:
    return _ranks["local_rank_id"]


def get_npu_rank_size() -> int:
    return _ranks["rank_size"]


def get_npu_local_rank_size() -> int:
    return _ranks["local_rank_size"]


def npu_keras_optimizer(opt: Any) -> Any:
    return KerasDistributeOptimizer(opt)


def npu_tf_optimizer(opt: Any) -> Any:
    return NPUDistributedOptimizer(opt)


def npu_clear_session(config: Any = None) -> None:
    """Clear Keras' session and set a new one with the NPU's config."""
    backend.clear_session()
    set_keras_session_npu_config(config)


session.Session.__init__ = decorator_tf_session(session.Session.__init__)
session.InteractiveSession.__init__ = decorator_tf_session(session.InteractiveSession.__init__)
