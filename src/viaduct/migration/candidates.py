"""Candidates of a file: places that a requirement of the target (requirements.py) concerns, found without the rules.

A rule fires only where the text shows that its edit is right. This search is wider on purpose: it also finds places
whose names cannot be resolved. It runs over the original and over the result, so that the ledger (ledger.py) can tell
which places still need a change and have no finding.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from viaduct.migration.predicates import imported_modules

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

State = Literal["needed", "right", "unclear"]
"""needed: the place lacks what is required; right: it has it; unclear: the text does not show if it is required."""
Mark = Literal[
    "trains", "broadcasts", "communicates", "delegates", "torch", "takes device", "names card", "imports plug-in"
]
"""What a file does that matters for the other files of its program (`marks_of` of candidates_tf1, candidates_torch).

TensorFlow 1 on several ranks: it trains, broadcasts variables, starts the ranks' communication, or delegates both to an
API of the NPU. PyTorch: it uses torch, may take a device from outside (it has `.to(` or "device" in its text), names
the target card in its code, or imports the card's plug-in.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Place that a requirement concerns. Lines are those of the text that was searched."""

    requirement: str  # a name in requirements.py
    line: int
    end_line: int
    state: State
    excerpt: str  # at most 60 characters of its first line


def make_candidate(work: Work, requirement: str, node: ast.AST, state: State) -> Candidate:
    text = work.source.text_of(node).split("\n", 1)[0].strip()
    excerpt = text if len(text) <= 60 else f"{text[:57]}..."
    return Candidate(requirement, node.lineno, node.end_lineno or node.lineno, state, excerpt)  # type: ignore[attr-defined]


def find_candidates(work: Work) -> list[Candidate]:
    """Return the candidates of a file, in the order of their lines; none with --only or --mode patch."""
    from viaduct.migration import candidates_tf1, candidates_torch
    from viaduct.migration.frameworks import TENSORFLOW, TORCH

    found: list[Candidate] = []
    if work.options.mode == "rewrite" and not work.options.only:
        searches = {TENSORFLOW: candidates_tf1.find_candidates, TORCH: candidates_torch.find_candidates}
        for framework, search in searches.items():
            if work.project.is_for(framework, work.path):
                found += search(work)
    if found and work.options.to == "any":
        lines_of_helper = find_helper_lines(work)
        found = [candidate for candidate in found if candidate.line not in lines_of_helper]
    return sorted(found, key=lambda candidate: (candidate.line, candidate.requirement))


def find_helper_lines(work: Work) -> range:
    """Return the lines of a notebook's helper cell (helper_cell.py), which names every card on purpose."""
    from viaduct.migration.helper_cell import HELPER_CELL

    cell = HELPER_CELL.search(work.source.text)
    return range(work.source.line_of(cell.start()), work.source.line_of(cell.end()) + 1) if cell else range(0)


def uses_any(work: Work, roots: tuple[str, ...]) -> bool:
    """Return True if the file imports one of these top-level modules, or uses a name that resolves into one."""
    statements = [*work.source.of_kind(ast.Import), *work.source.of_kind(ast.ImportFrom)]
    imported = [name for statement in statements for name in imported_modules(statement)]
    return any(name.partition(".")[0] in roots for name in [*imported, *work.index.calls, *work.index.references])
