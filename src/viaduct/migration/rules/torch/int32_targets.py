"""Cast class indices to int32 before they go to the NPU.

With `--int32-targets`:

     import torch
     import torch_npu
     criterion = torch.nn.CrossEntropyLoss()
     def step(model, images, target):
    -    target = target.npu(non_blocking=True)
    +    target = target.to(torch.int32).npu(non_blocking=True)
         return criterion(model(images), target)

Early releases of the NPU's software lack int64 kernels for some operators; the losses of the NPU accept int32 too.
Without `--int32-targets` the rule only advises the cast. On the CPU and on CUDA these losses accept int64 only, so do
not cast in a script that also runs there. Targets that are also used as an index (gather, one_hot, embedding), directly
or in a function of the project, stay.
"""

from __future__ import annotations

import ast

from viaduct.migration.lookups import mark_once, plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._indexing import Body, is_used_as_index

rule = Rule(__name__, category="advice", targets=("npu",))

MOVING_METHODS = ("npu", "cuda", "to")
LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")


@rule.node(ast.Call, only_if_file_contains=("CrossEntropyLoss", "NLLLoss", "cross_entropy", "criterion", "loss"))
def cast(site: Site) -> None:
    """Cast targets to int32 before their move, or advise it."""
    target = find_target(site)
    if target is None or not mark_once(site, "cast", site.source.function_around(site.node), target.id):
        return
    function = site.source.function_around(target) or site.source.tree
    moves = [node for node in ast.walk(function) if is_move_of(site, node, target.id)]
    if not moves or is_used_as_index(Body(function, site.values), target.id):
        return
    torch = site.file.names.local_name("torch")
    if not site.options.int32_targets or torch is None:
        advise_cast(site, moves[0], target.id)
        return
    for move in moves:
        site.edit.insert(site.source.span(move.func.value)[1], f".to({torch}.int32)")  # type: ignore[attr-defined]
        site.report_change(
            f"the classes in {target.id} are cast to int32 before the move",
            zh=f"{target.id} 中的类别编号在搬移前转为 int32",
            risk="medium",
            node=move,
        )


def find_target(site: Site) -> ast.Name | None:
    """Return the target of a loss for class indices, if it is a variable; None for any other call."""
    target = site.argument("target", 1)
    is_class_loss = site.qualified_name(site.node.func) in LOSSES or site.values.kind(site.node.func) == "class_loss"
    return target if isinstance(target, ast.Name) and is_class_loss else None


def is_move_of(site: Site, node: ast.AST, name: str) -> bool:
    """Return True for `target.cuda(…)` and `target.to(device)`, but not for the cast `target.to(torch.int32)`."""
    function = node.func if isinstance(node, ast.Call) else None
    if (
        not isinstance(function, ast.Attribute)
        or function.attr not in MOVING_METHODS
        or plain_name(function.value) != name
    ):
        return False
    values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]  # type: ignore[attr-defined]
    is_cast = any((site.qualified_name(value) or "").startswith("torch.") for value in values)
    return not is_cast and not site.source.is_in_f_string(node)


def advise_cast(site: Site, move: ast.AST, name: str) -> None:
    site.advise(
        f"if an int64 operator has no kernel on your release, cast {name} to torch.int32 before the move: "
        "--int32-targets does",
        zh=f"若所用版本缺少 int64 算子,可在搬移前将 {name} 转为 torch.int32:使用 --int32-targets",
        node=move,
    )
