"""The operators at which a step's forward pass begins and its backward pass ends: CANN's fp_point and bp_point.

    {"fp_point": "conv2d/Conv2D", "bp_point": "gradients/conv2d/Conv2D_grad/Conv2DBackpropFilter"}

They are found in the graph of the first training step with gradients. The forward pass begins at the first layer: the
first operator, in the order of creation, that the loss needs and that depends on both the batch and a trainable
variable. The backward pass ends at the gradient with the longest chain of operators. Names are TensorFlow's; the
device's compiler may fuse an operator with its neighbours under a longer name.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from viaduct.atomic_files import write_file
from viaduct.cards.cann_options import POINT_OPTIONS, PROFILING_POINTS_FILE
from viaduct.rehearsal.tf1_stage import gradients, sessions
from viaduct.rehearsal.tf1_stage.sessions import GraphRun
from viaduct.rehearsal.tf1_stage.subgraph import READ_OPERATORS, find_dependencies
from viaduct.rehearsal.tf1_stage.variables import find_trainable_names

# Types of operators that only pass their first input on; a compiler removes them.
PASS_THROUGH_TYPES = ("Identity", "StopGradient", "PreventGradient", "Snapshot", "Reshape", "ExpandDims", "Squeeze")


class PointFinder(sessions.Observer):
    """Finds the points in the first training run that has gradients."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}

    def receive_values(self, run: GraphRun, values: list[Any]) -> None:
        if run.is_training and not self.points:
            self.points = find_points(run)

    def write(self, record: Path) -> None:
        """Write the points into a record folder if any were found."""
        if self.points:
            write_file(record / PROFILING_POINTS_FILE, (json.dumps(self.points, indent=1) + "\n").encode())


def find_points(run: GraphRun) -> dict[str, str]:
    """Return fp_point and bp_point of a training step, as far as found, for the loss with the most gradients."""
    records = [record for record in gradients.find_recorded_gradients(run.graph) if record.loss is not None]
    records = [record for record in records if record.has_any_from(run.subgraph.ops)]
    if not records:
        return {}
    record = max(records, key=lambda candidate: len(candidate.pairs))
    forward = find_dependencies([record.loss.op], run.subgraph.fed_names)
    operators = find_first_layer(run, forward), find_last_gradient(run, record, forward)
    points = dict(zip(POINT_OPTIONS, operators, strict=True))
    return {key: op.name for key, op in points.items() if op is not None}


def find_first_layer(run: GraphRun, forward: Collection[Any]) -> Any:
    """Return the first operator that depends on both the batch and a trainable variable; None if there is none."""
    weights = find_trainable_names(run.graph)
    of_batch: set[Any] = set()  # operators that depend on the batch
    of_weights: set[Any] = set()  # operators that depend on a trainable variable
    for op in sorted(forward, key=lambda op: op._id):
        sources = [tensor.op for tensor in op.inputs]
        fed = any(tensor.name in run.subgraph.fed_names for tensor in op.inputs)
        if fed or READ_OPERATORS.fullmatch(op.type) or any(source in of_batch for source in sources):
            of_batch.add(op)
        if op.name in weights or any(source in of_weights for source in sources):
            of_weights.add(op)
        if op in of_batch and op in of_weights and op.type not in PASS_THROUGH_TYPES:
            return op
    return None


def find_last_gradient(run: GraphRun, record: gradients.Gradients, forward: Collection[Any]) -> Any:
    """Return the operator that computes the deepest gradient of a trainable variable; None if there is none."""
    ops = [skip_pass_through(gradients.get_dense_tensor(gradient).op) for _, gradient in record.pairs]
    backward = [op for op in ops if op in run.subgraph.ops and op not in forward]
    depth = measure_depth(run.subgraph.ops)
    return max(backward, key=lambda op: (depth[op], op._id), default=None)


def skip_pass_through(op: Any) -> Any:
    """Return an operator, or if it only passes a value on, the operator that has computed the value."""
    while op.type in PASS_THROUGH_TYPES:
        op = op.inputs[0].op
    return op


def measure_depth(ops: Collection[Any]) -> dict[Any, int]:
    """Return the length of the longest chain that ends with each operator, including the operator.

    The edge by which a loop returns to its start does not count.
    """
    depth: dict[Any, int] = {}
    for op in sorted(ops, key=lambda op: op._id):
        sources = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        depth[op] = 1 + max((depth.get(source, 0) for source in sources), default=0)
    return depth
