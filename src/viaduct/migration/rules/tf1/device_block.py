"""Remove `with tf.device(…)` of a GPU, so that the NPU's compiler places the operators.

     import tensorflow as tf
    -with tf.device("/gpu:0"):
    -    x = tf.zeros([2])  # on the card
    +x = tf.zeros([2])  # on the card

A block is removed if its device is a string that names a GPU (a literal, a formatted string, a variable with only such
values) or the device of a tensor. A device that is decided at run time needs manual review. A block for the CPU stays.
With `--device cpu` the block is kept and names the CPU. Other items of the same `with` stay. A GPU block that was
nested in a CPU block would now run on the CPU: that is reported.
"""

from __future__ import annotations

import ast

from viaduct.migration.edits import Edits
from viaduct.migration.lookups import bindings_of, keyword_value, literal_text
from viaduct.migration.predicates import is_none
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1._strategies import DEVICE_SETTERS
from viaduct.migration.source import FunctionNode

rule = Rule(__name__, target_needs="placement", spec_rows=("N4", "V5"))


@rule.node(ast.With, ast.AsyncWith, only_if_file_contains=("device",))
def edit_block(site: Site) -> None:
    """Remove a GPU from the items of a `with`; advise on a CPU; report a parameter server and an unknown device."""
    for index, item in enumerate(site.node.items):
        if not is_device_call(site, item.context_expr):
            continue
        device = item.context_expr.args[0] if item.context_expr.args else None
        kind = classify_device(site, device)
        if kind == "gpu" and item.optional_vars is None:
            remove_device(site, index, device)
        elif kind == "cpu":
            site.advise(
                f"{site.text_of(item.context_expr)} stays: it names the CPU",
                zh=f"{site.text_of(item.context_expr)} 指定 CPU,保持不变",
            )
        elif kind != "none":
            report_unchanged(site, item.context_expr, kind)


def is_device_call(site: Site, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and site.qualified_name(node.func) == "tensorflow.device"


def classify_device(site: Site, device: ast.expr | None) -> str:
    """Return "gpu", "cpu", "none" for None, "setter" for parameter servers, or "unknown"."""
    if device is None:
        return "unknown"
    origin = site.values.assigned_value(device)
    if is_none(origin):
        return "none"
    if isinstance(origin, ast.Call) and site.qualified_name(origin.func) in DEVICE_SETTERS:
        return "setter"
    if is_device_of_tensor(site, device):  # the operators are placed beside a tensor; the block is removed like a GPU's
        return "gpu"
    return find_device_in_text(site, device) or "unknown"


def is_device_of_tensor(site: Site, device: ast.expr) -> bool:
    """Return True for `var.device` if `var` is a tensor, by its origin or its name."""
    if not (isinstance(device, ast.Attribute) and device.attr == "device" and isinstance(device.value, ast.Name)):
        return False
    origin = site.values.assigned_value(device.value)
    is_tensor = isinstance(origin, ast.Call) and (site.qualified_name(origin.func) or "").startswith("tensorflow.")
    return is_tensor or "var" in device.value.id.lower() or device.value.id in ("v", "w", "g", "grad", "tensor")


def find_device_in_text(site: Site, node: ast.AST, depth: int = 0) -> str:
    """Return the device that a string names, "gpu" or "cpu"; "" if it names both or neither, or is not known."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = " ".join(map(literal_text, parts)).lower()
        return only_value({name for name in ("gpu", "cpu") if name in text})
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return find_device_in_text(site, node.left, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return only_value(
            {find_device_in_text(site, node.left, depth), find_device_in_text(site, node.right, depth)} - {""}
        )
    if isinstance(node, ast.IfExp):
        return only_value({find_device_in_text(site, node.body, depth), find_device_in_text(site, node.orelse, depth)})
    if isinstance(node, ast.Call):
        return find_device_in_call(site, node, depth)
    if isinstance(node, ast.Name) and depth < 5:  # up to five assignments of one name to another are followed
        return only_value(
            {find_device_in_text(site, value, depth + 1) if value else "" for value in find_possible_values(site, node)}
        )
    return ""


def find_device_in_call(site: Site, call: ast.Call, depth: int) -> str:
    """Return the device of `"/gpu:{}".format(i)` and of tf.DeviceSpec(device_type=…); "" for any other call."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "format":
        return find_device_in_text(site, call.func.value, depth)
    if site.qualified_name(call.func) == "tensorflow.DeviceSpec":
        device_type = keyword_value(call, "device_type")
        return find_device_in_text(site, device_type, depth) if device_type is not None else ""
    return ""


def find_possible_values(site: Site, name: ast.Name) -> list[ast.expr | None]:
    """Return the values of a variable, for a loop variable the items of the list; None stands for an unknown value."""
    bindings = bindings_of(site, name) or [None]
    loops = [parent for parent in site.source.ancestors(name) if isinstance(parent, ast.For)]
    for loop in loops:
        if bindings == [None] and ast.unparse(loop.target) == name.id:
            items = site.values.assigned_value(loop.iter)
            return [*items.elts] if isinstance(items, ast.List | ast.Tuple) else [None]
    return [binding if isinstance(binding, ast.expr) else None for binding in bindings]


def only_value(values: set[str]) -> str:
    """Return the value of a set with one value, else ""."""
    return values.pop() if len(values) == 1 else ""


def remove_device(site: Site, index: int, device: ast.expr | None) -> None:
    """Remove the item, or the `with` itself if it is the only one; with `--device cpu` name the CPU instead."""
    if site.options.device == "cpu" and device is not None:
        site.edit.replace_node(device, "'/cpu:0'")
        site.report_change("the block names the CPU instead of a GPU", zh="设备由 GPU 改为 CPU")
        return
    if len(site.node.items) > 1:
        drop_item(site.edit, site.node, index)
    else:
        site.edit.unwrap(site.node)
    site.report_change(
        "the device's compiler places the operators: tf.device is removed", zh="算子由昇腾编译器放置:删除 tf.device"
    )
    report_cpu_block(site)
    report_towers(site)


def report_cpu_block(site: Site) -> None:
    """Report code of a GPU block that is now in a block for the CPU."""
    blocks = [site.node]
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, FunctionNode | ast.ClassDef):
            break
        if isinstance(parent, ast.With | ast.AsyncWith):
            blocks.append(parent)
    for item in (item for block in blocks for item in block.items):
        call = item.context_expr
        if is_device_call(site, call) and call.args and classify_device(site, call.args[0]) == "cpu":
            site.request_review(
                f"this was a GPU block within {site.text_of(call)}: without it the operators go to the CPU; end the "
                "outer block before them",
                zh=f"此处原在 {site.text_of(call)} 之内指定 GPU:删除后会落到 CPU 上;请让外层语句块在此之前结束",
                risk="high",
            )
            return


def drop_item(edit: Edits, node: ast.With, index: int) -> None:
    """Remove one of several items of a `with` with the comma behind it, or the last item with one beside it."""
    source, items = edit.source, node.items
    if index + 1 < len(items):
        start, end = source.span(items[index].context_expr)[0], source.span(items[index + 1].context_expr)[0]
        indent = source.text[source.line_start(end) : end]
        comments = "".join(f"{comment.text}{source.newline}{indent}" for comment in source.comments(start, end))
        edit.replace(start, end, comments)
    else:
        previous = items[index - 1]
        end = source.span(previous.optional_vars or previous.context_expr)[1]
        comma = next(token for token in source.tokens_from(end) if token.text == ",")
        start, stop = source.span(items[index].context_expr)
        if not source.comments(comma.start, start):
            edit.delete(comma.start, stop)
            return
        following = next(source.tokens_from(stop))  # between parentheses, so the comma before the item may stay
        edit.delete(*edit.extend_over_blanks(start, following.end if following.text == "," else stop))


def report_towers(site: Site) -> None:
    """Report a loop over GPUs that builds a copy of the network for each of them."""
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, ast.For) and "gpu" in ast.unparse(parent.iter).lower():
            site.request_review(
                f"a tower for each GPU (for … in {ast.unparse(parent.iter)}): keep one and remove the averaging of "
                "gradients; every device has its own process",
                zh=f"按 GPU 构建多个 tower(for … in {ast.unparse(parent.iter)}):"
                "请只保留一个并去掉梯度平均;每个设备对应一个进程",
                risk="high",
                node=parent,
            )
            return


def report_unchanged(site: Site, call: ast.expr, kind: str) -> None:
    """Report a device that stays: of a parameter server, decided at run time, or bound by `as`."""
    if kind == "setter":
        site.request_review(
            "replica_device_setter places variables on parameter servers: train with NPUDistributedOptimizer instead",
            zh="replica_device_setter 用于参数服务器:请改用 NPUDistributedOptimizer",
            risk="high",
            node=call,
        )
    else:
        site.request_review(
            f"{site.text_of(call)}: if this is a GPU, perhaps decided at run time, remove the block",
            zh=f"{site.text_of(call)}:若为 GPU(可能在运行时决定),请删除该语句块",
            node=call,
        )
        report_towers(site)
