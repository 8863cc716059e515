"""Targets that `--to` names: each renders devices, backends and imports for the code that a rule writes.

For npu and mlu, `site.target.render_device(site)` is the device's name as a literal, `"npu"`. For any, it is a call of
the helper module (migration/accelerator_device.py), which finds the machine's card at run time.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viaduct.cards import CARDS, Card
from viaduct.cards.limits import Bilingual
from viaduct.migration.device_texts import device_number_text, rename_cuda
from viaduct.migration.helper_cell import find_pasted_helper
from viaduct.migration.helper_location import HELPER_OBJECT
from viaduct.migration.options import Options

if TYPE_CHECKING:
    from viaduct.migration.rule import Site


NCCL = re.compile(r"(?<![\w.])(?:cuda:)?nccl(?![\w.])", re.IGNORECASE)


def target_cards(options: Options) -> tuple[Card, ...]:
    """Return the cards on which the result is to run: the NPU, the MLU, or both with `--to any`."""
    return tuple(CARDS.values()) if options.to == "any" else (CARDS[options.to],)


@dataclass(frozen=True)
class CardTarget:
    """One card (`--to npu`, `--to mlu`): rules write its names as literals and import its plug-in (torch_npu)."""

    card: Card
    is_any_card: bool = False

    def select_message(self, for_card: Bilingual, for_any: Bilingual) -> Bilingual:
        """Return the message for one card, in English and Chinese, with fields such as {card.title} filled in."""
        english, chinese = for_card
        return english.format(card=self.card), chinese.format(card=self.card)

    def render_device(self, site: Site) -> str:
        """Return the code for the card without a number."""
        return f'"{self.card.device}"'

    def describe_device(self, number: str = "") -> str:
        """Return, for a message, what to write for a CUDA device; `number`: "1" for "cuda:1", "" for "cuda"."""
        return f"{self.card.device}:{number}" if number else self.card.device

    def render_device_text(self, site: Site, node: ast.expr) -> str | None:
        """Return the code for a text that names a CUDA device, such as `f"cuda:{rank}"`; None if no edit is safe."""
        return rename_cuda(site.source, node, self.card.device)

    def render_torch_device(self, site: Site, call: ast.Call) -> str | None:
        """Return the code for `torch.device("cuda:0")`; None if its argument is to be replaced instead."""
        return None

    def render_numbered_device(self, site: Site, number: ast.expr) -> str:
        """Return the code for a device that is given by its number, as in `x.to(0)`."""
        return site.text_of(number)  # with the plug-in imported, a number means the card

    def render_is_cuda(self, site: Site, tensor: str) -> str:
        """Return the code for `x.is_cuda`; `tensor` is the code of x."""
        return f"{tensor}.{self.card.tensor_flag}"  # is_npu, is_mlu

    def render_host_location(self, site: Site) -> str:
        """Return the `map_location` that loads a checkpoint on the host."""
        return '"cpu"'

    def render_backend(self, site: Site, at: ast.AST | None = None) -> str:
        """Return the code for the collective backend; `at`: where it is written, by default at the site."""
        return f'"{self.card.backend}"'

    def render_backend_text(self, site: Site, literal: ast.Constant) -> str | None:
        """Return the code for a string that names NCCL, such as "cpu:gloo,cuda:nccl"; None if no edit is safe."""
        text = site.text_of(literal)
        new = NCCL.sub(self.rename_backend, text)
        return new if new != text else None  # the same for a literal in pieces: "nc" "cl"

    def rename_backend(self, match: re.Match[str]) -> str:
        has_device = match[0].lower().startswith("cuda:")
        new = f"{self.card.device}:{self.card.backend}" if has_device else self.card.backend
        return new.upper() if match[0].isupper() else new

    def render_tensor_type(self, site: Site, name: str) -> str:
        """Return the code for the site, a string such as "torch.cuda.HalfTensor"; `name`: HalfTensor."""
        return site.text_of(site.node).replace("torch.cuda.", f"{self.card.torch_module}.")

    def require_plugin(self, site: Site) -> None:
        """Request the import of the card's plug-in."""
        site.file.side_effect_imports.add(self.card.plugin)


@dataclass(frozen=True)
class AnyTarget:
    """All cards (`--to any`): rules write calls of the helper, which finds the machine's card at run time.

    It has the methods of `CardTarget`, so that a rule can call them without knowing which target it has.
    """

    is_any_card: bool = True

    @property
    def card(self) -> Card:
        """Raise KeyError: rules that need one card do not run with `--to any`."""
        raise KeyError("any")

    def select_message(self, for_card: Bilingual, for_any: Bilingual) -> Bilingual:
        return for_any

    def render_device(self, site: Site) -> str:
        return f"{import_helper(site)}.device()"

    def describe_device(self, number: str = "") -> str:
        return f"{HELPER_OBJECT}.name({number})"

    def render_device_text(self, site: Site, node: ast.expr) -> str | None:
        number = None if site.source.is_in_f_string(node) else device_number_text(site.source, node)
        return f"{import_helper(site, node)}.name({number})" if number is not None else None

    def render_torch_device(self, site: Site, call: ast.Call) -> str | None:
        index = [*call.args[1:], *(keyword.value for keyword in call.keywords)]  # torch.device("cuda", rank)
        number = None if site.source.is_in_f_string(call) else device_number_text(site.source, call.args[0])
        if number is None or len(index) > 1 or (index and number):  # with both numbers the call is not valid
            return None
        return f"{import_helper(site, call)}.device({site.text_of(index[0]) if index else number})"

    def render_numbered_device(self, site: Site, number: ast.expr) -> str:
        return f"{import_helper(site, number)}.device({site.text_of(number)})"

    def render_is_cuda(self, site: Site, tensor: str) -> str:
        return f"{tensor}.device.type in {import_helper(site)}.TYPES"

    def render_host_location(self, site: Site) -> str:
        """Return a `map_location` that loads a checkpoint on the host, but on CUDA is None, torch.load's default."""
        return f"{import_helper(site)}.map_location()"

    def render_backend(self, site: Site, at: ast.AST | None = None) -> str:
        return f"{import_helper(site, at)}.backend()"

    def render_backend_text(self, site: Site, literal: ast.Constant) -> str | None:
        return self.render_backend(site, literal) if literal.value in ("nccl", "NCCL") else None

    def render_tensor_type(self, site: Site, name: str) -> str:
        return f"{import_helper(site)}.{name}"

    def require_plugin(self, site: Site) -> None:
        """Do nothing: the helper imports the plug-in."""


Target = CardTarget | AnyTarget
ANY = AnyTarget()
CARD_TARGETS = {name: CardTarget(card) for name, card in CARDS.items()}


def target_of(options: Options) -> Target:
    return ANY if options.to == "any" else CARD_TARGETS[options.to]


def import_helper(site: Site, at: ast.AST | None = None) -> str:
    """Return the local name of the helper's object `accelerator` at a node; request its import if it has none."""
    file = site.file
    qualified = f"{file.project.helper_module_of(file.path)}.{HELPER_OBJECT}"
    local_name = file.names.local_name(qualified) or find_pasted_helper(site.source.tree)
    if local_name is not None and not file.names.is_hidden(local_name, at or site.node):
        return local_name
    local_name = file.names.requested_name(qualified)
    if local_name is None:
        is_free = HELPER_OBJECT not in file.names.used_names or is_bound_to_helper_only(site, qualified)
        local_name = HELPER_OBJECT if is_free else file.reserve_name(f"any_{HELPER_OBJECT}")
        file.request_import(local_name, qualified)
    return local_name


def is_bound_to_helper_only(site: Site, qualified: str) -> bool:
    """Return True if the file binds the name `accelerator`, and only by imports of the helper."""
    names = site.file.names
    bound = [scope.bindings[HELPER_OBJECT] for scope in names.scopes.values() if HELPER_OBJECT in scope.bindings]
    return bool(bound) and all(names.common_name(binding) == qualified for binding in bound)
