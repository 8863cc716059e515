"""The tensors of one run of a graph, for the dumps of `dumping.py` and `golden.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from viaduct.rehearsal.tf1_stage.sessions import GraphRun
from viaduct.rehearsal.tf1_stage.subgraph import find_perhaps_dead, is_fetchable


@dataclass(frozen=True)
class OutputValue:
    """The value of one output of an operator. bfloat16, which NumPy does not have, is converted to float32."""

    op: Any
    index: int
    array: np.ndarray[Any, Any]


def list_tensors(run: GraphRun) -> list[Any]:
    """Return the tensors of a run that can be fetched, in the order in which their operators were created.

    Fed tensors, handles, strings, tensors inside a loop or branch, and tensors that may have no value are left out.
    """
    ops = sorted(run.subgraph.ops - find_perhaps_dead(run.subgraph.ops), key=lambda op: op._id)
    return [tensor for op in ops for tensor in op.outputs if tensor.name not in run.feeds and is_fetchable(tensor)]


def iterate_values(run: GraphRun, tensors: list[Any], arrays: list[Any]) -> Iterator[OutputValue]:
    """Yield fed values, then fetched ones. Empty arrays, fed strings and fed composite tensors are skipped."""
    for name, fed in run.feeds.items():
        tensor = run.graph.as_graph_element(name)
        dtype = np.dtype(tensor.dtype.base_dtype.as_numpy_dtype)
        if fed is None or dtype.kind in "OSU":  # None: part of a composite tensor
            continue
        array = convert_to_numbers(np.asarray(fed, dtype=dtype))
        if array.size:
            yield OutputValue(tensor.op, tensor.value_index, array)
    for tensor, array in zip(tensors, arrays, strict=True):
        numbers = convert_to_numbers(np.asarray(array))
        if numbers.size:
            yield OutputValue(tensor.op, tensor.value_index, numbers)


def convert_to_numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in a dtype that NumPy can save; bfloat16 becomes float32."""
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)
