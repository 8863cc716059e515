"""Import the card's plug-in in programs that may use the card and do not import it.

    # config.py                 # train.py
    DEVICE = "npu"              import torch
                                import torch_npu
                                from config import DEVICE
                                net.to(DEVICE)

The rule `torch.plugin` handles single files. This module runs after all files are migrated. It looks at each script
that no other file imports, together with the files that the script imports: if one of these, a configuration file or a
shell script may name the card and none imports the plug-in, the script gets the import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from viaduct.migration.candidates import Mark
from viaduct.migration.findings import Finding
from viaduct.migration.frameworks import PYTORCH_COMPANIONS
from viaduct.migration.graphs import find_reachable
from viaduct.migration.ledger import lacks_plugin
from viaduct.migration.predicates import imported_modules
from viaduct.migration.source import LINE_END, ImportNode, Unparsable, decode, lines_of, parse

PLUGIN_RULE = "torch.plugin"


def find_scripts_without_plugin(
    marks: Mapping[str, frozenset[Mark]], imports: Mapping[str, set[str]], scripts: Iterable[str], is_set_outside: bool
) -> list[str]:
    """Return the scripts that need an import of the plug-in (`lacks_plugin` of the marks of all files of the program).

    `marks`: file -> its marks; `imports`: file -> files that it imports; `is_set_outside`: a settings file or shell
    script was changed, so it may name the card.
    """
    imported = {target for path, targets in imports.items() for target in targets if target != path}
    lacking = []
    for path in scripts:
        if path not in imported:
            reached = find_reachable(path, imports)
            program_marks = frozenset[Mark]().union(*(marks.get(file, frozenset()) for file in reached))
            if lacks_plugin(program_marks, is_set_outside):
                lacking.append(path)
    return lacking


def insert_import(path: str, data: bytes, module: str) -> tuple[bytes, int] | None:
    """Return the text with an import of `module` inserted, and the line after which it was inserted.

    Return None for a notebook, a file that cannot be parsed, and one without a suitable line.
    """
    try:
        text, encoding = decode(data)
        tree = parse(text)
    except Unparsable:
        return None
    statement = find_import_before(tree)
    if statement is None or not path.endswith(".py"):
        return None
    line = statement.end_lineno or statement.lineno
    neighbours = [
        sibling
        for sibling in tree.body
        if sibling is not statement and sibling.lineno <= line <= (sibling.end_lineno or 0)
    ]
    ends = [match.end() for match in LINE_END.finditer(text)]
    if neighbours or line > len(ends):  # another statement on its line, or no line end behind it
        return None
    before, after = text[: ends[line - 1]], text[ends[line - 1] :]
    newline = "\r\n" if before.endswith("\r\n") else before[-1]
    return f"{before}import {module}{newline}{after}".encode(encoding), line


def find_import_before(tree: ast.Module) -> ImportNode | None:
    """Return the import after which to insert: the first of torch, else of a library based on it, else of any module.

    Only statements outside functions and blocks count, and `from __future__` never does.
    """
    statements = [statement for statement in tree.body if isinstance(statement, ImportNode)]
    for roots in ({"torch"}, PYTORCH_COMPANIONS):
        for statement in statements:
            if {name.partition(".")[0] for name in imported_modules(statement)} & roots:
                return statement
    return next((statement for statement in statements if imported_modules(statement) != ["__future__"]), None)


def describe_insertion(path: str, line: int, text: str, module: str) -> Finding:
    """Return the finding about an import of `module` that was inserted after a line of the original `text`."""
    message = f"import {module}: this program may use the card, and none of its files imports the plug-in"
    zh = f"导入 {module}:该程序可能使用加速卡,而其文件均未导入插件"
    before = lines_of(text)[line - 1]
    return Finding(
        *(path, line, line, 1, PLUGIN_RULE, "mandatory", "changed", message, zh, "low"),
        *(before, f"{before}\nimport {module}"),
    )
