"""Collectives between local ranks, as operators of a TensorFlow graph; gloo does the work.

A graph's operators run in no fixed order, and gloo pairs the calls of two ranks by their order. So each collective
has a process group of its own, found by a name that is the same on every rank: its kind and its number among those
of its graph. A collective that waits holds one of TensorFlow's threads, of which sessions get enough
(`sessions.THREADS`); the gradients of an optimizer travel together in one collective. Before an exchange each says what
it brings, so that ranks whose graphs differ are told and do not hang.
"""

from __future__ import annotations

import datetime
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

WORLD = NPU.world_group
REDUCTIONS = ("max", "min", "prod", "sum")
_groups: dict[str, list[int]] = {}  # beside the world, by name: its ranks
_made: dict[str, Any] = {}  # process groups by their key
_lock = threading.RLock()
_store: Any = None
_numbers: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()


# ---- who takes part


def members(group: str) -> list[int]:
    """World ranks of a group; raises ValueError for one that nobody has made."""
    if group == WORLD:
        return list(range(state.size()))
    if group not in _groups:
        raise ValueError(f"there is no group {group!r}; create_group makes one")
    return _groups[group]


def add_group(group: str, ranks: Sequence[int]) -> None:
    """Register a group of ranks."""
    _groups[group] = sorted(ranks)


def drop_group(group: str) -> None:
    """Remove a group of ranks."""
    _groups.pop(group, None)


def seconds() -> datetime.timedelta:
    """Return the time limit of a collective."""
    return datetime.timedelta(seconds=float(os.environ.get("VIADUCT_COLLECTIVE_TIMEOUT", "300")))


def rendezvous_store() -> Any:
    """Return the store in which ranks find one another: MASTER_ADDR and MASTER_PORT, or the launcher's.

    First called while a graph is built, so that the script's own thread imports torch and waits, not one of
    TensorFlow's.
    """
    global _store
    with _lock:
        if _store is None:
            from torch.distributed.rendezvous import rendezvous

            _store, _, _ = next(rendezvous("env://", state.rank(), state.size(), timeout=seconds()))
        return _store


def process_group(key: str, ranks: list[int]) -> Any:
    """The process group of one collective. Making it waits for the others, so the lock is not held meanwhile; and it
    has a connection to the store of its own, for one that waits would keep all others waiting."""
    with _lock:
        if key in _made:
            return _made[key]
        own = rendezvous_store().clone()
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    made = dist.ProcessGroupGloo(PrefixStore(f"tf1/{key}", own), ranks.index(state.rank()), len(ranks), seconds())
    with _lock:
        return _made.setdefault(key, made)


def has_exchanged() -> bool:
    """Return True if this rank has exchanged something with others."""
    return bool(_made)


def agree(key: str, group: Any, ranks: list[int], arrays: Sequence[np.ndarray[Any, Any]], same_shape: bool) -> None:
    """All bring the same number of tensors, of the same kinds and shapes; eight bytes of each tell."""
    import torch

    mine = json.dumps([[str(array.dtype), list(array.shape if same_shape else array.shape[1:])] for array in arrays])
    marks = [torch.zeros(1, dtype=torch.int64) for _ in ranks]
    group.allgather([marks], [torch.tensor([zlib.crc32(mine.encode())])]).wait()
    if len({int(mark) for mark in marks}) == 1:
        return
    for rank, theirs in zip(ranks, gather_texts(group, mine, len(ranks)), strict=True):
        if theirs != mine:
            raise ValueError(f"{key}: rank {state.rank()} brings {mine}, rank {rank} brings {theirs}")


def gather_texts(group: Any, mine: str, count: int) -> list[str]:
    """Return the text of each rank."""
    import torch

    letters = np.frombuffer(mine.encode(), np.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(count)]
    group.allgather([sizes], [torch.tensor([len(letters)])]).wait()
    padded = np.zeros(max(int(size) for size in sizes), np.uint8)
    padded[: len(letters)] = letters
    said = [torch.zeros(len(padded), dtype=torch.uint8) for _ in range(count)]
    group.allgather([said], [torch.from_numpy(padded)]).wait()
    return [bytes(text.numpy()[: int(size)]).decode() for text, size in zip(said, sizes, strict=True)]


# ---- the exchanges, on arrays


def tensors_of(arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    """Return arrays as tensors of torch, copied."""
    import torch

    return [torch.from_numpy(np.array(array, copy=True, order="C", ndmin=1)) for array in arrays]


def reduce_arrays(key: str, ranks: list[int], arrays: Sequence[Any], reduction: str) -> list[np.ndarray[Any, Any]]:
    """The reduction over ranks, of several tensors at once; half precision is summed in float32."""
    import torch.distributed as dist

    group = process_group(key, ranks)
    agree(key, group, ranks, arrays, True)
    how = {"max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "prod": dist.ReduceOp.PRODUCT, "sum": dist.ReduceOp.SUM}
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp(how[reduction])
    done = []
    for array in arrays:
        array = np.asarray(array)
        small = array.dtype.itemsize < 4 and array.dtype.kind not in "biu"
        (tensor,) = tensors_of([array.astype(np.float32) if small else array])
        group.allreduce([tensor], options).wait()
        done.append(tensor.numpy().reshape(array.shape).astype(array.dtype))
    return done


def broadcast_arrays(key: str, ranks: list[int], arrays: Sequence[Any], root: int) -> list[np.ndarray[Any, Any]]:
    """Broadcast arrays from a root."""
    import torch.distributed as dist

    group = process_group(key, ranks)
    agree(key, group, ranks, arrays, True)
    options = dist.BroadcastOptions()
    options.rootRank = ranks.index(root)
    done = []
    for array in arrays:
        array = np.asarray(array)
        (tensor,) = tensors_of([array.view(np.uint8) if odd(array) else array])
        group.broadcast([tensor], options).wait()
        done.append(tensor.numpy().view(array.dtype).reshape(array.shape))
    return done


def odd(array: np.ndarray[Any, Any]) -> bool:
    """A kind that torch or gloo does not carry: its bytes travel instead."""
    return (
        array.dtype.name not in ("float16", "float32", "float64", "int32", "int64", "uint8", "int8") and array.ndim > 0
    )


def gather_arrays(key: str, ranks: list[int], array: Any) -> list[np.ndarray[Any, Any]]:
    """Return the array of each rank, in order; first dimensions may differ."""
    group = process_group(key, ranks)
    array = np.asarray(array)
    agree(key, group, ranks, [array], False)
    import torch

    rows = [torch.zeros(1, dtype=torch.int64) for _ in ranks]
    group.allgather([rows], [torch.tensor([len(array)])]).wait()
    most = max(int(count) for count in rows)
    padded = np.zeros((most, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    (mine,) = tensors_of([padded])
    parts = [torch.empty_like(mine) for _ in ranks]
    group.allgather([parts], [mine]).wait()
    return [part.numpy()[: int(count)] for part, count in zip(parts, rows, strict=True)]


def send_array(key: str, array: Any, to: int) -> None:
    """Send an array to a rank."""
    pair = sorted([state.rank(), to])
    process_group(key, pair).send(tensors_of([np.asarray(array)]), pair.index(to), 0).wait()


def receive_array(key: str, source: int, shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array that a rank sends."""
    pair = sorted([state.rank(), source])
    (tensor,) = tensors_of([np.empty(tuple(shape), dtype)])
    process_group(key, pair).recv([tensor], pair.index(source), 0).wait()
    return np.asarray(tensor.numpy().reshape(tuple(shape)))


_turns: Counter[str] = Counter()


def turn(key: str) -> int:
    """Return the number of this use of a key, counted from 1."""
    with _lock:
        _turns[key] += 1
        return _turns[key]


# ---- the exchanges, in a graph


def key_of(kind: str, group: str) -> str:
    """The same name on every rank: the number of this kind of collective in its graph."""
    import tensorflow.compat.v1 as tf

    if len(members(group)) > 1:
        rendezvous_store()
    numbers = _numbers.setdefault(tf.get_default_graph(), Counter())
    numbers[kind + group] += 1
    return f"{group}|{kind}.{numbers[kind + group]}"


def in_graph(
    kind: str,
    tensors: list[Any],
    work: Callable[[list[Any]], Sequence[Any]],
    gradient: Callable[..., Any] | None = None,
) -> list[Any]:
    """Operators that hand their inputs to Python; shapes are as before unless the caller says otherwise."""
    import tensorflow.compat.v1 as tf

    def call(*arrays: Any) -> list[Any]:
        return list(work(list(arrays)))

    graph = tf.get_default_graph()
    with graph.gradient_override_map({"PyFunc": register_gradient(kind, gradient)} if gradient else {}):
        outputs = tf.numpy_function(call, tensors, [tensor.dtype.base_dtype for tensor in tensors], name=kind)
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def register_gradient(kind: str, gradient: Callable[..., Any]) -> str:
    """Register a gradient function under a unique name."""
    from tensorflow.python.framework import ops

    name = f"Viaduct{kind}{turn('gradient')}"
    ops.RegisterGradient(name)(gradient)
    return name


def allreduce(tensors: list[Any], reduction: str = "sum", group: str = WORLD, kind: str = "HcomAllReduce") -> list[Any]:
    """Several tensors in one exchange. The gradient of a sum is a sum over the ranks' gradients."""
    ranks = members(group)
    if len(ranks) == 1 or not tensors:
        return tensors
    key = key_of(kind, group)

    def gradient(op: Any, *given: Any) -> list[Any]:
        return allreduce(list(given), "sum", group, kind + "Grad")

    outputs = in_graph(kind, tensors, lambda arrays: reduce_arrays(key, ranks, arrays, reduction), gradient)
    return set_shapes(outputs, tensors)


def broadcast(tensors: list[Any], root: int, group: str = WORLD, kind: str = "HcomBroadcast") -> list[Any]:
    """Broadcast tensors in a graph."""
    ranks = members(group)
    if len(ranks) == 1 or not tensors:
        return tensors
    key = key_of(kind, group)
    return set_shapes(in_graph(kind, tensors, lambda arrays: broadcast_arrays(key, ranks, arrays, root)), tensors)


def allgather(tensor: Any, group: str = WORLD, kind: str = "HcomAllGather") -> Any:
    """Concatenate a tensor of all ranks in a graph."""
    ranks = members(group)
    if len(ranks) == 1:
        return tensor
    key = key_of(kind, group)

    def gradient(op: Any, given: Any) -> Any:
        """My rows of the sum."""
        import tensorflow.compat.v1 as tf

        (total,) = allreduce([given], "sum", group, kind + "Grad")
        return tf.split(total, len(ranks))[ranks.index(state.rank())]

    (gathered,) = in_graph(
        kind, [tensor], lambda arrays: [np.concatenate(gather_arrays(key, ranks, arrays[0]))], gradient
    )
    gathered.set_shape([None, *tensor.shape[1:]])
    return gathered


def reduce_scatter(tensor: Any, reduction: str, group: str = WORLD, kind: str = "HcomReduceScatter") -> Any:
    """Reduced over ranks; each keeps its share of the first dimension."""
    ranks = members(group)
    if len(ranks) == 1:
        return tensor
    key, mine = key_of(kind, group), ranks.index(state.rank())

    def work(arrays: list[Any]) -> list[Any]:
        (total,) = reduce_arrays(key, ranks, arrays, reduction)
        return [np.split(total, len(ranks))[mine]]

    def gradient(op: Any, given: Any) -> Any:
        return allgather(given, group, kind + "Grad")

    (part,) = in_graph(kind, [tensor], work, gradient)
    rows = tensor.shape[0].value if tensor.shape.rank else None
    part.set_shape([rows // len(ranks) if rows else None, *tensor.shape[1:]])
    return part


def set_shapes(outputs: list[Any], like: list[Any]) -> list[Any]:
    """Give outputs the static shapes of other tensors."""
    for output, tensor in zip(outputs, like, strict=True):
        output.set_shape(tensor.shape)
    return outputs
