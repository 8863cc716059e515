"""Collectives between local ranks, as operators of a TensorFlow graph, by gloo.

A graph's operators run in no fixed order, and gloo pairs the calls of two ranks by their order. So each collective has
its own process group, whose key is the same on every rank: the operator's name, and its number within the graph. A
waiting collective holds one of TensorFlow's threads; therefore sessions get more threads
(`sessions.THREADS_OF_RANKS`). The gradients of an optimizer are exchanged in one collective. Before every exchange but
send and receive, the ranks compare dtypes and shapes, and raise an error if these differ.

`group` is the name of a group of ranks, one that the script made or WORLD; `ranks` are its members' world ranks.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import threading
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from viaduct.cards import NPU
from viaduct.rehearsal.tf1_stage import state

WORLD = NPU.world_group  # hccl_world_group, the name of the group of all ranks
REDUCTIONS = ("max", "min", "prod", "sum")
# Dtypes that gloo reduces; complex ones by sum only.
REDUCED_DTYPES = ("float32", "float64", "complex64", "complex128", "int32", "int64", "uint8", "int8")
groups: dict[str, list[int]] = {}  # by name of a group that the script made: its members' world ranks
_process_groups: dict[str, Any] = {}  # by the key of its collective (`make_key`)
_lock = threading.RLock()
_store: Any = None  # torch's key-value store for the rendezvous; None until `open_rendezvous_store`
# By graph: the number of collectives so far, by operator name and group.
_numbers: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()
_gradient_numbers = itertools.count(1)  # for the names of registered gradient functions


# ---- groups


def list_members(group: str) -> list[int]:
    """Return the world ranks of a group; raise ValueError for an unknown group."""
    if group == WORLD:
        return list(range(state.size()))
    if group not in groups:
        raise ValueError(f"there is no group {group!r}; create_group makes one")
    return groups[group]


def read_time_limit() -> datetime.timedelta:
    return datetime.timedelta(seconds=float(os.environ.get("VIADUCT_COLLECTIVE_TIMEOUT", "300")))


def open_rendezvous_store() -> Any:
    """Return the store for the ranks' rendezvous, at MASTER_ADDR and MASTER_PORT or the launcher's.

    The first call comes while a graph is built, so that the script's own thread imports torch and waits.
    """
    global _store
    with _lock:
        if _store is None:
            from torch.distributed.rendezvous import rendezvous

            _store, _, _ = next(rendezvous("env://", state.rank(), state.size(), timeout=read_time_limit()))
        return _store


def get_process_group(key: str, ranks: list[int]) -> Any:
    """Return the process group of one collective.

    ProcessGroupGloo waits for the other ranks. Meanwhile other threads can make their groups: the lock is released, and
    each process group has its own connection to the store.
    """
    with _lock:
        if key in _process_groups:
            return _process_groups[key]
        store = open_rendezvous_store().clone()
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    own_store, own_index = PrefixStore(f"tf1/{key}", store), ranks.index(state.rank())
    process_group = dist.ProcessGroupGloo(own_store, own_index, len(ranks), read_time_limit())
    with _lock:
        return _process_groups.setdefault(key, process_group)


def has_exchanged() -> bool:
    """Return True if this rank has taken part in a collective with other ranks."""
    return bool(_process_groups)


def get_agreeing_group(
    key: str, ranks: list[int], arrays: Sequence[np.ndarray[Any, Any]], same_shape: bool = True
) -> Any:
    """Return the process group of a collective if all ranks have as many arrays, with the same dtypes and shapes.

    Else raise ValueError. Without `same_shape` the first dimensions may differ. The ranks exchange checksums, and on a
    mismatch descriptions.
    """
    import torch

    process_group = get_process_group(key, ranks)
    tensors = [[str(array.dtype), list(array.shape if same_shape else array.shape[1:])] for array in arrays]
    text = json.dumps(tensors).encode()
    checksums = [torch.zeros(1, dtype=torch.int64) for _ in ranks]
    process_group.allgather([checksums], [torch.tensor([zlib.crc32(text)])]).wait()
    if len({int(checksum) for checksum in checksums}) > 1:
        texts = map(bytes, gather_padded(process_group, np.frombuffer(text, np.uint8)))
        rank, other_text = next(pair for pair in zip(ranks, texts, strict=True) if pair[1] != text)
        raise ValueError(f"{key}: rank {state.rank()} has {text.decode()}, rank {rank} has {other_text.decode()}")
    return process_group


def gather_padded(process_group: Any, array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of all ranks; arrays with a shorter first dimension are padded for the exchange."""
    import torch

    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(process_group.size())]
    process_group.allgather([lengths], [torch.tensor([len(array)])]).wait()
    padded = np.zeros((max(map(int, lengths)), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    data = bytes_of(padded)
    parts = [torch.empty_like(data) for _ in lengths]
    process_group.allgather([parts], [data]).wait()
    arrays = [array_of(part, array.dtype, padded.shape) for part in parts]
    return [part[: int(length)] for part, length in zip(arrays, lengths, strict=True)]


# ---- exchanges of arrays


def bytes_of(array: np.ndarray[Any, Any]) -> Any:
    """Return a copy of an array's bytes as a flat tensor: torch and gloo do not have all dtypes of TensorFlow."""
    import torch

    refuse_strings(array.dtype)
    return torch.from_numpy(np.array(array, copy=True, order="C").reshape(-1).view(np.uint8))


def array_of(data: Any, dtype: Any, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return a tensor's bytes as an array."""
    array: np.ndarray[Any, Any] = data.numpy().view(dtype).reshape(tuple(shape))
    return array


def refuse_strings(dtype: Any) -> None:
    """Raise TypeError for dtypes of strings."""
    if np.dtype(dtype).kind in "OSU":
        raise TypeError("a tensor of strings cannot be exchanged between ranks; exchange numbers")


def choose_reduced_dtype(dtype: Any) -> Any:
    """Return the dtype in which arrays are reduced: half precision in float32, int16 in int32.

    Raise TypeError for other dtypes than these and REDUCED_DTYPES.
    """
    dtype = np.dtype(dtype)
    if dtype.name in REDUCED_DTYPES:
        return dtype
    if dtype.name in ("float16", "bfloat16"):
        return np.dtype(np.float32)
    if dtype.name == "int16":
        return np.dtype(np.int32)
    raise TypeError(f"tensors of {dtype.name} cannot be reduced over ranks; cast to int32, for example")


def reduce_arrays(key: str, ranks: list[int], arrays: Sequence[Any], reduction: str) -> list[np.ndarray[Any, Any]]:
    """Return arrays reduced over the ranks, in the dtype of `choose_reduced_dtype` and cast back."""
    import torch
    import torch.distributed as dist

    arrays = [np.asarray(array) for array in arrays]
    dtypes = [choose_reduced_dtype(array.dtype) for array in arrays]
    process_group = get_agreeing_group(key, ranks, arrays)
    ops = {"max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "prod": dist.ReduceOp.PRODUCT, "sum": dist.ReduceOp.SUM}
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(ops[reduction])
    results = []
    for array, dtype in zip(arrays, dtypes, strict=True):
        tensor = torch.from_numpy(np.array(array, dtype, copy=True, order="C", ndmin=1))
        process_group.allreduce([tensor], options).wait()
        results.append(tensor.numpy().reshape(array.shape).astype(array.dtype))
    return results


def broadcast_arrays(key: str, ranks: list[int], arrays: Sequence[Any], root: int) -> list[np.ndarray[Any, Any]]:
    import torch.distributed as dist

    arrays = [np.asarray(array) for array in arrays]
    for array in arrays:
        refuse_strings(array.dtype)
    process_group = get_agreeing_group(key, ranks, arrays)
    options = dist.BroadcastOptions()
    options.rootRank = ranks.index(root)
    results = []
    for array in arrays:
        data = bytes_of(array)
        process_group.broadcast([data], options).wait()
        results.append(array_of(data, array.dtype, array.shape))
    return results


def gather_arrays(key: str, ranks: list[int], array: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of the ranks in order; first dimensions may differ. Raise ValueError for a scalar."""
    array = np.asarray(array)
    refuse_strings(array.dtype)
    if not array.shape:
        raise ValueError(f"{key}: a scalar cannot be gathered; give it a dimension, as in tf.reshape(tensor, [1])")
    return gather_padded(get_agreeing_group(key, ranks, [array], same_shape=False), array)


def send_array(key: str, array: Any, target: int) -> None:
    pair = sorted([state.rank(), target])
    get_process_group(key, pair).send([bytes_of(np.asarray(array))], pair.index(target), 0).wait()


def receive_array(key: str, source: int, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    pair = sorted([state.rank(), source])
    data = bytes_of(np.zeros(tuple(shape), dtype))
    get_process_group(key, pair).recv([data], pair.index(source), 0).wait()
    return array_of(data, dtype, shape)


# ---- exchanges in a graph


def make_key(op_name: str, group: str) -> str:
    """Return the key of a new collective of the default graph: group, operator name and number.

    Ranks that build the same graph get the same keys.
    """
    import tensorflow.compat.v1 as tf

    if len(list_members(group)) > 1:
        open_rendezvous_store()
    numbers = _numbers.setdefault(tf.get_default_graph(), Counter())
    numbers[op_name + group] += 1
    return f"{group}|{op_name}.{numbers[op_name + group]}"


def call_in_graph(
    op_name: str,
    tensors: list[Any],
    function: Callable[[list[Any]], Sequence[Any]],
    gradient: Callable[..., Any] | None,
) -> list[Any]:
    """Return the outputs of an operator that calls a Python function with arrays.

    The outputs have the dtypes of `tensors` and no static shapes. `op_name` is the operator's name. `gradient` is the
    function of its gradients; with None it has none.
    """
    import tensorflow.compat.v1 as tf

    def call(*arrays: Any) -> list[Any]:
        return list(function(list(arrays)))

    graph = tf.get_default_graph()
    with graph.gradient_override_map({"PyFunc": register_gradient(op_name, gradient)} if gradient else {}):
        outputs = tf.numpy_function(call, tensors, [tensor.dtype.base_dtype for tensor in tensors], name=op_name)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def register_gradient(op_name: str, gradient: Callable[..., Any]) -> str:
    """Register a gradient function under a unique name."""
    from tensorflow.python.framework import ops

    name = f"Viaduct{op_name}{next(_gradient_numbers)}"
    ops.RegisterGradient(name)(gradient)
    return name


def allreduce(
    tensors: list[Any],
    reduction: str = "sum",
    group: str = WORLD,
    op_name: str = "HcomAllReduce",
    gradient_reduction: str = "sum",
) -> list[Any]:
    """Reduce several tensors in a graph, in one exchange; in a group of one rank return them unchanged.

    In the backward pass gradients are reduced over the ranks by `gradient_reduction`, whatever `reduction` is.
    """
    ranks = list_members(group)
    if len(ranks) == 1 or not tensors:
        return tensors
    key = make_key(op_name, group)

    def gradient(op: Any, *incoming: Any) -> list[Any]:
        return allreduce(list(incoming), gradient_reduction, group, op_name + "Grad", gradient_reduction)

    outputs = call_in_graph(op_name, tensors, lambda arrays: reduce_arrays(key, ranks, arrays, reduction), gradient)
    return set_shapes(outputs, tensors)


def broadcast(
    tensors: list[Any],
    root: int,
    group: str = WORLD,
    op_name: str = "HcomBroadcast",
    gradient: Callable[..., Any] | None = None,
) -> list[Any]:
    """Broadcast tensors in a graph. Without `gradient` they have no gradient."""
    ranks = list_members(group)
    if len(ranks) == 1 or not tensors:
        return tensors
    key = make_key(op_name, group)
    outputs = call_in_graph(op_name, tensors, lambda arrays: broadcast_arrays(key, ranks, arrays, root), gradient)
    return set_shapes(outputs, tensors)


def allgather(
    tensor: Any, group: str = WORLD, op_name: str = "HcomAllGather", gradient: Callable[..., Any] | None = None
) -> Any:
    """Concatenate a tensor of all ranks in a graph. The default gradient needs equal sizes on all ranks."""
    ranks = list_members(group)
    if len(ranks) == 1:
        return tensor
    key = make_key(op_name, group)

    def split_sum(op: Any, incoming: Any) -> Any:
        """Return this rank's rows of the sum of the ranks' gradients."""
        import tensorflow.compat.v1 as tf

        (total,) = allreduce([incoming], "sum", group, op_name + "Grad")
        return tf.split(total, len(ranks))[ranks.index(state.rank())]

    (gathered,) = call_in_graph(
        op_name, [tensor], lambda arrays: [np.concatenate(gather_arrays(key, ranks, arrays[0]))], gradient or split_sum
    )
    gathered.set_shape([None, *tensor.shape[1:]])
    return gathered


def reduce_scatter(tensor: Any, reduction: str, group: str = WORLD, op_name: str = "HcomReduceScatter") -> Any:
    """Reduce a tensor over the ranks, and return this rank's part along the first dimension, in a graph.

    In the backward pass the ranks' gradients are concatenated, whatever `reduction` is.
    """
    ranks = list_members(group)
    if len(ranks) == 1:
        return tensor
    key, own_index = make_key(op_name, group), ranks.index(state.rank())

    def reduce_and_split(arrays: list[Any]) -> list[Any]:
        (total,) = reduce_arrays(key, ranks, arrays, reduction)
        return [np.split(total, len(ranks))[own_index]]

    def gradient(op: Any, incoming: Any) -> Any:
        return allgather(incoming, group, op_name + "Grad")

    (part,) = call_in_graph(op_name, [tensor], reduce_and_split, gradient)
    rows = tensor.shape[0].value if tensor.shape.rank else None
    part.set_shape([rows // len(ranks) if rows else None, *tensor.shape[1:]])
    return part


def set_shapes(outputs: list[Any], like: list[Any]) -> list[Any]:
    """Give outputs the static shapes of other tensors."""
    for output, tensor in zip(outputs, like, strict=True):
        output.set_shape(tensor.shape)
    return outputs
