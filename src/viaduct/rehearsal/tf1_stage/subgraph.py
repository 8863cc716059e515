"""Subgraph of a session's run: the operators that the run executes.

A run executes the dependencies of its fetches, up to tensors that are fed. A run trains if one of its operators applies
an optimizer's update, or writes the global step, or writes a trainable variable while the run also computes a recorded
gradient. Initialisers, restoring and broadcasts write variables too, but do not train.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from viaduct.rehearsal.tf1_stage import gradients
from viaduct.rehearsal.tf1_stage.variables import find_trainable_names, find_variables

# Types of operators that apply an update of an optimizer, write a variable, or read data.
UPDATE_OPERATORS = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]")
WRITE_OPERATORS = re.compile(r"Assign(Add|Sub)?(VariableOp)?|(Resource)?Scatter(Sub|Add|Update)")
READ_OPERATORS = re.compile(r"(OneShot)?IteratorGetNext(Sync|AsOptional)?|QueueDequeue\w*|ReaderRead\w*")


@dataclass(frozen=True)
class Subgraph:
    """The operators that a run executes."""

    ops: frozenset[Any]
    is_training: bool  # the run trains
    reads_data: bool  # the run reads from a dataset, queue or reader
    fed_names: frozenset[str]  # names of the fed tensors


# By graph, then by names of fetched operators and fed tensors: the subgraph, and the graph's version when it was found.
_cache: weakref.WeakKeyDictionary[Any, dict[Any, tuple[int, Subgraph]]] = weakref.WeakKeyDictionary()


def find_subgraph(graph: Any, ops: Collection[Any], fed: Collection[str]) -> Subgraph:
    """Return the subgraph of a run, from a cache until the graph grows: control inputs may have been added."""
    cache = _cache.setdefault(graph, {})
    key = frozenset(op.name for op in ops), frozenset(fed)
    version, subgraph = cache.get(key, (None, None))
    if subgraph is None or version != graph.version:
        executed = find_dependencies(ops, frozenset(fed))
        reads = any(READ_OPERATORS.fullmatch(op.type) for op in executed)
        subgraph = Subgraph(frozenset(executed), is_training_step(graph, executed), reads, frozenset(fed))
        cache[key] = graph.version, subgraph
    return subgraph


def find_dependencies(ops: Collection[Any], fed: frozenset[str]) -> set[Any]:
    """Return these operators and their dependencies, up to tensors that are fed."""
    seen: set[Any] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        waiting += [tensor.op for tensor in op.inputs if tensor.name not in fed]
        waiting += op.control_inputs
    return seen


def is_training_step(graph: Any, ops: set[Any]) -> bool:
    """Return True if these operators are a training step (see the module's docstring)."""
    if any(UPDATE_OPERATORS.match(op.type) for op in ops):
        return True
    writes = [op for op in ops if WRITE_OPERATORS.fullmatch(op.type) and not is_setup(graph, op)]
    if not writes:
        return False
    steps = {variable.op.name for variable in find_variables(graph, "global_step")}
    if any(op.inputs[0].op.name in steps for op in writes):
        return True
    weights = find_trainable_names(graph)
    writes_weights = any(op.inputs[0].op.name in weights for op in writes)
    return writes_weights and any(record.has_any_from(ops) for record in gradients.find_recorded_gradients(graph))


def is_setup(graph: Any, op: Any) -> bool:
    """Return True for a write that does not train.

    Such a write is an initialiser, or writes a value from a checkpoint, from Python (a broadcast among several ranks)
    or from the variable itself.
    """
    if op.type.startswith("Assign") and op.name in find_initialiser_names(graph):
        return True
    source = op.inputs[1].op if len(op.inputs) > 1 else op
    while source.type in ("Identity", "Reshape", "Cast", "ReadVariableOp") and source.inputs:
        source = source.inputs[0].op
    is_itself = source is op.inputs[0].op  # a broadcast with a single rank
    return is_itself or source.type in ("RestoreV2", "Restore", "PyFunc")


def find_initialiser_names(graph: Any) -> set[str]:
    """Return the names of the operators that initialise variables."""
    return {
        variable.initializer.name
        for variable in find_variables(graph, "variables")
        if getattr(variable, "initializer", None) is not None
    }


def is_fetchable(tensor: Any) -> bool:
    """Return False for a handle or string, and for a tensor inside a branch or loop; these cannot be fetched."""
    if not tensor.graph.is_fetchable(tensor) or tensor.dtype.base_dtype.name in ("resource", "variant", "string"):
        return False
    return not is_in_branch(tensor)


def find_perhaps_dead(ops: Collection[Any]) -> set[Any]:
    """Return the operators between a Switch and its Merge, which may have no value in a run ("dead" in TensorFlow).

    These include operators outside of the branch's own context, such as gradients. For operators inside it use
    `is_in_branch`: they may be older than the Switch.
    """
    dead: set[Any] = set()
    for op in sorted(ops, key=lambda op: op._id):
        if op.type in ("Switch", "RefSwitch"):
            dead.add(op)
        elif op.type in ("Exit", "RefExit"):  # a loop has a result whenever it is entered
            if find_enter(op) in dead:
                dead.add(op)
        elif op.type not in ("Merge", "RefMerge"):
            sources = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
            if any(source in dead for source in sources):
                dead.add(op)
    return dead


def find_enter(exit_op: Any) -> Any:
    """Return the Enter operator of the loop that an Exit operator leaves."""
    op = exit_op
    for _ in range(3):  # back from Exit through Switch and Merge to Enter
        op = op.inputs[0].op
    return op


def uses_weights(graph: Any, subgraph: Subgraph) -> bool:
    """Return True if a run trains or reads trainable variables, and False if it sets variables up."""
    names = find_trainable_names(graph)
    if not any(op.name in names for op in subgraph.ops):
        return False
    writes = [op for op in subgraph.ops if WRITE_OPERATORS.fullmatch(op.type)]
    return subgraph.is_training or not any(is_setup(graph, op) for op in writes)


def is_in_branch(tensor: Any) -> bool:
    """Return True for a tensor inside a tf.cond or tf.while_loop, which may have no value or many."""
    return tensor.op._get_control_flow_context() is not None
