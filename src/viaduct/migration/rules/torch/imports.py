"""Import names from the card's package instead of torch.cuda.

     import torch
    -from torch.cuda.amp import GradScaler, autocast
    +from torch_npu.npu.amp import GradScaler, autocast
     scaler = GradScaler()

Local names stay: `from torch import cuda` becomes `from torch_npu import npu as cuda`. The names are imported from
torch_npu and torch_mlu themselves, since torch.npu exists only after the import of torch_npu. The import of a name that
the card does not have stays; a star import needs manual review.
"""

from __future__ import annotations

import ast

from viaduct.cards.torch_api import find_counterpart
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch import _imports

rule = Rule(__name__, target_needs="plugin", spec_rows=("P2", "P11", "6"), targets=ALL_CARDS)


@rule.node(ast.ImportFrom, only_if_file_contains=("cuda",))
def move_names(site: Site) -> None:
    """Replace `from torch.cuda import …`."""
    module = site.node.module or ""
    if site.node.level or not (module == "torch" or f"{module}.".startswith("torch.cuda.")):
        return
    if site.node.names[0].name == "*":
        if module != "torch":
            report_star_import(site)
        return
    _imports.move_names(site, lambda name: find_name_in_package(site, name))


@rule.node(ast.Import, only_if_file_contains=("cuda",))
def move_modules(site: Site) -> None:
    """Replace `import torch.cuda…`."""
    for alias in site.node.names:
        new = find_name_in_package(site, alias.name)
        if new and alias.asname:
            site.edit.replace_node(alias, f"{new} as {alias.asname}")
            site.report_change(f"{alias.name} is imported as {new}", zh=f"{alias.name} 改为从 {new} 导入")
        elif new:
            reduce_to_torch(site, alias)


def find_name_in_package(site: Site, name: str) -> str | None:
    """Return the name in the plug-in's package for a name of torch.cuda; None if the card does not have it."""
    card = site.target.card
    if name == "torch.cuda":
        return card.plugin_module
    card_name = find_counterpart(name.removeprefix("torch.cuda."), card) if name.startswith("torch.cuda.") else None
    return f"{card.plugin_module}.{card_name}" if card_name else None


def reduce_to_torch(site: Site, alias: ast.alias) -> None:
    """Replace `import torch.cuda`, which binds torch, by `import torch`; remove it if torch is also bound otherwise."""
    statement = site.node
    bindings = site.file.names.lookup("torch", site.file.names.scope_of(statement)) or []
    if len(bindings) == 1:
        site.edit.replace_node(alias, "torch")
    elif len(statement.names) > 1:
        _imports.drop_alias(site, statement, alias)
    else:
        site.edit.remove_statement(statement)
    site.report_change(f"{alias.name} is not imported any more", zh=f"不再导入 {alias.name}")


def report_star_import(site: Site) -> None:
    title, package = site.target.card.title, site.target.card.plugin_module
    site.request_review(
        f"a star import of {site.node.module}: import the used names from {package}",
        zh=f"{site.node.module} 的星号导入:请写明所用名称,并改为从 {package} 导入({title})",
    )
