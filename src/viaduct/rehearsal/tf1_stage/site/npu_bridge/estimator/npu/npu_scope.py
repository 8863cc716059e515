"""Scopes that mark operators for the NPU's compiler; the CPU ignores the marks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.core.framework import attr_value_pb2

from .npu_config import NpuExecutePlacement


@contextmanager
def attribute_scope(**attributes: Any) -> Iterator[None]:
    """Set private attributes of the operators that are created within the block."""
    values = {}
    for name, value in attributes.items():
        field = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "s"  # bool, int64, bytes
        values[name] = attr_value_pb2.AttrValue(**{field: value.encode() if isinstance(value, str) else value})
    with tf.get_default_graph()._attr_scope(values):
        yield


def without_npu_compile_scope() -> Any:
    return attribute_scope(_without_npu_compile=True)


def keep_dtype_scope() -> Any:
    return attribute_scope(_keep_dtype=1)


def npu_variable_scope(placement: Any) -> Any:
    return attribute_scope(
        _variable_placement=placement.value if isinstance(placement, NpuExecutePlacement) else str(placement)
    )


def npu_stage_scope(stage: int) -> Any:
    return attribute_scope(_stage_level=stage)


def npu_mem_type_scope() -> Any:
    return attribute_scope(_output_memory_type=1)


def npu_weight_prefetch_scope(buffer_pool_id: int = 0, buffer_pool_size: int = 536870912) -> Any:
    return attribute_scope(_buffer_pool_id=buffer_pool_id, _buffer_pool_size=buffer_pool_size)


def op_specified_engine_scope(engine_name: str, kernel_lib_name: str) -> Any:
    return attribute_scope(_specified_engine_name=engine_name, _specified_kernel_lib_name=kernel_lib_name)


def npu_qos_label_scope(label: int) -> Any:
    return attribute_scope(_qos_service_label=label)


def subgraph_multi_dims_scope(index: int) -> Any:
    return attribute_scope(_subgraph_multi_dims_index=index)


def npu_optimizer_scope() -> Any:
    return attribute_scope(_optimizer=True)


def npu_recompute_scope() -> Any:
    return attribute_scope(_recompute=True)


def npu_graph_slice_scope(slice_num: int | None = None) -> Any:
    return attribute_scope(_graph_slice=True, **({} if slice_num is None else {"_graph_slice_num": slice_num}))
