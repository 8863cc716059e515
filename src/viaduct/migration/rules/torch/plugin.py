"""Import the card's plug-in behind torch, in files that use the card.

     import torch
    +import torch_npu
     torch.npu.set_device(0)

Importing torch_npu or torch_mlu is what makes the device known to torch. The import goes directly behind the file's
first import of torch: torch itself has to come first, and whatever follows may need the device. Where only functions
import torch, each that uses the card gets the import. A file without device code gets none, and neither does one that
has it already, in whatever form.
"""

from __future__ import annotations

import ast

from viaduct.cards import CARDS, MLU, Card
from viaduct.migration.frameworks import PYTORCH_COMPANIONS
from viaduct.migration.imports import imported_modules
from viaduct.migration.rule import Rule, Site, is_named
from viaduct.migration.rules.torch._plugin_use import imported_elsewhere, signs, uses_the_card
from viaduct.migration.targets import card

rule = Rule(
    __name__,
    spec="P1 6",
    kind="mandatory",
    targets=("npu", "mlu"),
    always=True,
    everywhere=True,
    after=("data_parallel_ddp",),
    last=True,
)

Import = ast.Import | ast.ImportFrom
ROOTS = ("torch", "torchvision", "torchaudio")
IMPORTS = (ast.Import, ast.ImportFrom)


@rule.file(words=("npu", "NPU", "mlu", "MLU", *(card.backend for card in CARDS.values()), MLU.marks, ".to(", "device"))
def add_import(site: Site) -> None:
    target = card(site.options)
    statements = [node for node in site.source.of_kinds(*IMPORTS) if isinstance(node, IMPORTS)]
    found = anchors(site, statements)
    if not found or migrated_elsewhere(site, target) or not uses_the_card(site, target):
        return
    using = [item for item in found if is_used_with(site, target, item)]
    inner = [
        candidate
        for candidate in using
        if any(other is not candidate and is_with(site, candidate, other) for other in using)
    ]
    for child in [entry for entry in using if entry not in inner] or found[:1]:
        if not is_imported(site, target, statements, child):
            site.edit.insert_after(child, [f"import {target.module}"])
            site.changed(f"import {target.module} behind torch", zh=f"在 torch 之后导入 {target.module}", node=child)


def is_imported(site: Site, target: Card, statements: list[Import], place: ast.stmt) -> bool:
    """Return True if the plug-in is imported at top level, or in the function that imports torch, before any use.

    False if the file uses the plug-in by its name and has not bound that.
    """
    lines = [getattr(sign, "lineno", 1) for sign in signs(site, target) if is_with(site, sign, place)]
    used = min((line for line in lines if line > place.lineno), default=len(site.source.starts))
    before = [statement for statement in statements if is_of(statement, (target.module,)) and statement.lineno <= used]
    homes = {site.source.function(item) for item in before}
    names = (node for node in site.source.of_kind(ast.Name) if node.id == target.module)
    own = (name for name in names if is_with(site, name, place))
    lookup = site.work.names.lookup
    unbound = any(lookup(name.id, site.work.names.scope_of(name)) is None for name in own)
    return not unbound and bool(homes & {None, *site.source.ancestors(place)})


def is_used_with(site: Site, target: Card, statement: ast.stmt) -> bool:
    """Return True if the card is used where the statement imports torch.

    A rule that asks for the import does not say where: then it is needed wherever torch is imported.
    """
    asked = target.module in site.work.effects
    return asked or any(is_with(site, sign, statement) for sign in signs(site, target))


def is_with(site: Site, node: ast.AST, statement: ast.stmt) -> bool:
    """Return True in the function in which torch is imported; for an import at top level, anywhere."""
    function = site.source.function(statement)
    return function is None or function in site.source.ancestors(node)


def is_of(statement: Import, roots: tuple[str, ...]) -> bool:
    return any(name.partition(".")[0] in roots for name in imported_modules(statement))


def anchors(site: Site, statements: list[Import]) -> list[ast.stmt]:
    """The first import of torch at top level, else the first in each function; torch itself before libraries on it."""
    for roots in (ROOTS[:1], ROOTS, tuple(PYTORCH_COMPANIONS)):
        found = [line for line in statements if is_of(line, roots) and not only_for_checkers(site, line)]
        first: dict[ast.AST | None, ast.stmt] = {}
        for statement in sorted(found, key=lambda node: node.lineno):
            first.setdefault(site.source.function(statement), statement)
        if found:
            return [first[None]] if None in first else list(first.values())
    return []


def only_for_checkers(site: Site, statement: ast.stmt) -> bool:
    """`if TYPE_CHECKING:` is never run."""
    tests = [parent.test for parent in site.source.ancestors(statement) if isinstance(parent, ast.If)]
    return any("TYPE_CHECKING" in site.text(test) for test in tests)


def migrated_elsewhere(site: Site, target: Card) -> bool:
    """Return True for a file without changes that needs no import.

    Another file of the project imports the plug-in; or this file has branches for both cards, and an import at its top
    would end its use with CUDA; or --only names other rules.
    """
    asked = target.module in site.work.effects
    if asked or any(
        finding.status == "changed" and finding.rule.startswith("torch.") for finding in site.work.findings
    ):
        return False
    if site.options.only and not any(is_named(name, rule) for name in site.options.only):
        return True
    if site.work.served:
        return True
    return imported_elsewhere(site, target)
