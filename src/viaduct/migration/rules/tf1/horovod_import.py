"""Remove the import of Horovod once nothing uses it.

     import tensorflow as tf
    -try:
    -    import horovod.tensorflow as hvd
    -except ImportError:
    -    hvd = None
    +hvd = True  # hccl does Horovod's part, and is always there
     if hvd is not None:
         tf.no_op()

A `try` that did nothing but import it goes as well. A script that tests whether Horovod is there (`hvd is None`, or
`if not hvd`) would find none on the accelerator, and train alone or end, so the module becomes True; where nothing
tests or passes it, nothing is left. As long as one real use is left, in this file or in one that takes `hvd` from it,
the import stays and the finding says where. Horovod for PyTorch or MXNet is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import BRIDGE
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _presence as presence

rule = Rule(__name__, spec="2.8", kind="mandatory", after=("horovod_compression",))

Statement = ast.Import | ast.ImportFrom
WHY = f"  # {NPU.backend} does Horovod's part, and is always there"


@rule.node(ast.Import, ast.ImportFrom, words=("horovod",))
def remove(site: Site) -> None:
    ours = [alias for alias in site.node.names if is_ours(site.node, alias)]
    if not ours or is_still_used(site, ours):
        return
    names = [local(alias) for alias in ours]
    asked = [name for name in names if any(uses(site, name)) or any(presence.borrowers(site, name))]
    flag = " = ".join([*dict.fromkeys(asked), "True"]) if asked else ""
    gone = replace_import(site, ours, flag)
    if flag:
        site.changed(
            f"Horovod is only passed on, or tested for its presence: {flag}, since {NPU.backend} does its part",
            zh=f"Horovod 仅被传递或判断是否存在:改为 {flag},其功能由 {NPU.backend} 承担",
            node=gone,
        )
    else:
        site.changed("nothing uses Horovod any more: its import is gone", zh="Horovod 已无引用:删除导入", node=gone)


def is_still_used(site: Site, ours: list[ast.alias]) -> bool:
    """Return True if Horovod is still used, and report it."""
    if horovod.keeps_horovod(site):
        report_escapes(site)
        return True
    names = [local(alias) for alias in ours]
    used = [node for name in names for node in uses(site, name) if not presence.is_question(site, node)]
    files = sorted({path for name in names for path in presence.borrowers(site, name)})
    if not horovod.kept_files(site) and all(is_module(site, alias) for alias in ours):
        # a module that is passed on is followed: the code that gets it uses hccl now
        used, files = [node for node in used if isinstance(site.source.parents[node], ast.Attribute)], []
    lines = ", ".join(str(site.work.lines[node.lineno - 1]) for node in used[:5])
    where, zh = (f"line {lines}", f"第 {lines} 行") if used else (", ".join(files), "、".join(files))
    if used or files:
        site.manual(f"Horovod is still used ({where}), so its import stays", zh=f"仍有代码使用 Horovod({zh}),保留导入")
    return bool(used or files)


def is_module(site: Site, alias: ast.alias) -> bool:
    """Return True if it imports Horovod itself, not a class or function of it."""
    base = f"{site.node.module}." if isinstance(site.node, ast.ImportFrom) else ""
    return f"{base}{alias.name}" in horovod.ROOTS


def report_escapes(site: Site) -> None:
    where = ", ".join(horovod.escapes(site)[:5])
    site.unresolved(
        f"Horovod goes where it cannot be followed ({where}), so all of it stays in this program: write its "
        f"counterpart in {BRIDGE} or {NPU.backend} by hand",
        zh=f"Horovod 的去向无法跟踪({where}),本程序中的 Horovod 全部保留:"
        f"请手工改为 {BRIDGE} 或 {NPU.backend} 的对应接口",
    )


def is_ours(statement: Statement, alias: ast.alias) -> bool:
    base = f"{statement.module}." if isinstance(statement, ast.ImportFrom) else ""
    level = statement.level if isinstance(statement, ast.ImportFrom) else 0
    return not level and alias.name != "*" and horovod.is_horovod(base + alias.name)


def local(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def uses(site: Site, name: str) -> Iterator[ast.Name]:
    for node in site.source.of_kind(ast.Name):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield node


def replace_import(site: Site, ours: list[ast.alias], flag: str) -> ast.AST:
    """Remove the import, wholly or in part, and put the flag in its place; return the statement that was changed."""
    names = site.node.names
    around = site.source.parents[site.node]
    if len(ours) < len(names):
        for alias in ours:
            drop_one(site, names, names.index(alias))
        if flag:
            site.edit.insert_after(site.node, [flag + WHY])
    elif isinstance(around, ast.Try) and only_imports(site, around):
        beside = [statement for statement in [*around.body, *around.orelse] if isinstance(statement, ast.Assign)]
        kept = [site.text(line) for line in beside]
        replace_statement(site, around, [*([flag + WHY] if flag else []), *kept])
        return around
    else:
        replace_statement(site, site.node, [flag + WHY if is_last(site, site.node) else flag] if flag else [])
    return site.node  # type: ignore[no-any-return]


def replace_statement(site: Site, statement: ast.stmt, lines: list[str]) -> None:
    """Replace a statement by lines; remove it where there are none."""
    if lines:
        between = site.source.newline + site.source.indent_of(statement)
        site.edit.replace(*site.source.span(statement), between.join(lines))
    else:
        site.edit.remove_statement(statement)


def is_last(site: Site, statement: ast.stmt) -> bool:
    """Return True if nothing follows on its line, not even a comment."""
    end = site.source.span(statement)[1]
    return not site.source.text[end : site.source.line_stop(end)].strip()


def drop_one(site: Site, names: list[ast.alias], index: int) -> None:
    """Remove a name with the comma behind it, or before it if it is the last."""
    start, end = site.source.span(names[index])
    if index + 1 < len(names):
        site.edit.delete(start, site.source.span(names[index + 1])[0])
    else:
        site.edit.delete(site.source.span(names[index - 1])[1], end)


def only_imports(site: Site, block: ast.Try) -> bool:
    """Return True for `try: import … except ImportError: hvd = None`, with at most flags beside it and no comment."""
    beside = [statement for statement in [*block.body, *block.orelse] if statement is not site.node]
    handled = [line for handler in block.handlers for line in handler.body]
    quiet = all(is_quiet(node) for node in [*beside, *handled]) and not block.finalbody
    one_line = any(item.lineno == block.lineno for item in block.body)
    return quiet and not one_line and not site.edit.has_comment(*site.source.span(block))


def is_quiet(statement: ast.stmt) -> bool:
    """Return True for `pass`, or a constant given to a name."""
    if isinstance(statement, ast.Assign):
        plain = all(isinstance(target, ast.Name) for target in statement.targets)
        return plain and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)
