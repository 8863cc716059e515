"""Shapes: the NPU compiles a training graph once. Batches that may be smaller, dimensions that nobody knows and feeds
that change are told, with the line that made them. So are sessions that train without the NPU."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from viaduct.rehearsal import limits
from viaduct.rehearsal.tf1_stage import dumping, sessions
from viaduct.rehearsal.tf1_stage.reach import Reach
from viaduct.rehearsal.tf1_stage.sessions import Pass
from viaduct.rehearsal.tf1_stage.variables import find_variables

# What hands values on, or comes from the host; everything else computes.
CARRIES = re.compile(
    r"Cast|Const|Identity(N)?|Placeholder\w*|(OneShot)?Iterator\w*|QueueDequeue\w*|Reshape|Squeeze|ExpandDims|Pack|Shape"
    r"|StopGradient|ReadVariableOp|Assert|PyFunc\w*|EagerPyFunc|NoOp|\w*Summary\w*"
)
VARIABLES = ("VariableV2", "Variable", "VarHandleOp")
WIDE = ("float64", "complex128")
CUBE = ("MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative")


def install(on: Literal["npu", "mlu", "original"]) -> None:
    if on != "npu":
        return
    from tensorflow.python.data.experimental.ops import batching
    from tensorflow.python.data.ops import dataset_ops

    # DatasetV1's methods call DatasetV2's: the outermost is the one to ask.
    for kind in (dataset_ops.DatasetV1, dataset_ops.DatasetV2):
        for name in ("batch", "padded_batch"):
            if name in vars(kind):
                setattr(kind, name, whole_batches(vars(kind)[name], name))
    for name in ("map_and_batch", "map_and_batch_v1"):
        if hasattr(batching, name):
            replace_everywhere(getattr(batching, name))
    sessions.observers.append(TrainingGraphs())
    sessions.observers.append(dumping.Dumps())


_asking = False


def whole_batches(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method or function that makes batches, asked whether the last one is whole."""
    import inspect

    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def batch(*args: Any, **named: Any) -> Any:
        global _asking
        if _asking:
            return plain(*args, **named)
        _asking = True
        try:
            given = signature.bind_partial(*args, **named).arguments.get("drop_remainder", False)
            if given is not True:
                tell_of_remainder(name)
            return plain(*args, **named)
        finally:
            _asking = False

    return batch


def tell_of_remainder(name: str) -> None:
    limits.report_violation(
        "drop-remainder",
        f"{name} is called without drop_remainder=True.",
        "The batch dimension is unknown: the graph is compiled for dynamic shapes, or fails in the last batch.",
        f"Write {name}(…, drop_remainder=True).",
    )


def replace_everywhere(plain: Callable[..., Any]) -> None:
    """A function that the public names point at, wherever they are."""
    import tensorflow.compat.v1 as tf

    wrapped = whole_batches(plain, "map_and_batch")
    for home in (tf.data.experimental,):
        if getattr(home, "map_and_batch", None) is plain:
            home.map_and_batch = wrapped


class TrainingGraphs(sessions.Observer):
    """Looks at each training graph once, and at the shapes that are fed to it."""

    def __init__(self) -> None:
        self.looked: weakref.WeakSet[Reach] = weakref.WeakSet()
        self.fed: weakref.WeakKeyDictionary[Any, dict[str, tuple[int, ...]]] = weakref.WeakKeyDictionary()

    def begins(self, run: Pass) -> None:
        if not run.training:
            return
        if not run.opened.chosen.npu:
            tell_of_host(run)
            return
        if run.reach not in self.looked:
            self.looked.add(run.reach)
            check_shapes(run)
            check_types(run)
        if not run.opened.chosen.values.get("dynamic_input"):
            self.check_feeds(run)

    def check_feeds(self, run: Pass) -> None:
        fed = self.fed.setdefault(run.graph, {})
        for name, value in run.feeds.items():
            shape = shape_of(value)
            before = fed.setdefault(name, shape) if shape is not None else None
            if before != shape:
                limits.report_violation(
                    "static-shapes",
                    f"{name} is fed {shape}, and was fed {before} before.",
                    "The graph was compiled for the first shape: it is compiled anew at each other one, or fails.",
                    "Feed the same shape in every step: leave the last, smaller batch out.",
                )


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of an array, number or nested lists; None for anything else."""
    if value is None:
        return None
    try:
        return tuple(np.shape(value))
    except ValueError:  # lists of different lengths: TensorFlow will say so
        return None


def tell_of_host(run: Pass) -> None:
    limits.report_violation(
        "npu-optimizer",
        "This session trains, and its config has no NpuOptimizer.",
        "All of it runs on the host's CPU; the NPU stays idle.",
        "Add the custom optimizer NpuOptimizer to config.graph_options.rewrite_options, or use npu_config_proto().",
        at=run.opened.location,
    )


def check_shapes(run: Pass) -> None:
    """Report dataset outputs of unknown shape; placeholders are checked when they are fed."""
    for op in run.reach.ops:
        if op.type not in ("IteratorGetNext", "OneShotIterator", "IteratorGetNextSync"):
            continue
        for tensor in op.outputs:
            shape = tensor.shape
            if tensor.dtype.name != "variant" and not shape.is_fully_defined():
                limits.report_violation(
                    "static-shapes",
                    f"The training graph reads {tensor.name} of shape {shape} from its data set.",
                    "A graph with an unknown dimension is not compiled for the NPU's cores.",
                    "Make batches with drop_remainder=True and give every dimension a size (set_shape).",
                    at=users_line_of(op),
                )


def check_types(run: Pass) -> None:
    """The first operator to blame, whose gradients come after it. Matrix and convolution operators and what is trained
    are refused; of other operators the AI CPU has some, so that they are a warning."""
    wide = sorted((op for op in run.reach.ops if is_wide(op)), key=lambda op: op._id)
    trained = {variable.op for variable in find_variables(run.graph, "trainable_variables")}
    refused = [op for op in wide if op.type in CUBE or op in trained]
    computing = [op for op in wide if op.type not in VARIABLES]
    for op in (refused or computing)[:1]:
        limits.report_violation(
            "float64",
            f"{op.name} ({op.type}) {'is' if op.type in VARIABLES else 'computes in'} {wide_type(op)}.",
            "The cores have no float64: the operator is not found, or runs on the slow AI CPU.",
            "Make it of tf.float32, or cast its inputs to it.",
            at=users_line_of(op),
            doubtful=not refused,
        )


def is_wide(op: Any) -> bool:
    return bool(wide_type(op)) and not CARRIES.fullmatch(op.type)


def wide_type(op: Any) -> str:
    """float64 or complex128, where one of its results is; a resource variable says it in an attribute."""
    names = [tensor.dtype.base_dtype.name for tensor in op.outputs]
    if op.type == "VarHandleOp":
        names.append(op.get_attr("dtype").name)
    return next((name for name in names if name in WIDE), "")


def users_line_of(op: Any) -> tuple[str, int] | None:
    """The innermost line of the script's own that created an operator."""
    for frame in reversed(list(op.traceback or [])):
        if limits.is_users(frame.filename):
            return frame.filename, frame.lineno
    return None
