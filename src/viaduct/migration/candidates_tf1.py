"""Find the lines of a TensorFlow 1 script that a requirement of the NPU or the MLU concerns (candidates.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viaduct.cards.tensorflow_api import DEFINING_MODULE, NPU_BRIDGE, full_name
from viaduct.migration.candidates import Candidate, Mark, State, make_candidate, uses_any
from viaduct.migration.lookups import literal_text, plain_name
from viaduct.migration.module_flow import HOROVOD_MODULES
from viaduct.migration.predicates import is_constant, is_none_or_absent
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._batchers import (
    BUCKETING_FUNCTIONS,
    CSV_READERS,
    FEATURE_READERS,
    QUEUE_FUNCTIONS,
    SPARSE_FUNCTIONS,
    has_equal_batches,
)
from viaduct.migration.rules.tf1._horovod import is_horovod
from viaduct.migration.rules.tf1._run_configs import comes_from_converter, is_only_passed_to_converter
from viaduct.migration.rules.tf1._session_configs import has_npu_optimizer
from viaduct.migration.rules.tf1._session_uses import only_handles_files
from viaduct.migration.sessions import CONFIG_ARGUMENTS, CONFIG_ARGUMENTS_BY_KIND_AND_METHOD, CONFIG_ARGUMENTS_BY_METHOD
from viaduct.migration.values import kind_of_call

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile

ROOTS = ("tensorflow", "keras", "horovod", "tf_slim", NPU_BRIDGE)
RULE = Rule(__name__)  # only for calling functions that take a Site
SESSION_NAMES = ("Session", "InteractiveSession", "MonitoredTrainingSession", "SingularMonitoredSession")
MONITORED_SESSION = "tensorflow.train.MonitoredSession"
ESTIMATORS = {
    "tensorflow.estimator.Estimator",
    *(f"tensorflow.estimator.tpu.{name}" for name in ("TPUEstimator", "TPUEstimatorSpec")),
}
RUN_CONFIGS = {"tensorflow.estimator.RunConfig", "tensorflow.estimator.tpu.RunConfig"}
NPU_ESTIMATOR_PREFIX = f"{DEFINING_MODULE['NPUEstimator']}."
NPU_RUN_CONFIGS = (full_name("NPURunConfig"), full_name("npu_run_config_init"))
BATCHING = {"batch": 1, "padded_batch": 3}  # method -> position of drop_remainder
MAP_AND_BATCH = ("tensorflow.data.experimental.map_and_batch", "tensorflow.contrib.data.map_and_batch")
LOSS_SCALES = (
    "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite", "tensorflow.contrib.mixed_precision.",
    "tensorflow.train.experimental.MixedPrecisionLossScaleOptimizer", "tensorflow.train.experimental.FixedLossScale",
    "tensorflow.train.experimental.DynamicLossScale",
)  # fmt: skip
TRAIN_OP_FUNCTIONS = ("learning.create_train_op", "training.create_train_op", "layers.optimize_loss")
MARKS: dict[Mark, tuple[str, ...]] = {
    "broadcasts": ("hccl_ops.broadcast", "NPUBroadcastGlobalVariablesHook", "npu_hooks_append", "broadcast_global_"),
    "communicates": ("initialize_system", "npu_resource_init", "npu_plugin", "init_npu(", "hvd.init"),
    "delegates": ("NPUEstimator", "NPUStrategy", "keras_to_npu"),
}
"""Mark -> texts: a file whose code contains one of them has the mark; comments and strings do not count.

delegates: an API of the NPU broadcasts and starts the communication itself.
"""
# A string literal that names a GPU in TensorFlow: `/gpu:0`, `/job:worker/task:0/device:GPU:%d`.
GPU_TEXT = re.compile(
    r"/?(?:job:\w+/)?(?:replica:\d+/)?(?:task:\d+/)?(?:/?device:)?/?gpu:(?:\d+|\*|%[dis]|\{[^{}]*\})?", re.IGNORECASE
)


def find_candidates(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the candidates of a TensorFlow 1 file: for the MLU device strings alone, with --to any none."""
    if file.options.to == "any" or not uses_any(file, ROOTS):
        return
    if file.options.to == "npu":
        yield from find_sessions(file)
        yield from find_estimators(file)
        yield from find_batches(file)
        yield from find_other_batches(file)
        yield from find_loss_scales(file)
        yield from find_horovod_uses(file)
    yield from find_placements(file)


def find_marks(file: MigratedFile) -> frozenset[Mark]:
    """Return the marks of a file; none unless the target is the NPU with --distributed."""
    if not file.options.distributed or file.options.to != "npu" or not uses_any(file, ROOTS):
        return frozenset()
    trains = any(method in file.index.methods for method in ("minimize", "apply_gradients"))
    trains = trains or any(name.endswith(TRAIN_OP_FUNCTIONS) for name in file.index.calls)
    marks = {mark for mark, texts in MARKS.items() if any(map(file.source.has_code, texts))}
    return frozenset({*marks, "trains"} if trains else marks)


# ---- sessions


def find_sessions(file: MigratedFile) -> Iterator[Candidate]:
    """Yield calls that open a session: functions by their qualified name, methods by name and kind of the object."""
    for name, calls in file.index.calls.items():
        if name in CONFIG_ARGUMENTS or name == MONITORED_SESSION:
            for call in calls:
                yield make_candidate(file, "sessions", call, judge_session(file, call, name))
        elif is_hidden_session(name):
            yield from (make_candidate(file, "sessions", call, "unclear") for call in calls)
    for method, calls in file.index.methods.items():
        for call in calls:
            if method in SESSION_NAMES and file.names.qualified(call.func) is None:
                yield make_candidate(file, "sessions", call, "unclear")
            elif method in CONFIG_ARGUMENTS_BY_METHOD and may_manage_sessions(file, call, method):
                state = judge_config(file, call, *CONFIG_ARGUMENTS_BY_METHOD[method])
                yield make_candidate(file, "sessions", call, state)
    for node in file.source.nodes_of_type(ast.Call):
        if is_session_lookup(node):
            yield make_candidate(file, "sessions", node, "unclear")


def is_session_lookup(call: ast.Call) -> bool:
    """Return True for `getattr(tf, "Session")`."""
    names = call.args[1:2] if plain_name(call.func) == "getattr" else []
    return any(literal_text(name) in SESSION_NAMES for name in names)


def is_hidden_session(name: str) -> bool:
    """Return True for a session class reached through another module's `tf`: `common.tf.Session`."""
    root, _, remainder = name.partition(".")
    return remainder.rpartition(".")[2] in SESSION_NAMES and ".tf." in f".{remainder}" and root not in ROOTS


def may_manage_sessions(file: MigratedFile, call: ast.Call, method: str) -> bool:
    """Return True if the method's object is a session manager or supervisor, or may be one by the method's name."""
    kind = file.values.kind(call.func.value)  # type: ignore[attr-defined]
    if (kind or "", method) in CONFIG_ARGUMENTS_BY_KIND_AND_METHOD:
        return True
    return kind is None and method in ("managed_session", "prepare_or_wait_for_session")


def judge_session(file: MigratedFile, call: ast.Call, name: str) -> State:
    """Return the state of a session by its config; a MonitoredSession is "right" with any session_creator."""
    if name == MONITORED_SESSION:
        creator = Site(RULE, file, call, name).argument("session_creator", 0)
        return "needed" if is_none_or_absent(creator) else "right"
    return judge_config(file, call, *CONFIG_ARGUMENTS[name])


def judge_config(file: MigratedFile, call: ast.Call, keyword: str, position: int) -> State:
    """Return "right" if the config is ready for the NPU, or the session only reads and writes files; else "needed"."""
    site = Site(RULE, file, call)
    value = site.argument(keyword, position)
    has_config = value is not None and not is_none_or_absent(value) and has_npu_optimizer(site, value)
    return "right" if has_config or only_handles_files(site) else "needed"


# ---- estimators


def find_estimators(file: MigratedFile) -> Iterator[Candidate]:
    """Yield uses of TensorFlow's Estimators and run configurations, and calls of the NPU's, which are "right"."""
    for table in (file.index.calls, file.index.references):
        for name, nodes in table.items():
            if name in ESTIMATORS:
                yield from (
                    make_candidate(file, "estimators", node, judge_estimator(file, node, name)) for node in nodes
                )
            elif name in RUN_CONFIGS:
                yield from (make_candidate(file, "run_configs", node, judge_run_config(file, node)) for node in nodes)
    for name, calls in file.index.calls.items():
        if name.startswith(NPU_ESTIMATOR_PREFIX):
            yield from (make_candidate(file, "estimators", call, "right") for call in calls)
        elif name in NPU_RUN_CONFIGS:
            yield from (make_candidate(file, "run_configs", call, "right") for call in calls)


def judge_estimator(file: MigratedFile, node: ast.AST, name: str) -> State:
    """Return "right" for an Estimator or TPUEstimator whose config comes from npu_run_config_init; else "needed"."""
    if not isinstance(node, ast.Call) or not name.endswith((".Estimator", ".TPUEstimator")):
        return "needed"
    site = Site(RULE, file, node)
    return "right" if comes_from_converter(site, site.argument("config", 2)) else "needed"


def judge_run_config(file: MigratedFile, node: ast.expr) -> State:
    """Return "right" for a run configuration that is only passed to npu_run_config_init; else "needed"."""
    is_converted = isinstance(node, ast.Call) and is_only_passed_to_converter(Site(RULE, file, node), node)
    return "right" if is_converted else "needed"


# ---- datasets


def find_batches(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the calls that make batches of a dataset."""
    for name in MAP_AND_BATCH:
        for call in file.index.calls.get(name, []):
            yield make_candidate(file, "batches", call, judge_batch(file, call, position=3))
    for method, position in BATCHING.items():
        for call in file.index.methods.get(method, []):
            if call.args or call.keywords:  # a dataset's method needs a batch size
                state = judge_batch(file, call, position)
                kind = file.values.kind(call.func.value)  # type: ignore[attr-defined]
                if kind == "dataset":
                    yield make_candidate(file, "batches", call, state)
                elif kind is None and state != "right" and not is_other_method(file, call, method):
                    yield make_candidate(file, "batches", call, "unclear")


def find_other_batches(file: MigratedFile) -> Iterator[Candidate]:
    """Yield calls of other functions that make batches, and uses of a dataset's batching methods as values."""
    for name in (*QUEUE_FUNCTIONS, *FEATURE_READERS, *CSV_READERS, *BUCKETING_FUNCTIONS, *SPARSE_FUNCTIONS):
        for call in file.index.calls.get(name, []):
            site = Site(RULE, file, call, name)
            if name not in QUEUE_FUNCTIONS or site.keyword("allow_smaller_final_batch") is not None:
                yield make_candidate(file, "batches", call, "right" if has_equal_batches(site, name) else "needed")
    for node in file.source.nodes_of_type(ast.Attribute):
        if node.attr in BATCHING and isinstance(node.ctx, ast.Load):
            parent = file.source.parents.get(node)
            is_function_or_owner = isinstance(parent, ast.Attribute) or getattr(parent, "func", None) is node
            if not is_function_or_owner and file.values.kind(node.value) == "dataset":
                yield make_candidate(file, "batches", node, "unclear")
    for call in file.source.nodes_of_type(ast.Call):
        match call:
            case ast.Call(func=ast.Name(id="getattr"), args=[receiver, ast.Constant(value=str(text)), *_]):
                if text in BATCHING and file.values.kind(receiver) == "dataset":
                    yield make_candidate(file, "batches", call, "unclear")


def judge_batch(file: MigratedFile, call: ast.Call, position: int) -> State:
    """Return "right" if drop_remainder is True, given by keyword or at `position`; else "needed"."""
    return "right" if is_constant(Site(RULE, file, call).argument("drop_remainder", position), True) else "needed"


def is_other_method(file: MigratedFile, call: ast.Call, method: str) -> bool:
    """Return True for a method of another library, or the project's own if the project calls no TensorFlow dataset."""
    if file.values.is_from_other_library(call.func.value) or file.names.qualified(call.func) is not None:  # type: ignore[attr-defined]
        return True
    called = file.project.files_calling.keys()
    uses_datasets = any(kind_of_call(name) == "dataset" or name.startswith("tensorflow_datasets.") for name in called)
    return method in file.project.own_method_names and not uses_datasets


# ---- device strings, mixed precision, Horovod


def find_placements(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the strings that name a GPU, except strings that are statements, and keys of dictionaries.

    For the NPU, values of dictionaries are left out too: the rule tf1.device_block reports `tf.device(table["key"])`.
    """
    for node in file.source.nodes_of_type(ast.Constant):
        if isinstance(node.value, str) and GPU_TEXT.fullmatch(node.value):
            parent = file.source.parents.get(node)
            is_left_out = isinstance(parent, ast.Dict) and (file.options.to == "npu" or node in parent.keys)
            if not isinstance(parent, ast.Expr) and not is_left_out:
                yield make_candidate(file, "placement", node, "needed")


def find_loss_scales(file: MigratedFile) -> Iterator[Candidate]:
    """Yield TensorFlow's loss scaling as "needed", the NPU's loss-scale optimizers as "right"."""
    for name, calls in file.index.calls.items():
        if name.startswith(LOSS_SCALES):
            yield from (make_candidate(file, "loss_scale", call, "needed") for call in calls)
        elif kind_of_call(name) == "loss_scale_optimizer":
            yield from (make_candidate(file, "loss_scale", call, "right") for call in calls)


def find_horovod_uses(file: MigratedFile) -> Iterator[Candidate]:
    """Yield the uses of Horovod's members, and of its module where it is passed to code that is not followed."""
    if "horovod" in file.project.own_module_names:
        return  # the project is Horovod itself
    for table in (file.index.calls, file.index.references):
        for name, nodes in table.items():
            if name in HOROVOD_MODULES:
                escapes = file.project.horovod_escapes.get(file.path, ())
                unfollowed = [node for node in nodes if node.lineno in escapes]
                yield from (make_candidate(file, "communication", node, "needed") for node in unfollowed)
            elif is_horovod(name):
                yield from (make_candidate(file, find_horovod_requirement(name), node, "needed") for node in nodes)


def find_horovod_requirement(name: str) -> str:
    """Return the requirement (requirements.py) that the use of a member of Horovod concerns."""
    last = name.rpartition(".")[2]
    if last == "DistributedOptimizer":
        return "optimizers"
    return "broadcast" if last.lower().startswith("broadcast") else "communication"
