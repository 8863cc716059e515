"""Places of a file that need a change for the target, found independently of the rules, for the ledger.

A rule fires only where the text shows that its edit is right. This search is wider on purpose: it also finds places
whose names cannot be resolved. It runs over the original and over the result. So the ledger sees a place that still
needs a change and has no finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

State = Literal["needed", "right", "unclear"]
"""unclear: the text does not show whether the requirement applies."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Place that a requirement concerns. Lines are those of the text that was searched."""

    requirement: str
    line: int
    end_line: int
    state: State
    what: str


def candidate(work: Work, requirement: str, node: ast.AST, state: State) -> Candidate:
    """Return the candidate at a node, shown by the first line of its text."""
    text = work.source.text_of(node).split("\n", 1)[0].strip()
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return Candidate(requirement, node.lineno, node.end_lineno or node.lineno, state, shown)  # type: ignore[attr-defined]


def find_candidates(work: Work) -> list[Candidate]:
    """Return the places of a file, in the order of their lines; none with --only or --mode patch."""
    from viaduct.migration import candidates_tf1, candidates_torch
    from viaduct.migration.frameworks import TENSORFLOW, TORCH

    found: list[Candidate] = []
    if work.options.mode == "rewrite" and not work.options.only:
        searches = {TENSORFLOW: candidates_tf1.find_candidates, TORCH: candidates_torch.find_candidates}
        for framework, search in searches.items():
            if work.project.is_for(framework, work.path):
                found += search(work)
    if found and work.options.to == "any":
        found = [node for node in found if node.line not in helper_lines(work)]
    return sorted(found, key=lambda candidate: (candidate.line, candidate.requirement))


def helper_lines(work: Work) -> range:
    """Return the lines of the helper that stands in a notebook's cell: it names every card on purpose."""
    from viaduct.migration.helper_cell import CELL

    cell = CELL.search(work.source.text)
    return range(work.source.line_of(cell.start()), work.source.line_of(cell.end()) + 1) if cell else range(0)


def uses_any(work: Work, roots: tuple[str, ...]) -> bool:
    """Return True if the file imports one of the packages, or uses a name that resolves to one."""
    if any(name.partition(".")[0] in roots for name in imported_modules(work)):
        return True
    return any(name.partition(".")[0] in roots for table in (work.index.calls, work.index.references) for name in table)


def imported_modules(work: Work) -> Iterator[str]:
    """Yield the modules that the file imports; relative imports are left out."""
    for statement in work.source.of_kind(ast.Import):
        yield from (alias.name for alias in statement.names)
    for node in work.source.of_kind(ast.ImportFrom):
        if not node.level:
            yield node.module or ""
