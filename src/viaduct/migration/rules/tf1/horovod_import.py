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

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import NPU_BRIDGE
from viaduct.migration.lookups import plain_name
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.tf1 import _presence as presence

rule = Rule(__name__, spec="2.8", kind="mandatory", after=("horovod_compression",))

Statement = ast.Import | ast.ImportFrom
COMMENT = f"  # {NPU.backend} does Horovod's part, and is always there"


@rule.node(ast.Import, ast.ImportFrom, words=("horovod",))
def remove(site: Site) -> None:
    """Remove what an import statement imports of Horovod, or let True stand for a module that is tested or passed."""
    aliases = [alias for alias in site.node.names if is_horovod_import(site.node, alias)]
    if not aliases or is_still_used(site, aliases):
        return
    names = [local_name(alias) for alias in aliases]
    tested = [name for name in names if uses(site, name) or any(presence.borrowers(site, name))]
    flag = " = ".join([*dict.fromkeys(tested), "True"]) if tested else ""
    changed = replace_import(site, aliases, flag)
    if flag:
        site.changed(
            f"Horovod is only passed on, or tested for its presence: {flag}, since {NPU.backend} does its part",
            zh=f"Horovod 仅被传递或判断是否存在:改为 {flag},其功能由 {NPU.backend} 承担",
            node=changed,
        )
    else:
        site.changed("nothing uses Horovod any more: its import is gone", zh="Horovod 已无引用:删除导入", node=changed)


def is_still_used(site: Site, aliases: list[ast.alias]) -> bool:
    """Return True if Horovod is still used, and report it."""
    if horovod.keeps_horovod(site):
        report_escapes(site)
        return True
    names = [local_name(alias) for alias in aliases]
    used = [node for name in names for node in uses(site, name) if not presence.is_question(site, node)]
    files = sorted({path for name in names for path in presence.borrowers(site, name)})
    if not horovod.kept_files(site) and all(is_module(site, alias) for alias in aliases):
        # a module that is passed on is followed: the code that gets it uses hccl now
        used, files = [node for node in used if isinstance(site.source.parents[node], ast.Attribute)], []
    lines = ", ".join(str(site.work.lines[node.lineno - 1]) for node in used[:5])
    where, zh = (f"line {lines}", f"第 {lines} 行") if used else (", ".join(files), "、".join(files))
    if used or files:
        site.manual(f"Horovod is still used ({where}), so its import stays", zh=f"仍有代码使用 Horovod({zh}),保留导入")
    return bool(used or files)


def is_module(site: Site, alias: ast.alias) -> bool:
    """Return True if it imports Horovod itself, not a class or function of it."""
    return imported_name(site.node, alias) in horovod.ROOTS


def report_escapes(site: Site) -> None:
    where = ", ".join(horovod.escapes(site)[:5])
    site.unresolved(
        f"Horovod goes where it cannot be followed ({where}), so all of it stays in this program: write its "
        f"counterpart in {NPU_BRIDGE} or {NPU.backend} by hand",
        zh=f"Horovod 的去向无法跟踪({where}),本程序中的 Horovod 全部保留:"
        f"请手工改为 {NPU_BRIDGE} 或 {NPU.backend} 的对应接口",
    )


def is_horovod_import(statement: Statement, alias: ast.alias) -> bool:
    """Return True if an entry of an import statement imports Horovod for TensorFlow or Keras, or a part of it."""
    level = statement.level if isinstance(statement, ast.ImportFrom) else 0
    return not level and alias.name != "*" and horovod.is_horovod(imported_name(statement, alias))


def imported_name(statement: Statement, alias: ast.alias) -> str:
    """Return the qualified name of what an entry of an import statement imports."""
    return f"{statement.module}.{alias.name}" if isinstance(statement, ast.ImportFrom) else alias.name


def local_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def uses(site: Site, name: str) -> list[ast.Name]:
    return site.source.reads.get(name, [])


def replace_import(site: Site, aliases: list[ast.alias], flag: str) -> ast.AST:
    """Remove the import, wholly or in part, and put the flag in its place; return the statement that was changed."""
    names = site.node.names
    around = site.source.parents[site.node]
    if len(aliases) < len(names):
        for alias in aliases:
            drop_one(site, names, names.index(alias))
        if flag:
            site.edit.insert_after(site.node, [flag + COMMENT])
    elif isinstance(around, ast.Try) and only_imports(site, around):
        assignments = [statement for statement in [*around.body, *around.orelse] if isinstance(statement, ast.Assign)]
        lines = [flag + COMMENT] if flag else []
        replace_statement(site, around, [*lines, *(site.text(assignment) for assignment in assignments)])
        return around
    else:
        replace_statement(site, site.node, [flag + COMMENT if is_last(site, site.node) else flag] if flag else [])
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
    others = [statement for statement in [*block.body, *block.orelse] if statement is not site.node]
    others += [statement for handler in block.handlers for statement in handler.body]
    if block.finalbody or not all(sets_flag_only(statement) for statement in others):
        return False
    is_on_one_line = any(statement.lineno == block.lineno for statement in block.body)
    return not is_on_one_line and not site.edit.has_comment(*site.source.span(block))


def sets_flag_only(statement: ast.stmt) -> bool:
    """Return True for `pass`, and for a constant that is assigned to names."""
    if isinstance(statement, ast.Assign):
        return isinstance(statement.value, ast.Constant) and all(map(plain_name, statement.targets))
    return isinstance(statement, ast.Pass)
