"""Cast class indices to int32 before they go to the NPU.

With `--int32-targets`:

     import torch
     import torch_npu
     criterion = torch.nn.CrossEntropyLoss()
     def step(model, images, target):
    -    target = target.npu(non_blocking=True)
    +    target = target.to(torch.int32).npu(non_blocking=True)
         return criterion(model(images), target)

According to Ascend's FAQ some operators have no int64 kernel on the NPU; the losses of the NPU accept int32 too.
Without `--int32-targets` the rule only advises the cast. On the CPU and on CUDA these losses do not accept int32, so do
not cast in a script that also runs there. Targets that are also used as an index (gather, one_hot, embedding), directly
or in a function of the project, stay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from viaduct.migration.classes import OBJECT, find_method_owner
from viaduct.migration.lookups import argument_values, bind_arguments, last_name, mark_once, plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.source import FunctionNode
from viaduct.migration.values import Values, starts_with_name

rule = Rule(__name__, spec_rows=("P17",), category="advice", targets=("npu",))

MOVING_METHODS = ("npu", "cuda", "to")
LOSSES = ("torch.nn.functional.cross_entropy", "torch.nn.functional.nll_loss")
INDEXING_FUNCTIONS = (
    {"gather", "take", "take_along_dim", "one_hot", "embedding"}
    | {"scatter", "scatter_", "scatter_add", "scatter_add_"}
    | {"index_select", "index_add", "index_add_", "index_copy_", "index_fill_"}
)
MAX_DEPTH = 4
"""Number of nested calls of the project's functions through which a tensor is followed."""


@rule.node(ast.Call, only_if_file_contains=("CrossEntropyLoss", "NLLLoss", "cross_entropy", "criterion", "loss"))
def cast_targets(site: Site) -> None:
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


# ---- targets that are used as an index, as in `gather(1, target)`: these must stay int64


@dataclass(frozen=True)
class Body:
    """A function or a module, with the kinds of values in its file."""

    root: ast.AST
    values: Values


def is_used_as_index(body: Body, name: str, depth: int = 0) -> bool:
    """Return True if the tensor of that name is used as an index, here or in functions to which it is passed."""
    if depth > MAX_DEPTH:
        return False
    names = find_aliases(body.root, name)
    if any(uses_any(value, names) for node in ast.walk(body.root) for value in get_index_expressions(node)):
        return True
    return any(
        is_used_as_index(called, parameter, depth + 1) for called, parameter in find_receiving_functions(body, names)
    )


def find_aliases(root: ast.AST, name: str) -> set[str]:
    """Return a name and its other names: `at` after `at = target.view(-1, 1)`."""
    statements = [
        node for node in ast.walk(root) if isinstance(node, ast.Assign) and starts_with_name(node.value, name)
    ]
    targets = [statement.targets[0] for statement in statements]
    return {name, *(target.id for target in targets if isinstance(target, ast.Name))}


def get_index_expressions(node: ast.AST) -> list[ast.expr]:
    """Return the expression in a subscript, or all arguments of an indexing function; none for any other node."""
    if isinstance(node, ast.Subscript):
        return [node.slice]
    is_indexing = isinstance(node, ast.Call) and last_name(node.func) in INDEXING_FUNCTIONS
    return argument_values(node) if is_indexing else []  # type: ignore[arg-type]


def uses_any(value: ast.AST, names: set[str]) -> bool:
    """Return True if a value uses one of the names outside a comparison."""
    if isinstance(value, ast.Compare):
        return False
    if isinstance(value, ast.Name):
        return value.id in names
    return any(uses_any(child, names) for child in ast.iter_child_nodes(value))


def find_receiving_functions(body: Body, names: set[str]) -> Iterator[tuple[Body, str]]:
    """Yield the functions of the project that get the tensor as an argument, and the parameter's name."""
    for call in ast.walk(body.root):
        if not isinstance(call, ast.Call) or not any(uses_any(value, names) for value in argument_values(call)):
            continue
        definition = find_definition(body, call)
        if definition is not None:
            called, parameters = definition
            passed = bind_arguments(call, parameters).items()
            yield from ((called, parameter) for parameter, value in passed if uses_any(value, names))


def find_definition(body: Body, call: ast.Call) -> tuple[Body, list[str]] | None:
    """Return the project's function, method or forward that a call runs, and its positional parameters."""
    values = body.values
    name = values.names.qualified(call.func)
    if name in values.project.functions:
        path, function = values.project.functions[name]
        return make_body(body, path, function), [parameter.arg for parameter in function.args.args]
    kind = values.kind(call.func) or ""
    if kind.startswith(OBJECT):
        return find_method(body, kind.removeprefix(OBJECT), "forward")
    if isinstance(call.func, ast.Attribute):
        kind = values.kind(call.func.value) or ""
        return find_method(body, kind.removeprefix(OBJECT), call.func.attr) if kind.startswith(OBJECT) else None
    return None


def find_method(body: Body, class_name: str, method: str) -> tuple[Body, list[str]] | None:
    """Return the definition of a method of the project's class, and its parameters."""
    project = body.values.project
    owner = find_method_owner(project, class_name, method)
    if owner is None:
        return None
    own_class = project.classes[owner]
    for node in project.parsed[own_class.path].source.nodes_of_type(ast.ClassDef):
        for statement in node.body if node.name == owner.rpartition(".")[2] else ():
            if isinstance(statement, FunctionNode) and statement.name == method:
                return make_body(body, own_class.path, statement), list(own_class.methods[method])
    return None


def make_body(body: Body, path: str, function: ast.AST) -> Body:
    """Return a function of a file of the project, with the kinds of values in that file."""
    project = body.values.project
    return Body(function, Values(project.parsed[path], project))
