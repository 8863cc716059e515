"""Import the card's plug-in in scripts whose device is set elsewhere: in another file, or in a configuration file.

    # config.py                 # train.py
    DEVICE = "npu"              import torch
                                import torch_npu
                                from config import DEVICE
                                net.to(DEVICE)

The rule `torch.plugin` looks at one file. Whether a program knows its card is seen when all its files are migrated: a
script that is started, reaches a name of the card and reaches no import of the plug-in gets that import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from viaduct.migration.findings import Finding
from viaduct.migration.frameworks import PYTORCH_COMPANIONS
from viaduct.migration.ledger import Place
from viaduct.migration.source import LINE_END, Unparsable, decode, lines_of, parse

RULE = "torch.plugin"
Import = ast.Import | ast.ImportFrom


def scripts_without_plugin(
    marks: Mapping[str, frozenset[str]], imports: Mapping[str, set[str]], scripts: Iterable[str], is_set_outside: bool
) -> list[str]:
    """Return the started scripts that reach torch and the card's name, and no import of the plug-in.

    `marks`: file -> what it does (candidates_torch.marks_of); `is_set_outside`: a configuration file names the card.
    """
    naming = {path for path, done in marks.items() if "names card" in done}
    if not naming and not is_set_outside:
        return []
    imported = {other for path, others in imports.items() for other in others if other != path}
    found = []
    for path in scripts:
        if path in imported or "imports plug-in" in marks.get(path, ()):
            continue
        reached = reach(path, imports)
        done = frozenset[str]().union(*(marks.get(item, frozenset()) for item in reached))
        names_card = "names card" in done or (is_set_outside and "takes device" in done)
        if "torch" in done and names_card and "imports plug-in" not in done:
            found.append(path)
    return found


def reach(path: str, imports: Mapping[str, set[str]]) -> set[str]:
    """Return the script and all files that it imports, directly or not."""
    found, pending = {path}, [path]
    while pending:
        fresh = imports.get(pending.pop(), set()) - found
        found |= fresh
        pending += fresh
    return found


def insert_import(path: str, data: bytes, module: str) -> tuple[bytes, int] | None:
    """Return the text with the import behind torch's, and the line behind which it stands; None if it cannot be."""
    try:
        text, encoding = decode(data)
        tree = parse(text)
    except Unparsable:
        return None
    statement = anchor(tree)
    if statement is None or not path.endswith(".py"):
        return None
    line = statement.end_lineno or statement.lineno
    alone = [item for item in tree.body if item is not statement and item.lineno <= line <= (item.end_lineno or 0)]
    ends = [match.end() for match in LINE_END.finditer(text)]
    if alone or line > len(ends):  # another statement on its line, or no line end behind it
        return None
    end = text[: ends[line - 1]]
    newline = "\r\n" if end.endswith("\r\n") else end[-1]
    return f"{end}import {module}{newline}{text[ends[line - 1] :]}".encode(encoding), line


def anchor(tree: ast.Module) -> Import | None:
    """Return the first top-level import of torch, else of a library on it, else any but `__future__`; None: none."""
    statements = [line for line in tree.body if isinstance(line, ast.Import | ast.ImportFrom)]
    for roots in ({"torch"}, PYTORCH_COMPANIONS):
        for statement in statements:
            if {name.partition(".")[0] for name in modules_of(statement)} & roots:
                return statement
    return next((item for item in statements if not is_future(item)), None)


def is_future(statement: Import) -> bool:
    """Return True for an import from __future__."""
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def modules_of(statement: Import) -> list[str]:
    """Return the modules that an import statement names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [statement.module or ""] if not statement.level else []


def as_changed(path: str, line: int, text: str, module: str) -> tuple[Place, Finding]:
    """Return the ledger's place and the finding of an import that was inserted behind a line of the original."""
    message = f"import {module}: the device of this program is set in another file"
    zh = f"导入 {module}:该程序的设备在其他文件中设置"
    before = lines_of(text)[line - 1]
    finding = Finding(
        *(path, line, line, 1, RULE, "mandatory", "changed", message, zh, "low"),
        *(before, f"{before}\nimport {module}"),
    )
    return Place("plugin", path, line, "changed", before.strip()[:60]), finding
