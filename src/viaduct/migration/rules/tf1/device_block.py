"""Let the accelerator place operators: take `with tf.device(…)` of a GPU away.

     import tensorflow as tf
    -with tf.device("/gpu:0"):
    -    x = tf.zeros([2])  # on the card
    +x = tf.zeros([2])  # on the card

The device's compiler takes the whole graph. Only a text that names a GPU is taken away (a literal, a formatted one, a
name that is nothing else), and the device of a variable; a flag or a parameter is decided at run time and left to a
person. A block for the CPU stays as it is. With `--device cpu` the block is kept and names the CPU instead. Of several
items in one `with` only the device is dropped. Inside a block for the CPU, what was meant for the GPU would now be
asked for there: that is a finding.
"""

from __future__ import annotations

import ast

from viaduct.migration.edits import Edits
from viaduct.migration.rule import Rule, Site

rule = Rule(__name__, spec="N4 V5", kind="mandatory")

SETTERS = ("tensorflow.train.replica_device_setter", "tensorflow.contrib.framework.replica_device_setter")


@rule.node(ast.With, ast.AsyncWith, words=("device",))
def block(site: Site) -> None:
    entries = [index for index, item in enumerate(site.node.items) if is_device(site, item.context_expr)]
    for entry in entries:
        item = site.node.items[entry]
        device = item.context_expr.args[0] if item.context_expr.args else None
        what = classify_device(site, device)
        if what == "gpu" and item.optional_vars is None:
            remove(site, entry, device)
        elif what == "cpu":
            site.advice(
                f"{site.text(item.context_expr)} stays: it names the CPU",
                zh=f"{site.text(item.context_expr)} 指定 CPU,保持不变",
            )
        elif what != "nothing":
            leave(site, item.context_expr, what)


def is_device(site: Site, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and site.qualified(node.func) == "tensorflow.device"


def classify_device(site: Site, device: ast.expr | None) -> str:
    """gpu, cpu, nothing (None), setter (parameter server) or unknown."""
    if device is None:
        return "unknown"
    origin = site.values.origin(device)
    if isinstance(origin, ast.Constant) and origin.value is None:
        return "nothing"
    if isinstance(origin, ast.Call) and site.qualified(origin.func) in SETTERS:
        return "setter"
    if is_of_variable(site, device):
        return "gpu"
    return device_in_text(site, device) or "unknown"


def is_of_variable(site: Site, device: ast.expr) -> bool:
    """`var.device`: where a variable is, so where the GPU would have been."""
    if not (isinstance(device, ast.Attribute) and device.attr == "device" and isinstance(device.value, ast.Name)):
        return False
    made = site.values.origin(device.value)
    built = isinstance(made, ast.Call) and (site.qualified(made.func) or "").startswith("tensorflow.")
    return built or "var" in device.value.id.lower() or device.value.id in ("v", "w", "g", "grad", "tensor")


def device_in_text(site: Site, node: ast.AST, depth: int = 0) -> str:
    """gpu or cpu where a text says so, whatever else is put into it; "" where it is decided at run time."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        return one_of(texts(node))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return device_in_text(site, node.left, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return single_value({device_in_text(site, node.left, depth), device_in_text(site, node.right, depth)} - {""})
    if isinstance(node, ast.IfExp):
        return single_value({device_in_text(site, node.body, depth), device_in_text(site, node.orelse, depth)})
    if isinstance(node, ast.Call):
        return named_by_call(site, node, depth)
    if isinstance(node, ast.Name) and depth < 5:
        return single_value(
            {device_in_text(site, value, depth + 1) if value else "" for value in possible_values(site, node)}
        )
    return ""


def named_by_call(site: Site, call: ast.Call, depth: int) -> str:
    """`"/gpu:{}".format(i)`, `str(…)` and tf.DeviceSpec; what another function makes of a text is not seen."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "format":
        return device_in_text(site, call.func.value, depth)
    if site.qualified(call.func) == "tensorflow.DeviceSpec":
        given = [keyword.value for keyword in call.keywords if keyword.arg == "device_type"]
        return device_in_text(site, given[0], depth) if given else ""
    return ""


def possible_values(site: Site, name: ast.Name) -> list[ast.expr | None]:
    """All that a name may be: its assignments, or the items of the literal that a loop goes over; None: unknown."""
    bound = site.work.names.lookup(name.id, site.work.names.scope_of(name)) or [None]
    loops = [parent for parent in site.source.ancestors(name) if isinstance(parent, ast.For)]
    for loop in loops:
        if bound == [None] and ast.unparse(loop.target) == name.id:
            items = site.values.origin(loop.iter)
            return [*items.elts] if isinstance(items, ast.List | ast.Tuple) else [None]
    return [value if isinstance(value, ast.expr) else None for value in bound]


def single_value(found: set[str]) -> str:
    return found.pop() if len(found) == 1 else ""


def one_of(pieces: list[str]) -> str:
    text = " ".join(pieces).lower()
    return single_value({name for name in ("gpu", "cpu") if name in text})


def texts(node: ast.AST) -> list[str]:
    """Return the text of a literal, or of an f-string what stands outside its braces."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def remove(site: Site, index: int, device: ast.expr | None) -> None:
    if site.options.device == "cpu" and device is not None:
        site.edit.node(device, "'/cpu:0'")
        site.changed("the block names the CPU instead of a GPU", zh="设备由 GPU 改为 CPU")
        return
    if len(site.node.items) > 1:
        drop_item(site.edit, site.node, index)
    else:
        site.edit.unwrap(site.node)
    site.changed(
        "operators are placed by the device's compiler: the block is gone", zh="算子由昇腾编译器放置:删除 tf.device"
    )
    within_cpu(site)
    towers(site)


def within_cpu(site: Site) -> None:
    """Report that code for a GPU now stands under the block for the CPU around it."""
    around = [site.node]
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            break
        if isinstance(parent, ast.With | ast.AsyncWith):
            around.append(parent)
    for item in (item for block in around for item in block.items):
        call = item.context_expr
        if is_device(site, call) and call.args and classify_device(site, call.args[0]) == "cpu":
            site.manual(
                f"this stood on a GPU within {site.text(call)}: without its own block it is asked for on the CPU; end "
                "the outer block before it",
                zh=f"此处原在 {site.text(call)} 之内指定 GPU:删除后会落到 CPU 上;请让外层语句块在此之前结束",
                risk="high",
            )
            return


def drop_item(edit: Edits, node: ast.With, index: int) -> None:
    """One of several items: with the comma behind it, or before it if it is the last."""
    source, items = edit.source, node.items
    if index + 1 < len(items):
        start, end = source.span(items[index].context_expr)[0], source.span(items[index + 1].context_expr)[0]
        between = source.text[source.line_start(end) : end]
        kept = "".join(f"{comment.text}{source.newline}{between}" for comment in source.comments(start, end))
        edit.replace(start, end, kept)
    else:
        before = items[index - 1]
        end = source.span(before.optional_vars or before.context_expr)[1]
        comma = next(token for token in source.tokens_from(end) if token.text == ",")
        start, stop = source.span(items[index].context_expr)
        if not source.comments(comma.start, start):
            edit.delete(comma.start, stop)
            return
        behind = next(source.tokens_from(stop))  # between parentheses, so the comma before it may stay
        edit.delete(*edit.with_blank(start, behind.end if behind.text == "," else stop))


def towers(site: Site) -> None:
    """V5: a loop over GPUs builds one copy of the network for each; here one process has one device."""
    for parent in site.source.ancestors(site.node):
        if isinstance(parent, ast.For) and "gpu" in ast.unparse(parent.iter).lower():
            site.manual(
                f"a tower for each GPU (for … in {ast.unparse(parent.iter)}): keep one and drop the averaging of "
                "gradients; every device is a process of its own",
                zh=f"按 GPU 构建多个 tower(for … in {ast.unparse(parent.iter)}):"
                "请只保留一个并去掉梯度平均;每个设备对应一个进程",
                risk="high",
                node=parent,
            )
            return


def leave(site: Site, call: ast.expr, what: str) -> None:
    if what == "setter":
        site.manual(
            "replica_device_setter places variables on parameter servers: train with NPUDistributedOptimizer instead",
            zh="replica_device_setter 用于参数服务器:请改用 NPUDistributedOptimizer",
            risk="high",
            node=call,
        )
    else:
        site.manual(
            f"{site.text(call)}: whether this is a GPU is decided at run time; remove the block if it is",
            zh=f"{site.text(call)}:是否为 GPU 在运行时决定;若是请删除该语句块",
            node=call,
        )
        towers(site)
