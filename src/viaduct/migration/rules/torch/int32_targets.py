"""Cast class numbers to int32 before they go to the NPU.

     import torch
     import torch_npu
     criterion = torch.nn.CrossEntropyLoss()
     def step(model, images, target):
    -    target = target.npu(non_blocking=True)
    +    target = target.to(torch.int32).npu(non_blocking=True)
         return criterion(model(images), target)

Early releases of the NPU's software lack int64 kernels for some operators, and hand-migrated scripts cast the targets
of their loss for that reason; the losses of the NPU take both. It is advice, and done with `--int32-targets`. On the
CPU and on CUDA these losses take int64 alone, so a script that is to run there as well should not have it. Targets that
also serve as an index (gather, one_hot, embedding), here or in a function of the project that they go to, stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.torch._indexing import Place, is_index

rule = Rule(__name__, spec="P17", kind="advice", targets=("npu",))
EXAMPLE_OPTIONS = {"int32_targets": True}

MOVES = ("npu", "cuda", "to")
LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")


@rule.node(ast.Call, words=("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss", "criterion", "loss"))
def cast(site: Site) -> None:
    """Cast targets to int32 where they are moved, or advise it."""
    target = target_of(site)
    if target is None or ("cast", site.source.function(site.node), target.id) in site.work.seen:
        return
    site.work.seen[("cast", site.source.function(site.node), target.id)] = None
    moves = list(find_moves(site, target))
    if not moves:
        return
    torch = site.work.names.local("torch")
    home = site.source.function(target)
    if is_index(Place(home if home is not None else site.source.tree, site.values), target.id):
        return
    if not site.options.int32_targets or torch is None:
        advise(site, moves[0], target.id)
        return
    for move in moves:
        site.edit.insert(site.source.span(move.func.value)[1], f".to({torch}.int32)")  # type: ignore[attr-defined]
        site.changed(
            f"the classes in {target.id} are cast to int32 before the move",
            zh=f"{target.id} 中的类别编号在搬移前转为 int32",
            risk="medium",
            node=move,
        )


def target_of(site: Site) -> ast.Name | None:
    """The second argument of a loss that takes numbers of classes."""
    target = site.argument("target", 1)
    if not isinstance(target, ast.Name):
        return None
    known = site.qualified(site.node.func) in LOSSES or site.values.kind(site.node.func) == "class_loss"
    return target if known else None


def within(site: Site, target: ast.Name) -> Iterator[ast.AST]:
    """Yield the nodes of the function around the target, or of the file."""
    home = site.source.function(target)
    return ast.walk(home if home is not None else site.source.tree)


def find_moves(site: Site, target: ast.Name) -> Iterator[ast.Call]:
    """`target.cuda(…)`, `target.to(device)`; not a cast, nor what is cast already."""
    for node in within(site, target):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in MOVES:
            continue
        receiver = node.func.value
        same = isinstance(receiver, ast.Name) and receiver.id == target.id
        if same and not is_cast(site, node) and not site.source.in_f_string(node):
            yield node


def is_cast(site: Site, call: ast.Call) -> bool:
    """Return True for a call with a name of torch as argument, such as a dtype: it is a cast already."""
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "dtype")]
    return any((site.qualified(value) or "").startswith("torch.") for value in values)


def advise(site: Site, move: ast.Call, name: str) -> None:
    """Advise the cast without making it."""
    site.advice(
        f"if an int64 operator has no kernel on your release, cast {name} to torch.int32 before the move: "
        "--int32-targets does",
        zh=f"若所用版本缺少 int64 算子,可在搬移前将 {name} 转为 torch.int32:使用 --int32-targets",
        node=move,
    )
