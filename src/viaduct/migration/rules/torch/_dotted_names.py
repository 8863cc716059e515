"""Replace dotted names: in `torch.cuda.Stream` only `cuda` is edited, so that line breaks and comments stay.

In an f-string, where nodes have wrong positions before Python 3.12, the name is searched in the text of the string. It
is replaced if the text contains it as often as the code does.
"""

from __future__ import annotations

import ast
import re

from viaduct.cards.limits import Risk
from viaduct.migration.lookups import dotted_name, mark_once
from viaduct.migration.rule import Site


def replace_qualified_name(site: Site, node: ast.expr, old: str, new: str) -> bool | None:
    """Replace the qualified name `old` by `new` at a node; return True if the node is edited.

    False if it cannot be edited safely. None if it needs no edit, since another rule edits the import or assignment of
    the name.
    """
    old_text = dotted_name(node)
    new_text = adapt_name(site, node, old, new)
    if not old_text or new_text is None:
        return False
    return replace_dotted_name(site, node, old_text, new_text) if new_text != old_text else None


def rename_or_report(site: Site, node: ast.expr, new: str) -> bool:
    """Replace the site's qualified name by `new` at a node, or report that this is not safe; return True if edited."""
    renamed = replace_qualified_name(site, node, site.name, new)
    if renamed:
        site.report_change(f"{site.name} becomes {new}", zh=f"{site.name} 替换为 {new}")
    elif renamed is False:  # None: the import or assignment of the name is edited instead
        report_uneditable(site, site.name, new)
    return bool(renamed)


def adapt_name(site: Site, node: ast.expr, old: str, new: str) -> str | None:
    """Return the qualified name `new` as the file would write it; `node` has the qualified name `old`.

    If the node is `t.cuda.Stream`, "torch.npu.Stream" becomes `t.npu.Stream`. None if `old` and `new` differ in their
    number of parts, and the file does not import torch or `new` is no name of torch.
    """
    old_parts, new_parts = old.split("."), new.split(".")
    parts = dotted_name(node).split(".")
    if len(old_parts) == len(new_parts):
        for index in range(1, len(parts)):
            if parts[-index] == old_parts[-index]:
                parts[-index] = new_parts[-index]
        return ".".join(parts)
    root = site.file.names.local_name("torch")
    return f"{root}.{new.partition('.')[2]}" if root and new_parts[0] == "torch" else None


def replace_dotted_name(site: Site, node: ast.expr, old: str, new: str) -> bool:
    """Replace the text `old` of a name by `new`, also in an f-string; return False if that is not safe."""
    if old == new:
        return True
    if site.source.is_in_f_string(node):
        return replace_in_f_string(site, node, old, new)
    old_parts, new_parts = old.split("."), new.split(".")
    if len(old_parts) != len(new_parts) or old_parts[0] != new_parts[0]:
        site.edit.replace_node(node, new)
        return True
    for old_part, new_part in zip(reversed(old_parts[1:]), reversed(new_parts[1:]), strict=True):
        assert isinstance(node, ast.Attribute)
        if old_part != new_part:
            site.edit.replace_attribute(node, new_part)
        node = node.value
    return True


def replace_in_f_string(site: Site, node: ast.expr, old: str, new: str) -> bool:
    """Replace a name everywhere in an f-string; return False if the name also occurs outside its code."""
    string = [parent for parent in site.source.ancestors(node) if isinstance(parent, ast.JoinedStr)][-1]
    start, end = site.source.span(string)
    key = ("f-string", start, old)
    if key in site.file.handled:
        return True
    in_text = [*re.finditer(rf"(?<![\w.]){re.escape(old)}(?![\w])", site.source.text[start:end])]
    in_code = [inner for inner in ast.walk(string) if dotted_name(inner) == old]
    if len(in_text) != len(in_code):
        return False
    mark_once(site, *key)
    for match in in_text:
        site.edit.replace(start + match.start(), start + match.end(), new)
    return True


def replace_setting(site: Site, old: str, new: str, risk: Risk) -> None:
    """Replace a setting of torch, the site's node, by the card's, or report that this is not safe."""
    torch = site.file.names.local_name("torch")
    if not replace_dotted_name(site, site.node, dotted_name(site.node), new.replace("torch", torch or "torch", 1)):
        report_uneditable(site, old, new)
        return
    if torch is None:  # the file imports only a part: `import torch.backends.cudnn as cudnn`
        site.file.request_import("torch", "torch")
    site.target.require_plugin(site)
    site.report_change(f"{old} becomes {new}", zh=f"{old} 替换为 {new}", risk=risk)


def report_uneditable(site: Site, old: str, new: str) -> None:
    site.request_review(
        f"write {new} for {old}; it cannot be edited safely here", zh=f"请将 {old} 改为 {new};此处无法安全改写"
    )
