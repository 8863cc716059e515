"""Remove the import of Horovod once nothing uses it.

     import tensorflow as tf
    -try:
    -    import horovod.tensorflow as hvd
    -except ImportError:
    -    hvd = None
    +hvd = True  # hccl replaces Horovod, and is always installed
     if hvd is not None:
         tf.no_op()

A `try` that only imports it is removed too. If the script tests or passes the variable (`hvd is None`, `if not hvd`),
it is set to True; otherwise a test for Horovod would fail, and the script would train on one device. If anything else
uses Horovod, in this file or in one that imports `hvd` from it, the import stays and the finding lists the uses.
Horovod for PyTorch or MXNet is left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from viaduct.cards import NPU
from viaduct.cards.tensorflow_api import NPU_BRIDGE
from viaduct.migration.lookups import imported_names, last_name, plain_name
from viaduct.migration.module_flow import is_only_tested
from viaduct.migration.rule import Rule, Site
from viaduct.migration.rules.tf1 import _horovod as horovod
from viaduct.migration.rules.torch._imports import drop_alias, replace_statement

rule = Rule(
    __name__,
    target_needs="communication",
    spec_rows=("2.8",),
    after=("horovod_compression", "horovod_lifecycle", "horovod_ranks"),  # after which nothing may use Horovod any more
)

FLAG_COMMENT = f"  # {NPU.backend} replaces Horovod, and is always installed"


@rule.node(ast.Import, ast.ImportFrom, only_if_file_contains=("horovod",))
def remove_imports(site: Site) -> None:
    """Remove the imports of Horovod from a statement; assign True to a name that is tested or passed on."""
    imported = zip(site.node.names, imported_names(site.node), strict=False)  # no names for a relative import
    names_by_alias = {alias: name for alias, name in imported if alias.name != "*" and horovod.is_horovod(name)}
    aliases, are_modules = list(names_by_alias), set(names_by_alias.values()) <= set(horovod.MODULES)
    if not aliases or report_if_used(site, aliases, are_modules):
        return
    names = [get_local_name(alias) for alias in aliases]
    tested = [name for name in names if site.source.reads.get(name) or any(find_importing_files(site, name))]
    flag = " = ".join([*dict.fromkeys(tested), "True"]) if tested else ""
    changed = replace_import(site, aliases, flag)
    if flag:
        site.report_change(
            f"Horovod is only passed on, or tested for its presence: {flag}, since {NPU.backend} replaces it",
            zh=f"Horovod 仅被传递或判断是否存在:改为 {flag},其功能由 {NPU.backend} 承担",
            node=changed,
        )
    else:
        site.report_change(
            "nothing uses Horovod any more: its import is removed", zh="Horovod 已无引用:删除导入", node=changed
        )


def report_if_used(site: Site, aliases: list[ast.alias], are_modules: bool) -> bool:
    """Return True if Horovod is still used, and report it.

    `are_modules`: the statement imports Horovod's modules, not parts of them.
    """
    if horovod.keeps_horovod(site):
        escapes = join_first(horovod.find_unfollowed_uses(site))
        site.report_unresolved(
            f"uses of Horovod cannot be followed ({escapes}), so all of it stays in this program: write its "
            f"counterpart in {NPU_BRIDGE} or {NPU.backend} by hand",
            zh=f"Horovod 的去向无法跟踪({escapes}),本程序中的 Horovod 全部保留:"
            f"请手工改为 {NPU_BRIDGE} 或 {NPU.backend} 的对应接口",
        )
        return True
    names = [get_local_name(alias) for alias in aliases]
    used = [node for name in names for node in site.source.reads.get(name, []) if not is_only_tested(site.source, node)]
    files = sorted({path for name in names for path in find_importing_files(site, name)})
    if are_modules and not horovod.find_files_with_horovod(site):
        # code that gets the module as an argument uses hccl now
        used, files = [node for node in used if isinstance(site.source.parents[node], ast.Attribute)], []
    lines = join_first([str(site.file.original_line(node)) for node in used])
    location, zh = (f"line {lines}", f"第 {lines} 行") if used else (", ".join(files), "、".join(files))
    if used or files:
        site.request_review(
            f"Horovod is still used ({location}), so its import stays", zh=f"仍有代码使用 Horovod({zh}),保留导入"
        )
    return bool(used or files)


def join_first(items: list[str]) -> str:
    """Return the first five items as one text, which ends in … if there are more."""
    return ", ".join([*items[:5], "…"] if len(items) > 5 else items)


def get_local_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def replace_import(site: Site, aliases: list[ast.alias], flag: str) -> ast.AST:
    """Replace the imports by an assignment of the flag, if any; return the changed statement."""
    parent = site.source.parents[site.node]
    if len(aliases) < len(site.node.names):
        for alias in aliases:
            drop_alias(site, site.node, alias)
        if flag:
            site.edit.insert_after(site.node, [flag + FLAG_COMMENT])
    elif isinstance(parent, ast.Try) and only_imports(site, parent):
        assignments = [statement for statement in [*parent.body, *parent.orelse] if isinstance(statement, ast.Assign)]
        lines = [flag + FLAG_COMMENT] if flag else []
        replace_statement(site, parent, [*lines, *(site.text_of(assignment) for assignment in assignments)])
        return parent
    else:
        comment = FLAG_COMMENT if ends_its_line(site, site.node) else ""
        replace_statement(site, site.node, [flag + comment] if flag else [])
    return site.node  # type: ignore[no-any-return]


def ends_its_line(site: Site, statement: ast.stmt) -> bool:
    """Return True if nothing follows a statement on its line, not even a comment."""
    end = site.source.span(statement)[1]
    return not site.source.text[end : site.source.line_stop(end)].strip()


def only_imports(site: Site, block: ast.Try) -> bool:
    """Return True for `try: import … except ImportError: hvd = None` without comments.

    Its other statements may only assign constants to names.
    """
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


def find_importing_files(site: Site, name: str) -> Iterator[str]:
    """Yield the other files of the project that import or read the name from this one."""
    module = PurePosixPath(site.file.path).stem
    for path, names in site.file.project.parsed.items():
        if path != site.file.path and any(is_import_of(node, module, name) for node in names.source.nodes):
            yield path


def is_import_of(node: ast.AST, module: str, name: str) -> bool:
    """Return True for `from module import name` and `module.name`, also for `package.module` in place of `module`."""
    if isinstance(node, ast.ImportFrom):
        named = any(alias.name == name for alias in node.names)
        return named and (node.module or "").rpartition(".")[2] == module
    return isinstance(node, ast.Attribute) and node.attr == name and last_name(node.value) == module
