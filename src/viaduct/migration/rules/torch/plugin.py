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
from collections.abc import Iterator

from viaduct.migration.frameworks import PYTORCH_COMPANIONS
from viaduct.migration.imports import imported_modules
from viaduct.migration.rule import Rule, Site, named
from viaduct.migration.rules.torch._targets import Card, card

rule = Rule(__name__, spec="P1 6", kind="mandatory", targets=("npu", "mlu"), order=95, always=True, everywhere=True)

Import = ast.Import | ast.ImportFrom
ROOTS = ("torch", "torchvision", "torchaudio")
IMPORTS = (ast.Import, ast.ImportFrom)


@rule.file(words=("npu", "NPU", "mlu", "MLU", "hccl", "cncl", "cnpx", ".to(", "device"))
def add_import(site: Site) -> None:
    target = card(site.options)
    statements = [node for node in site.source.of_kinds(*IMPORTS) if isinstance(node, IMPORTS)]
    found = anchors(site, statements)
    if not found or migrated_elsewhere(site, target) or not uses_the_card(site, target):
        return
    using = [place for place in found if is_used_with(site, target, place)]
    inner = [one for one in using if any(other is not one and is_with(site, one, other) for other in using)]
    for place in [one for one in using if one not in inner] or found[:1]:
        if not is_imported(site, target, statements, place):
            site.edit.after(place, [f"import {target.module}"])
            site.changed(f"import {target.module} behind torch", zh=f"在 torch 之后导入 {target.module}", node=place)


def is_imported(site: Site, target: Card, statements: list[Import], place: ast.stmt) -> bool:
    """At top level, or in the function that imports torch, before any use; and by its name, where that is used."""
    lines = [getattr(sign, "lineno", 1) for sign in signs(site, target) if is_with(site, sign, place)]
    used = min((line for line in lines if line > place.lineno), default=len(site.source.starts))
    before = [one for one in statements if is_of(one, (target.module,)) and one.lineno <= used]
    homes = {site.source.function(one) for one in before}
    names = (node for node in site.source.of_kind(ast.Name) if node.id == target.module)
    own = (name for name in names if is_with(site, name, place))
    lookup = site.work.names.lookup
    unbound = any(lookup(name.id, site.work.names.scope_of(name)) is None for name in own)
    return not unbound and bool(homes & {None, *site.source.ancestors(place)})


def is_used_with(site: Site, target: Card, place: ast.stmt) -> bool:
    """A rule that asks for the import does not say where it is needed: then it is needed wherever torch is imported."""
    asked = target.module in site.work.effects
    return asked or any(is_with(site, sign, place) for sign in signs(site, target))


def is_with(site: Site, node: ast.AST, place: ast.stmt) -> bool:
    """In the function in which torch is imported; of an import at top level, anywhere."""
    function = site.source.function(place)
    return function is None or function in site.source.ancestors(node)


def is_of(statement: Import, roots: tuple[str, ...]) -> bool:
    return any(name.partition(".")[0] in roots for name in imported_modules(statement))


def anchors(site: Site, statements: list[Import]) -> list[ast.stmt]:
    """The first import of torch at top level, else the first in each function; torch itself before libraries on it."""
    for roots in (ROOTS[:1], ROOTS, tuple(PYTORCH_COMPANIONS)):
        found = [one for one in statements if is_of(one, roots) and not only_for_checkers(site, one)]
        first: dict[ast.AST | None, ast.stmt] = {}
        for statement in sorted(found, key=lambda one: one.lineno):
            first.setdefault(site.source.function(statement), statement)
        if found:
            return [first[None]] if None in first else list(first.values())
    return []


def only_for_checkers(site: Site, statement: ast.stmt) -> bool:
    """`if TYPE_CHECKING:` is never run."""
    tests = [one.test for one in site.source.ancestors(statement) if isinstance(one, ast.If)]
    return any("TYPE_CHECKING" in site.text(test) for test in tests)


def migrated_elsewhere(site: Site, target: Card) -> bool:
    """Nothing was changed here, and another file of the project imports the plug-in: somebody has seen to it.

    So has somebody where the file has branches for both cards: an import at its top would end its use with CUDA.

    With --only and nothing changed, this rule was not meant.
    """
    asked = target.module in site.work.effects
    if asked or any(one.status == "changed" and one.rule.startswith("torch.") for one in site.work.findings):
        return False
    if site.options.only and not any(named(word, rule) for word in site.options.only):
        return True
    if site.work.served:
        return True
    return imported_elsewhere(site, target)


def imported_elsewhere(site: Site, target: Card) -> bool:
    return bool(site.work.project.files_with(f"import {target.module}") - {site.work.path})


def uses_the_card(site: Site, target: Card) -> bool:
    return target.module in site.work.effects or any(True for _ in signs(site, target))


def signs(site: Site, target: Card) -> Iterator[ast.AST]:
    """What cannot work before the plug-in is imported: its names, its methods, its devices."""
    for name in (target.method, target.is_attr, target.activity):
        yield from site.source.attributes.get(name, ())
    yield from (node for node in site.source.of_kind(ast.Name) if node.id == target.module)
    for node in site.source.of_kind(ast.Constant):
        is_device = isinstance(node.value, str) and node.value.partition(":")[0] == target.device
        if is_device and not isinstance(site.source.parents[node], ast.Expr):  # a docstring
            yield node
