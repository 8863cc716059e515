"""Collectives between local ranks as operators of a graph. The gradient of an allreduce is an allreduce sum.

`fusion` and `fusion_id`, with which HCCL joins several collectives, have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from viaduct.cards import NPU
from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import collectives, state

from ..estimator.npu_ops import make_host_op

WORLD = collectives.WORLD


def allreduce(tensor: Any, reduction: str, fusion: int = 1, fusion_id: int = -1, group: str = WORLD) -> Any:
    check_reduction("allreduce", reduction)
    return collectives.allreduce([make_reducible_tensor("allreduce", tensor)], reduction, group)[0]


def allgather(tensor: Any, rank_size: int, group: str = WORLD, fusion: int = 0, fusion_id: int = -1) -> Any:
    check_size("allgather", rank_size, group)
    tensor = make_sendable_tensor("allgather", tensor)
    if tensor.shape.rank == 0:
        raise ValueError("Shape must be at least rank 1 but is rank 0 for 'HcomAllGather'")
    return collectives.allgather(tensor, group)


def broadcast(
    tensor: Sequence[Any], root_rank: int, fusion: int = 2, fusion_id: int = 0, group: str = WORLD
) -> list[Any]:
    """Return a list of tensors with the root rank's values."""
    if not isinstance(tensor, (list, tuple)):
        raise TypeError(f"Expected list for 'inputs' argument to 'HcomBroadcast' Op, not {tensor!r}.")
    check_root("broadcast", root_rank, group)
    return collectives.broadcast([make_sendable_tensor("broadcast", part) for part in tensor], root_rank, group)


def reduce(
    tensor: Any, reduction: str, root_rank: int, fusion: int = 0, fusion_id: int = -1, group: str = WORLD
) -> Any:
    """Return the reduction on the root rank and zeros on the others."""
    check_reduction("reduce", reduction)
    check_root("reduce", root_rank, group)
    (total,) = collectives.allreduce([make_reducible_tensor("reduce", tensor)], reduction, group, "HcomReduce")
    if state.rank() == collectives.list_members(group)[root_rank]:
        return total
    with tf.control_dependencies([total]):  # without this rank's part the root would wait
        return tf.zeros(tf.shape(tensor), total.dtype)


def reduce_scatter(
    tensor: Any, reduction: str, rank_size: int, group: str = WORLD, fusion: int = 0, fusion_id: int = -1
) -> Any:
    check_reduction("reduce_scatter", reduction)
    check_size("reduce_scatter", rank_size, group)
    tensor = make_reducible_tensor("reduce_scatter", tensor)
    rows = tensor.shape[0].value if tensor.shape.rank else None
    if rows is not None and rows % rank_size:
        raise ValueError(f"reduce_scatter: the first dimension, {rows}, is not divisible by rank_size {rank_size}")
    return collectives.reduce_scatter(tensor, reduction, group)


def send(tensor: Any, sr_tag: int, dest_rank: int, group: str = WORLD) -> Any:
    """Return the operator that sends a tensor to the rank that receives with the same tag."""
    check_peer("send", dest_rank, group)
    target = collectives.list_members(group)[dest_rank]
    key = f"{group}|p2p.{sr_tag}.{state.rank()}-{target}"
    tensors = [make_sendable_tensor("send", tensor)]
    return make_host_op(lambda array: collectives.send_array(key, array, target), tensors, "HcomSend")


def receive(shape: Sequence[int], data_type: Any, sr_tag: int, src_rank: int, group: str = WORLD) -> Any:
    check_peer("receive", src_rank, group)
    source = collectives.list_members(group)[src_rank]
    key, dtype = f"{group}|p2p.{sr_tag}.{source}-{state.rank()}", tf.as_dtype(data_type)
    check_dtype("receive", dtype, NPU.exchanged_dtypes)

    def receive_array() -> Any:
        return collectives.receive_array(key, source, shape, dtype.as_numpy_dtype)

    tensor = tf.numpy_function(receive_array, [], dtype, name="HcomReceive")
    tensor.set_shape(shape)
    return tensor


def all_to_all_v(
    send_data: Any,
    send_counts: Any,
    send_displacements: Any,
    recv_counts: Any,
    recv_displacements: Any,
    group: str = WORLD,
) -> Any:
    """Send a slice of a flat tensor to each rank; return the slices from all ranks as one flat tensor.

    Counts are the slices' lengths by rank, displacements their starts, in elements.
    """
    ranks = collectives.list_members(group)
    key, own_index = collectives.make_key("HcomAllToAllV", group), ranks.index(state.rank())
    send_data = make_sendable_tensor("all_to_all_v", send_data)
    dtype = send_data.dtype

    def exchange(data: Any, counts: Any, starts: Any, recv_counts: Any, recv_starts: Any) -> Any:
        flat = np.asarray(data).reshape(-1)
        slices = [flat[start : start + count] for start, count in zip(starts, counts, strict=True)]
        received = np.zeros(int((recv_starts + recv_counts).max()), flat.dtype)
        own_slices = exchange_slices(key, ranks, own_index, slices)
        for part, start, count in zip(own_slices, recv_starts, recv_counts, strict=True):
            received[start : start + count] = part[:count]
        return received

    integers = (send_counts, send_displacements, recv_counts, recv_displacements)
    inputs = [send_data, *(tf.cast(numbers, tf.int64) for numbers in integers)]
    return tf.numpy_function(exchange, inputs, dtype, name="HcomAllToAllV")


def all_to_all_v_c(
    send_data: Any, send_count_matrix: Any, rank: int, fusion: int = 0, fusion_id: int = -1, group: str = WORLD
) -> Any:
    """Exchange as all_to_all_v, with one matrix of counts; row i has the counts that rank i sends."""
    matrix = tf.cast(send_count_matrix, tf.int64)
    sends, receives = matrix[rank], matrix[:, rank]
    starts, offsets = tf.cumsum(sends, exclusive=True), tf.cumsum(receives, exclusive=True)
    return all_to_all_v(send_data, sends, starts, receives, offsets, group)


def refuse_remote(name: str) -> Any:
    """Return a function that refuses an operation on addresses of device memory."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} works on addresses of device memory, which a rehearsal on the CPU does not have"
        )

    return refuse


gather_all_to_all_v = refuse_remote("gather_all_to_all_v")
remote_read, remote_ref_read = refuse_remote("remote_read"), refuse_remote("remote_ref_read")
remote_write, remote_scatter_write = refuse_remote("remote_write"), refuse_remote("remote_scatter_write")


def exchange_slices(key: str, ranks: list[int], own_index: int, slices: list[Any]) -> list[Any]:
    """Return each rank's slice for this rank; every rank gathers all slices."""
    if len(ranks) == 1:
        return slices
    lengths = collectives.gather_arrays(key + "n", ranks, np.array([[len(part) for part in slices]], np.int64))
    joined = collectives.gather_arrays(key, ranks, np.concatenate(slices))
    own_slices = []
    for (counts,), gathered in zip(lengths, joined, strict=True):
        start = int(counts[:own_index].sum())
        own_slices.append(gathered[start : start + int(counts[own_index])])
    return own_slices


# ---- checks


def check_reduction(name: str, reduction: str) -> None:
    if reduction not in collectives.REDUCTIONS:
        case = "mean" if reduction in ("mean", "avg", "average") else ""
        limits.report_violation("reduction-name", case, function=name, reduction=reduction)
        raise ValueError(f"Value for attr 'reduction' of {reduction!r} is not in the list of allowed values: "
                         f"{', '.join(collectives.REDUCTIONS)}")  # fmt: skip
    report_eager(name)


def make_reducible_tensor(name: str, value: Any) -> Any:
    """Return a value as a tensor; raise TypeError, as the operator does, for a dtype that cannot be reduced."""
    tensor = tf.convert_to_tensor(value)
    if not check_dtype(name, tensor.dtype, NPU.reduced_dtypes):
        raise TypeError(f"Value passed to parameter 'input' has DataType {tensor.dtype.base_dtype.name} not in list of "
                        f"allowed values: {', '.join(NPU.reduced_dtypes)}")  # fmt: skip
    return tensor


def make_sendable_tensor(name: str, value: Any) -> Any:
    tensor = tf.convert_to_tensor(value)
    check_dtype(name, tensor.dtype, NPU.exchanged_dtypes)
    return tensor


def check_dtype(name: str, dtype: Any, allowed: tuple[str, ...]) -> bool:
    """Return True for an allowed dtype; report the limit for another one."""
    dtype_name = dtype.base_dtype.name
    if dtype_name in allowed:
        return True
    limits.report_violation("collective-dtype", function=name, dtype=dtype_name, allowed=", ".join(allowed))
    return False


def report_eager(name: str) -> None:
    if tf.executing_eagerly():
        limits.report_violation("eager", "operator", function=name)


def check_size(name: str, rank_size: int, group: str) -> None:
    report_eager(name)
    count = len(collectives.list_members(group))
    if rank_size != count:
        raise ValueError(f"{name}: rank_size is {rank_size}, and group {group!r} has {count}")


def check_root(name: str, root: int, group: str) -> None:
    report_eager(name)
    count = len(collectives.list_members(group))
    if root not in range(count):
        raise ValueError(f"{name}: root_rank {root} is not within group {group!r} of {count}")


def check_peer(name: str, peer: int, group: str) -> None:
    check_root(name, peer, group)
    if collectives.list_members(group)[peer] == state.rank():
        raise ValueError(f"{name}: rank {peer} would talk to itself")
    collectives.open_rendezvous_store()  # now, in the script's own thread, and not when the graph runs
