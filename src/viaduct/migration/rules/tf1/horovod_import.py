"""Remove the import of Horovod once nothing uses it.

     import tensorflow as tf
    -import horovod.tensorflow as hvd
     tf.no_op()

Together with a `try` that did nothing but import it. As long as one use is left, the import stays and says where.
Horovod for PyTorch or MXNet is somebody else's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod

rule = Rule(__name__, spec="2.8", kind="mandatory", order=15)

Statement = ast.Import | ast.ImportFrom


@rule.node(ast.Import, ast.ImportFrom, words=("horovod",))
def remove(site: Site) -> None:
    ours = [alias for alias in site.node.names if is_ours(site.node, alias)]
    if not ours:
        return
    used = [node for alias in ours for node in uses(site, local(alias))]
    if used:
        lines = ", ".join(str(site.work.lines[node.lineno - 1]) for node in used[:5])
        site.manual(
            f"Horovod is still used (line {lines}), so its import stays",
            zh=f"仍有代码使用 Horovod(第 {lines} 行),保留导入",
        )
        return
    gone = drop(site, ours)
    site.changed("nothing uses Horovod any more: its import is gone", zh="Horovod 已无引用:删除导入", node=gone)


def is_ours(statement: Statement, alias: ast.alias) -> bool:
    base = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
    level = statement.level if isinstance(statement, ast.ImportFrom) else 0
    return not level and alias.name != "*" and horovod.is_horovod(base + alias.name)


def local(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def uses(site: Site, name: str) -> Iterator[ast.Name]:
    for node in site.work.index.by_type.get(ast.Name, []):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node


def drop(site: Site, ours: list[ast.alias]) -> ast.AST:
    """What is gone, wholly or in part."""
    names = site.node.names
    around = site.source.parents[site.node]
    if len(ours) < len(names):
        for alias in ours:
            drop_one(site, names, names.index(alias))
    elif isinstance(around, ast.Try) and only_imports(site, around, {local(alias) for alias in ours}):
        site.edit.remove_statement(around)
        return around
    else:
        site.edit.remove_statement(site.node)
    return site.node  # type: ignore[no-any-return]


def drop_one(site: Site, names: list[ast.alias], place: int) -> None:
    """With the comma behind it, or before it if it is the last."""
    start, end = site.source.span(names[place])
    if place + 1 < len(names):
        site.edit.delete(start, site.source.span(names[place + 1])[0])
    else:
        site.edit.delete(site.source.span(names[place - 1])[1], end)


def only_imports(site: Site, block: ast.Try, names: set[str]) -> bool:
    """`try: import … except ImportError: hvd = None` and nothing else, no comment either."""
    quiet = all(is_quiet(one, names) for handler in block.handlers for one in handler.body)
    alone = len(block.body) == 1 and not block.orelse and not block.finalbody
    return alone and quiet and not site.edit.has_comment(*site.source.span(block))


def is_quiet(statement: ast.stmt, names: set[str]) -> bool:
    if isinstance(statement, ast.Assign):
        targets = {getattr(target, "id", "") for target in statement.targets}
        return targets <= names and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)
