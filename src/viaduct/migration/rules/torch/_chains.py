"""Dotted names in the text: `torch.cuda.Stream` becomes `torch.npu.Stream` by its middle word alone.

Only the words that differ are edited, so that a line break or a comment within a chain stays. Inside an f-string no
node has a place of its own before Python 3.12: the name is looked for in the text of the whole string, and changed
where all that is found is certain to be it.
"""

from __future__ import annotations

import ast
import re

from viaduct.migration.rule import Site


def dotted_name(node: ast.AST) -> str | None:
    """Return a chain of names as it is written, `t.cuda.Stream`; None for anything else."""
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else None
    return node.id if isinstance(node, ast.Name) else None


def links(node: ast.AST) -> list[ast.Attribute]:
    """The attributes of a chain, in the order in which they are written."""
    found: list[ast.Attribute] = []
    while isinstance(node, ast.Attribute):
        found.append(node)
        node = node.value
    return found[::-1]


def rename_to(site: Site, node: ast.expr, old: str, new: str) -> bool | None:
    """Replace a chain that means `old` by one that means `new`; return False where it cannot be edited.

    None: the words that differ are not in this chain, but where its first name was imported or assigned.
    """
    written = dotted_name(node)
    fresh = respell_chain(site, node, old, new)
    if written is None or fresh is None:
        return False
    return swap(site, node, written, fresh) if fresh != written else None


def respell_chain(site: Site, node: ast.expr, old: str, new: str) -> str | None:
    """Return the chain with the words that differ changed; the whole new name where the number of words differs.

    None where the whole name is needed and the file does not import torch.
    """
    words, wanted = old.split("."), new.split(".")
    written = (dotted_name(node) or "").split(".")
    if len(words) == len(wanted):
        for index in range(1, len(written)):
            if written[-index] == words[-index]:
                written[-index] = wanted[-index]
        return ".".join(written)
    root = site.work.names.local("torch")
    return f"{root}.{new.partition('.')[2]}" if root and wanted[0] == "torch" else None


def swap(site: Site, node: ast.expr, old: str, new: str) -> bool:
    """Replace one chain of names by another, within an f-string too; return False where that is not safe."""
    if old == new:
        return True
    if site.source.in_f_string(node):
        return swap_in_f_string(site, node, old, new)
    before, after = old.split("."), new.split(".")
    if len(before) != len(after) or before[0] != after[0]:
        site.edit.node(node, new)
        return True
    for link, was, now in zip(links(node), before[1:], after[1:], strict=True):
        if was != now:
            end = site.source.span(link)[1]
            site.edit.replace(end - len(was), end, now)
    return True


def swap_in_f_string(site: Site, node: ast.expr, old: str, new: str) -> bool:
    """Replace a name within an f-string; return False if the name is in its text more often than in its code."""
    string = [parent for parent in site.source.ancestors(node) if isinstance(parent, ast.JoinedStr)][-1]
    start, end = site.source.span(string)
    if ("f-string", start, old) in site.work.seen:
        return True
    entries = [*re.finditer(rf"(?<![\w.]){re.escape(old)}(?![\w])", site.source.text[start:end])]
    meant = [
        inner for inner in ast.walk(string) if isinstance(inner, ast.Attribute | ast.Name) and dotted_name(inner) == old
    ]
    if len(entries) != len(meant):
        return False
    site.work.seen[("f-string", start, old)] = None
    for entry in entries:
        site.edit.replace(start + entry.start(), start + entry.end(), new)
    return True


def require_torch(site: Site) -> str:
    """Add `import torch` to a file that imports only a part of torch; return its name."""
    site.work.needed["torch"] = site.work.names.added["torch"] = "torch"
    return "torch"
