"""Replace names of torch.cuda in strings that are used as names.

     import torch
    +import torch_npu
     from unittest import mock
    -with mock.patch("torch.cuda.is_available"):
    +with mock.patch("torch.npu.is_available"):
         pass

Such a string is a quoted annotation, or the first argument of `mock.patch`, `monkeypatch.setattr`, `delattr` or
`import_module`. Other strings stay, and so does a name that the card does not have. The rule `tensor_type` edits
strings that name a tensor type.
"""

from __future__ import annotations

import ast

from viaduct.cards.torch_api import find_counterpart
from viaduct.migration.lookups import last_name, literal_text
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._type_uses import CUDA_NAME

rule = Rule(__name__, target_needs="device_calls", spec_rows=("P2", "6"), targets=ALL_CARDS)

FUNCTIONS_WITH_NAME = ("patch", "setattr", "delattr", "import_module")


@rule.node(ast.Constant, only_if_file_contains=("torch.cuda",))
def rename_string(site: Site) -> None:
    match = CUDA_NAME.fullmatch(literal_text(site.node))
    if match is None or not site.is_editable or not is_used_as_name(site, site.node):
        return
    card = site.target.card
    new_name = find_counterpart(match["member"], card) if match["member"] else ""
    code = site.text_of(site.node)
    if new_name is None or code[1:-1] != site.node.value:  # it has a prefix, escapes or triple quotes
        return
    new = f"{card.torch_module}.{new_name}".rstrip(".")
    site.target.require_plugin(site)
    site.edit.replace_node(site.node, f"{code[0]}{new}{code[-1]}")
    site.report_change(f"{site.node.value!r} becomes {new!r}", zh=f"{site.node.value!r} 替换为 {new!r}")


def is_used_as_name(site: Site, node: ast.expr) -> bool:
    """Return True for a string that is a quoted annotation or the first argument of a function that takes a name."""
    parent = site.source.parents[node]
    if isinstance(parent, ast.Call):
        return last_name(parent.func) in FUNCTIONS_WITH_NAME and parent.args[:1] == [node]
    return node in (getattr(parent, "annotation", None), getattr(parent, "returns", None))
