"""Targets of a migration, as `--to` names them: how a rule writes a device, a backend or a move for each.

A rule finds a construct once and asks `site.target` for the text that replaces it. For `npu` and `mlu` that is a name
of the card (`"npu:0"`, `"hccl"`); for `any` it is a call of the helper module, which asks the machine at run time.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viaduct.cards import CARDS, Card
from viaduct.migration.helper_cell import find_pasted_helper
from viaduct.migration.neutral import HELPER_OBJECT
from viaduct.migration.options import Options

if TYPE_CHECKING:
    from viaduct.migration.rule import Site

Texts = tuple[str, str]
"""A message in English and Chinese."""


def card(options: Options) -> Card:
    """Return the card that a migration is for; rules for `--to any` do not ask."""
    return CARDS[options.to]


def cards(options: Options) -> tuple[Card, ...]:
    """Return every card that the result is to run on: findings describe each."""
    return tuple(CARDS.values()) if options.to == "any" else (card(options),)


@dataclass(frozen=True)
class CardTarget:
    """One vendor's card: names are written as they are, and its plug-in is imported."""

    card: Card
    is_any: bool = False

    def select(self, for_card: Texts, for_any: Texts) -> Texts:
        """Return the message for one card, with the card's names filled in."""
        names = {
            name: getattr(self.card, name) for name in ("title", "device", "backend", "method", "visible", "module")
        }
        english, chinese = for_card
        return english.format(**names), chinese.format(**names)

    def render_device(self, site: Site, at: ast.AST | None = None) -> str:
        """Return the expression for the current device, to be written at the node `at`."""
        return f'"{self.card.device}"'

    def render_host_location(self, site: Site) -> str:
        """Return the `map_location` that loads a checkpoint on the host."""
        return '"cpu"'

    def render_backend(self, site: Site, at: ast.AST | None = None) -> str:
        """Return the expression for the collective backend."""
        return f'"{self.card.backend}"'

    def require_plugin(self, site: Site) -> None:
        """Ask for the import of the plug-in, without which the written name means nothing."""
        site.work.effects.add(self.card.module)


@dataclass(frozen=True)
class AnyTarget:
    """Every card: names are calls of the helper, which asks at run time which card there is."""

    is_any: bool = True

    @property
    def card(self) -> Card:
        """No card in particular: a rule that needs one is not for `--to any`."""
        raise KeyError("any")

    def select(self, for_card: Texts, for_any: Texts) -> Texts:
        """Return the message for every card."""
        return for_any

    def render_device(self, site: Site, at: ast.AST | None = None) -> str:
        """Return the expression for the current device."""
        return f"{helper(site, at)}.device()"

    def render_host_location(self, site: Site) -> str:
        """Return the `map_location` that loads a checkpoint on the host; on CUDA it changes nothing."""
        return f"{helper(site)}.map_location()"

    def render_backend(self, site: Site, at: ast.AST | None = None) -> str:
        """Return the expression for the collective backend."""
        return f"{helper(site, at)}.backend()"

    def require_plugin(self, site: Site) -> None:
        """Do nothing: the helper imports the plug-in of the card there is."""


Target = CardTarget | AnyTarget
ANY = AnyTarget()
CARD_TARGETS = {name: CardTarget(card) for name, card in CARDS.items()}


def target_of(options: Options) -> Target:
    """Return the target that `--to` names."""
    return ANY if options.to == "any" else CARD_TARGETS[options.to]


def helper(site: Site, at: ast.AST | None = None) -> str:
    """Return the local name of the helper's object at a node, and request its import if it is not imported yet."""
    work = site.work
    full = f"{work.project.helper_of(work.path)}.{HELPER_OBJECT}"
    known = work.names.local(full) or find_pasted_helper(site.source.tree)
    if known is not None and not work.names.hides(known, at or site.node):
        return known
    known = next((local for local, what in work.names.added.items() if what == full), None)
    if known is not None:
        return known
    local = (
        HELPER_OBJECT
        if HELPER_OBJECT not in work.names.used_names or is_only_helper(site, full)
        else work.reserve_name(f"any_{HELPER_OBJECT}")
    )
    work.needed[local] = full
    work.names.used_names.add(local)
    work.names.added[local] = full
    return local


def is_only_helper(site: Site, full: str) -> bool:
    """Return True if the file has imports of the helper in functions, and binds its name to nothing else."""
    names = site.work.names
    bound = [scope.bound[HELPER_OBJECT] for scope in names.scopes.values() if HELPER_OBJECT in scope.bound]
    return bool(bound) and all(names.common_name(binding) == full for binding in bound)
