"""Find candidates: lines of a file that may have to change for the target device, independently of the rules.

Each candidate belongs to a requirement such as "TensorFlow sessions need NPU options" (requirements.py). A rule edits
only where the text shows that the edit is right. This search also finds lines whose names cannot be resolved. By
comparing the candidates of the original and of the result, ledger.py finds the lines that the rules missed.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from viaduct.migration.predicates import imported_modules

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile

State = Literal["needed", "right", "unclear"]
"""needed: the lines must change; right: they fulfil the requirement; unclear: the text shows neither."""
Mark = Literal[
    "trains", "broadcasts", "communicates", "delegates", "torch", "takes device", "names card", "imports plug-in"
]
"""Property of a file that matters for the program to which it belongs, the files that run together.

Some requirements hold if any file of the program has a mark. TensorFlow 1 on several ranks: the file trains, broadcasts
variables, starts the ranks' communication, or delegates both to an API of the NPU. PyTorch: it uses torch, may take a
device from outside (its text contains `.to(` or "device"), names the target card, or imports the card's plug-in.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Lines that a requirement concerns. Line numbers are those of the text that was searched."""

    requirement: str  # a name in requirements.py
    line: int
    end_line: int
    state: State
    excerpt: str  # at most 60 characters of its first line

    @property
    def is_right(self) -> bool:
        return self.state == "right"


def make_candidate(file: MigratedFile, requirement: str, node: ast.AST, state: State) -> Candidate:
    text = file.source.text_of(node).split("\n", 1)[0].strip()
    excerpt = text if len(text) <= 60 else f"{text[:57]}..."
    return Candidate(requirement, node.lineno, node.end_lineno or node.lineno, state, excerpt)  # type: ignore[attr-defined]


def find_candidates(file: MigratedFile) -> list[Candidate]:
    """Return the candidates of a file, in the order of their lines; none with --only or --mode patch."""
    from viaduct.migration import candidates_tf1, candidates_torch
    from viaduct.migration.frameworks import TENSORFLOW, TORCH

    candidates: list[Candidate] = []
    if file.options.mode == "rewrite" and not file.options.only:
        searches = {TENSORFLOW: candidates_tf1.find_candidates, TORCH: candidates_torch.find_candidates}
        for framework, search in searches.items():
            if file.project.uses_rules_of(framework, file.path):
                candidates += search(file)
    if candidates and file.options.to == "any":
        lines_of_helper = find_helper_lines(file)
        candidates = [candidate for candidate in candidates if candidate.line not in lines_of_helper]
    return sorted(candidates, key=lambda candidate: (candidate.line, candidate.requirement))


def find_helper_lines(file: MigratedFile) -> range:
    """Return the lines of a notebook's helper cell (helper_cell.py), which names every card."""
    from viaduct.migration.helper_cell import HELPER_CELL

    cell = HELPER_CELL.search(file.source.text)
    return range(file.source.line_of(cell.start()), file.source.line_of(cell.end()) + 1) if cell else range(0)


def uses_any(file: MigratedFile, roots: tuple[str, ...]) -> bool:
    """Return True if the file imports one of these top-level modules or uses a name that resolves to one."""
    imported = [name for node in file.source.imports for name in imported_modules(node)]
    return any(name.partition(".")[0] in roots for name in [*imported, *file.index.calls, *file.index.references])
