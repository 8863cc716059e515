"""Import torch_npu or torch_mlu, the card's plug-in, after torch in files that use the card.

     import torch
    +import torch_npu
     torch.npu.set_device(0)

Importing it registers the device with torch. The import is inserted directly after the file's first import of torch. If
only functions import torch, each function that uses the card gets the import. Files without device code, and files that
import the plug-in, stay.
"""

from __future__ import annotations

import ast

from viaduct.cards import CARDS, MLU
from viaduct.migration.frameworks import PYTORCH_COMPANIONS
from viaduct.migration.lookups import bindings_of
from viaduct.migration.predicates import imported_modules
from viaduct.migration.rule import ALL_CARDS, Rule, Site
from viaduct.migration.rules.torch._plugin_use import find_card_uses, is_plugin_imported_elsewhere, uses_card

rule = Rule(
    __name__,
    target_needs="plugin",
    spec_rows=("P1", "6"),
    targets=ALL_CARDS,
    completes_other_rules=True,  # their edits may need the import
    visits_lines_left_alone=True,
    runs_last=True,
)

Import = ast.Import | ast.ImportFrom
TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
# A file without any of these texts neither uses the card nor gets an edit that needs the plug-in.
DEVICE_TEXTS = (
    "npu", "NPU", "mlu", "MLU", ".to(", "device", MLU.range_module, *(card.backend for card in CARDS.values()),
)  # fmt: skip


@rule.file(only_if_file_contains=DEVICE_TEXTS)
def add_import(site: Site) -> None:
    """Import the plug-in after the imports of torch, at top level or in the functions that use the card."""
    module = site.target.card.plugin
    statements: list[Import] = [*site.source.nodes_of_type(ast.Import), *site.source.nodes_of_type(ast.ImportFrom)]
    torch_imports = find_torch_imports(site, statements)
    if not torch_imports or needs_no_import(site) or not uses_card(site):
        return
    used = [node for node in torch_imports if is_card_used(site, node)]
    # The import in an outer function covers the functions in it.
    inner = {node for node in used for other in used if other is not node and is_covered(site, node, other)}
    for torch_import in [node for node in used if node not in inner] or torch_imports[:1]:
        if not is_plugin_imported(site, statements, torch_import):
            site.edit.insert_after(torch_import, [f"import {module}"])
            site.report_change(f"import {module} after torch", zh=f"在 torch 之后导入 {module}", node=torch_import)


def is_plugin_imported(site: Site, statements: list[Import], torch_import: ast.stmt) -> bool:
    """Return True if the plug-in is imported before any use, at top level or in the function that imports torch.

    False if the file uses the plug-in's name without binding it.
    """
    module = site.target.card.plugin
    lines = [getattr(use, "lineno", 1) for use in find_card_uses(site) if is_covered(site, use, torch_import)]
    first_use = min((line for line in lines if line > torch_import.lineno), default=len(site.source.line_starts))
    imports = [item for item in statements if imports_any(item, (module,)) and item.lineno <= first_use]
    functions = {site.source.function_around(item) for item in imports}
    names = (node for node in site.source.nodes_of_type(ast.Name) if node.id == module)
    is_unbound = any(not bindings_of(site, name) for name in names if is_covered(site, name, torch_import))
    return not is_unbound and bool(functions & {None, *site.source.ancestors(torch_import)})


def is_card_used(site: Site, torch_import: ast.stmt) -> bool:
    """Return True if a rule requested the import, or the card is used in the scope of an import of torch."""
    is_requested = site.target.card.plugin in site.file.side_effect_imports
    return is_requested or any(is_covered(site, use, torch_import) for use in find_card_uses(site))


def is_covered(site: Site, node: ast.AST, statement: ast.stmt) -> bool:
    """Return True if a node is in the function of an import statement, or the import is at top level."""
    function = site.source.function_around(statement)
    return function is None or function in site.source.ancestors(node)


def imports_any(statement: Import, roots: tuple[str, ...]) -> bool:
    """Return True if a statement imports something of these top-level packages."""
    return any(name.partition(".")[0] in roots for name in imported_modules(statement))


def find_torch_imports(site: Site, statements: list[Import]) -> list[ast.stmt]:
    """Return the first import of torch at top level, else the first in each function.

    Without an import of torch, return the first imports of libraries that need it. Imports under `if TYPE_CHECKING:` do
    not count.
    """
    for roots in (TORCH_PACKAGES[:1], TORCH_PACKAGES, tuple(PYTORCH_COMPANIONS)):
        first: dict[ast.AST | None, ast.stmt] = {}
        for statement in sorted(statements, key=lambda node: node.lineno):
            tests = (parent.test for parent in site.source.ancestors(statement) if isinstance(parent, ast.If))
            if imports_any(statement, roots) and not any("TYPE_CHECKING" in site.text_of(test) for test in tests):
                first.setdefault(site.source.function_around(statement), statement)
        if first:
            return [first[None]] if None in first else list(first.values())
    return []


def needs_no_import(site: Site) -> bool:
    """Return True for an unchanged file that needs no import.

    One reason is enough: another file of the project imports the plug-in, this file has code for CUDA and for the card
    already, or --only names other rules.
    """
    is_requested = site.target.card.plugin in site.file.side_effect_imports
    changes = (finding for finding in site.file.findings if finding.status == "changed")
    if is_requested or any(finding.rule.startswith("torch.") for finding in changes):
        return False
    if site.options.only and not any(map(rule.has_name, site.options.only)):
        return True
    return bool(site.file.target_code_lines) or is_plugin_imported_elsewhere(site)
