"""Checks of the shapes and dtypes of training graphs, which the NPU compiles once.

These limits are reported: batches whose last one may be smaller, unknown dimensions of a dataset, feeds that change
their shape, operators in float64, and sessions that train without the NPU.
"""

from __future__ import annotations

import inspect
import re
import weakref
from typing import Any

import numpy as np

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import dumping, sessions
from viaduct.rehearsal.tf1_stage.sessions import GraphRun
from viaduct.rehearsal.tf1_stage.subgraph import Subgraph
from viaduct.rehearsal.tf1_stage.variables import find_variables
from viaduct.rehearsal.wrapping import wrap

# Types of operators that copy values or get them from the host; all other operators compute.
COPYING_OPERATORS = re.compile(
    r"Cast|Const|Identity(N)?|Placeholder\w*|(OneShot)?Iterator\w*|QueueDequeue\w*|Reshape|Squeeze|ExpandDims|Pack|Shape"
    r"|StopGradient|ReadVariableOp|Assert|PyFunc\w*|EagerPyFunc|NoOp|\w*Summary\w*"
)
VARIABLE_OPERATORS = ("VariableV2", "Variable", "VarHandleOp")
WIDE_DTYPES = ("float64", "complex128")
# Operators of the matrix unit, which has no float64.
MATRIX_OPERATORS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative")


def install() -> None:
    """Install the checks and the dumps of the NPU."""
    import tensorflow.compat.v1 as tf
    from tensorflow.python.data.ops import dataset_ops

    # DatasetV1's methods call DatasetV2's; `wrap_batch` checks the outermost call only.
    for kind in (dataset_ops.DatasetV1, dataset_ops.DatasetV2):
        for name in ("batch", "padded_batch"):
            wrap_batch(kind, name)
    wrap_batch(tf.data.experimental, "map_and_batch")
    sessions.observers += [TrainingGraphChecks(), dumping.Dumps()]


_in_batch = False  # a wrapped function is running


def wrap_batch(owner: Any, name: str) -> None:
    """Wrap a function that makes batches, to report a call without drop_remainder=True."""
    signature = inspect.signature(getattr(owner, name))

    @wrap(owner, name)
    def batch(plain: Any, *args: Any, **kwargs: Any) -> Any:
        global _in_batch
        if _in_batch:
            return plain(*args, **kwargs)
        _in_batch = True
        try:
            if signature.bind_partial(*args, **kwargs).arguments.get("drop_remainder") is not True:
                limits.report_violation("drop-remainder", function=name)
            return plain(*args, **kwargs)
        finally:
            _in_batch = False


class TrainingGraphChecks(sessions.Observer):
    """Checks each training graph once, and the shapes that are fed to it at every run."""

    def __init__(self) -> None:
        self.checked: weakref.WeakSet[Subgraph] = weakref.WeakSet()
        # By graph, then by tensor name: the shape of the first feed.
        self.fed: weakref.WeakKeyDictionary[Any, dict[str, tuple[int, ...]]] = weakref.WeakKeyDictionary()

    def before_run(self, run: GraphRun) -> None:
        if not run.is_training:
            return
        if not run.session_record.npu_options.is_on_npu:
            limits.report_violation("npu-optimizer", at=run.session_record.location)
            return
        if run.subgraph not in self.checked:
            self.checked.add(run.subgraph)
            check_shapes(run)
            check_types(run)
        if not run.session_record.npu_options.values.get("dynamic_input"):
            self.check_feeds(run)

    def check_feeds(self, run: GraphRun) -> None:
        """Report a tensor whose feed has another shape than the first one."""
        fed = self.fed.setdefault(run.graph, {})
        for name, value in run.feeds.items():
            shape = shape_of(value)
            first = fed.setdefault(name, shape) if shape is not None else None
            if first != shape:
                limits.report_violation("static-shapes", tensor=name, shape=shape, first_shape=first)


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of a fed value; None if it is part of a composite tensor, or nested lists without a shape."""
    if value is None:
        return None
    try:
        return tuple(np.shape(value))
    except ValueError:  # nested lists of different lengths, which TensorFlow itself refuses
        return None


def check_shapes(run: GraphRun) -> None:
    """Report dataset outputs of unknown shape; placeholders are checked when they are fed."""
    for op in run.subgraph.ops:
        if op.type not in ("IteratorGetNext", "OneShotIterator", "IteratorGetNextSync"):
            continue
        for tensor in op.outputs:
            shape = tensor.shape
            if tensor.dtype.name != "variant" and not shape.is_fully_defined():
                line = find_operator_line(op)
                limits.report_violation("static-shapes", "dataset", tensor=tensor.name, shape=shape, at=line)


def check_types(run: GraphRun) -> None:
    """Report one operator in float64 or complex128: the first that is refused, else the first that computes.

    Refused are matrix and convolution operators and trainable variables. Other operators are a warning, since the AI
    CPU has kernels for some of them.
    """
    wide = [op for op in run.subgraph.ops if find_wide_type(op) and not COPYING_OPERATORS.fullmatch(op.type)]
    wide.sort(key=lambda op: op._id)
    trained = {variable.op for variable in find_variables(run.graph, "trainable_variables")}
    refused = [op for op in wide if op.type in MATRIX_OPERATORS or op in trained]
    computing = [op for op in wide if op.type not in VARIABLE_OPERATORS]
    for op in (refused or computing)[:1]:
        case = "variable" if op.type in VARIABLE_OPERATORS else "graph operator"
        fields = {"operator": op.name, "type": op.type, "dtype": find_wide_type(op)}
        limits.report_violation("float64", case, at=find_operator_line(op), doubtful=not refused, **fields)


def find_wide_type(op: Any) -> str:
    """Return "float64" or "complex128" if an output or a resource variable has this dtype, else ""."""
    names = [tensor.dtype.base_dtype.name for tensor in op.outputs]
    if op.type == "VarHandleOp":
        names.append(op.get_attr("dtype").name)
    return next((name for name in names if name in WIDE_DTYPES), "")


def find_operator_line(op: Any) -> limits.Line | None:
    """Return the script's line that created an operator; None if there is none."""
    for frame in reversed(list(op.traceback or [])):
        if limits.is_users_file(frame.filename):
            return limits.Line(frame.filename, frame.lineno)
    return None
