"""Give all batches of a dataset the same size.

     import tensorflow as tf
     ds = tf.data.TFRecordDataset(files)
    -ds = ds.batch(32)
    +ds = ds.batch(32, drop_remainder=True)

The NPU compiles a graph for fixed shapes, so a shorter last batch cannot run. The rule edits batch, padded_batch and
map_and_batch of datasets, and reports `.batch()` of an object that only looks like a dataset. A value of drop_remainder
that is a parameter of the function is replaced too: if every call in the project passes a literal for it, the finding
names the calls, which may be changed instead. Evaluation and prediction lose the examples of the last batch: the
finding says so, and needs manual review if an Estimator's predict() gets the data. With `--pad-predict` the last batch
of a prediction is padded: `ds.concatenate(ds.repeat().take(n - 1))` replaces `ds` before the batch of n examples. This
yields every example, and at the end at most n - 1 of the first examples again.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import plain_name
from viaduct.migration.names import all_parameters
from viaduct.migration.predicates import find_argument, is_constant, is_literal
from viaduct.migration.project import Project
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._batchers import EVALUATION_NAMES, report_dropped_batch
from viaduct.migration.source import FunctionNode

rule = Rule(__name__, target_needs="batches", spec_rows=("D1", "D2", "D3"))

DROP_REMAINDER_POSITIONS = {"batch": 1, "padded_batch": 3}
DATASET_METHODS = {"shuffle", "repeat", "prefetch", "flat_map"}
ESTIMATOR_METHODS = ("train", "evaluate", "predict")


@rule.method("batch", "padded_batch")
def drop_remainder(site: Site) -> None:
    kind = site.values.kind(site.node.func.value)
    if kind == "dataset":
        set_drop_remainder(site, DROP_REMAINDER_POSITIONS[site.name])
    elif kind is None and looks_like_dataset(site):
        site.request_review(
            f"`.{site.name}` may be a dataset's: if it is, it needs drop_remainder=True",
            zh=f"`.{site.name}` 可能是数据集方法:若是,需加 drop_remainder=True",
        )


@rule.call("tensorflow.data.experimental.map_and_batch", "tensorflow.contrib.data.map_and_batch")
def drop_remainder_of_map(site: Site) -> None:
    set_drop_remainder(site, position=3)


def set_drop_remainder(site: Site, position: int) -> None:
    """Set drop_remainder; pad a prediction's last batch, or report the examples that are lost."""
    present = site.argument("drop_remainder", position)
    if is_constant(present, True):
        return
    if not site.is_editable or (site.has_unpacked_arguments and present is None):
        site.request_review(
            "arguments are unpacked here, or the call is in an f-string: make sure that drop_remainder is True",
            zh="此处参数为解包形式,或位于 f-string 中:请确认 drop_remainder 为 True",
        )
        return
    site.set_argument("drop_remainder", "True", position)
    report_dropped_batch(site)
    advise_parameter(site, present)
    if not (site.options.pad_predict and is_for_prediction(site)):
        report_lost_examples(site)
    elif {"predict"} < find_consuming_methods(site):  # predict() and another method
        site.request_review(
            "this pipeline feeds training or evaluation as well as prediction, so it is not padded here: pad the "
            "input of predict() to a multiple of the batch, or the examples of its last batch are lost",
            zh="该数据集同时用于训练或评估与推理,此处不做补齐:"
            "请将 predict() 的输入补齐到批大小的整数倍,否则最后一批样本会丢失",
        )
    elif not pad_last_batch(site):
        site.request_review(
            "this prediction's last batch cannot be padded here: pad the input to a multiple of the batch by hand",
            zh="此处无法自动补齐推理的最后一批:请手工将输入补齐到批大小的整数倍",
        )


def is_for_prediction(site: Site) -> bool:
    """Return True for a pipeline that feeds a predict(), or whose function has a name such as "infer"."""
    name = get_function_name(site)
    return any(part in name for part in ("predict", "infer", "serving")) or "predict" in find_consuming_methods(site)


def get_function_name(site: Site) -> str:
    """Return the name of the function around the site, in lower case; "" at module level."""
    function = site.source.function_around(site.node)
    return function.name.lower() if function else ""


def find_consuming_methods(site: Site) -> set[str]:
    """Return the methods of Estimators ("train", "evaluate", "predict") that get this data in the project."""
    methods: set[str] = set()
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, FunctionNode):
            methods |= follow_to_estimators(site.file.project, site.file.names.module, parent, set())
        elif (method := get_estimator_method(site, parent)) is not None:
            methods.add(method)  # the site is in a lambda among the arguments: `predict(lambda: ds.batch(8))`
    return methods


def get_estimator_method(site: Site, node: ast.AST) -> str | None:
    """Return "train", "evaluate" or "predict" for a call of that method of an Estimator; None for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr not in ESTIMATOR_METHODS:
        return None
    return function.attr if site.values.kind(function.value) in ("estimator", "npu_estimator") else None


def follow_to_estimators(project: Project, module: str, function: FunctionNode, visited: set[str]) -> set[str]:
    """Return the methods of Estimators that get the data of a function, directly or through its callers."""
    name = f"{module}.{function.name}"
    if name in visited:
        return set()
    visited.add(name)
    methods = project.input_functions.get(name, set()) | project.input_functions.get(f"*.{function.name}", set())
    for path, call in project.calls.get(name, ()):
        if (caller := project.parsed.get(path)) is not None:
            functions = (parent for parent in caller.source.ancestors(call) if isinstance(parent, FunctionNode))
            for calling_function in functions:
                methods |= follow_to_estimators(project, caller.module, calling_function, visited)
    return methods


def pad_last_batch(site: Site) -> bool:
    """Pad the last batch; return False if the batch size is no simple expression, since it is written twice."""
    is_map = "map_and_batch" in site.name  # applied to the dataset: `ds.apply(map_and_batch(…))`
    size = site.argument("batch_size", 1 if is_map else 0)
    call: ast.AST = site.source.parents[site.node] if is_map else site.node
    method = call.func if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    if method is None or size is None or not is_simple(size) or (is_map and method.attr != "apply"):
        return False
    receiver = method.value
    text, count = site.text_of(receiver), site.text_of(size)
    if isinstance(receiver, ast.Name):
        padding = f".concatenate({text}.repeat().take({count} - 1))"
    else:
        padding = f".apply(lambda ds: ds.concatenate(ds.repeat().take({count} - 1)))"
    site.edit.insert(site.source.span(receiver)[1], padding)
    site.report_change(
        "the last batch of this prediction is padded with the first examples: truncate the result to the number of "
        "examples",
        zh="推理的最后一批用开头的样本补齐:请将结果截取到样本数",
        risk="medium",
    )
    return True


def is_simple(size: ast.expr) -> bool:
    """Return True for a name, an attribute, a literal, or `params["batch_size"]`."""
    if isinstance(size, ast.Subscript):
        return isinstance(size.value, ast.Name | ast.Attribute) and isinstance(size.slice, ast.Constant)
    return isinstance(size, ast.Name | ast.Attribute | ast.Constant)


def advise_parameter(site: Site, present: ast.expr | None) -> None:
    """Advise on a replaced value of drop_remainder that was a parameter of the function."""
    function = site.source.function_around(site.node)
    if not isinstance(present, ast.Name) or function is None:
        return
    parameters = [parameter.arg for parameter in function.args.args]
    if present.id not in parameters:
        return
    position, name = parameters.index(present.id), f"{site.file.names.module}.{function.name}"
    calls = site.file.project.calls.get(name, [])
    shown = [f"{path}:{call.lineno}" for path, call in calls[:5]]
    locations = ", ".join([*shown, "…"] if len(calls) > 5 else shown)
    if calls and all(is_literal(find_argument(call, present.id, position)) for _, call in calls):
        site.advise(
            f"{present.id} is a literal at every call ({locations}): those calls could pass True instead, and the "
            "parameter could stay",
            zh=f"所有调用处 {present.id} 均为字面量({locations}):也可改为在调用处传 True 并保留该参数",
        )
    else:
        site.advise(f"the parameter {present.id} has no effect here any more", zh=f"参数 {present.id} 在此处不再起作用")


def report_lost_examples(site: Site) -> None:
    """Report that evaluation or prediction loses the examples of the last, incomplete batch."""
    name = get_function_name(site)
    if "predict" in find_consuming_methods(site):
        site.request_review(
            "predict() gets this data: the examples of the last incomplete batch are lost; pad the input to a "
            "multiple of the batch (--pad-predict does so if no other run shares the data)",
            zh="predict() 使用该数据:最后不足一批的样本会丢失;请将输入补齐到批大小的整数倍"
            "(未与训练共用时可用 --pad-predict)",
        )
    elif any(text in name for text in EVALUATION_NAMES):
        site.advise(
            f"{name} looks like evaluation or prediction: the examples of the last incomplete batch are lost; pad the "
            "input to a multiple of the batch (--pad-predict)",
            zh=f"{name} 似为评估或推理:最后不足一批的样本会丢失;请将输入补齐到批大小的整数倍(--pad-predict)",
            risk="medium",
        )


def looks_like_dataset(site: Site) -> bool:
    """Return True for a receiver named like a dataset, or a parameter on which other dataset methods are called.

    False for an object that is known to be something else.
    """
    receiver, methods = site.node.func.value, set()
    if site.values.is_from_other_library(receiver) or not (site.node.args or site.node.keywords):
        return False
    while isinstance(receiver, ast.Call | ast.Attribute):
        if isinstance(receiver, ast.Attribute):
            methods.add(receiver.attr)
        receiver = receiver.func if isinstance(receiver, ast.Call) else receiver.value
    if not isinstance(receiver, ast.Name):
        return False
    has_name = "dataset" in receiver.id.lower() or receiver.id.lower() == "ds"
    return has_name or (
        is_parameter(site, receiver) and bool((methods | find_used_attributes(site, receiver)) & DATASET_METHODS)
    )


def is_parameter(site: Site, name: ast.Name) -> bool:
    function = site.source.function_around(name)
    return function is not None and name.id in {argument.arg for argument in all_parameters(function.args)}


def find_used_attributes(site: Site, name: ast.Name) -> set[str]:
    """Return the attributes of a variable that its function uses."""
    nodes = ast.walk(site.source.function_around(name) or name)
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and plain_name(node.value) == name.id}
