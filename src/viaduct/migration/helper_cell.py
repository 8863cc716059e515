"""The helper of `--to any` in a notebook: a file beside a notebook may get lost, so the helper stands in a cell."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from viaduct.migration import helper_text
from viaduct.migration.helper_file import MENTION, on_missing
from viaduct.migration.neutral import MARK, NAME

if TYPE_CHECKING:
    from viaduct.migration.engine import Work

HEAD = f"# Whatever accelerator this machine has. {MARK.decode()}."
DOCSTRING = re.compile(r'\A""".*?"""\n+', re.DOTALL)
CELL = re.compile(rf"^{re.escape(HEAD)}\n(.*?)^(\w+) = {helper_text.CLASS}\(\)$", re.DOTALL | re.MULTILINE)


def cell(uses: set[str], local: str) -> str:
    """Return the text of the cell: the helper with what is used, under a local name; a comment for its docstring."""
    text = DOCSTRING.sub("", helper_text.write(uses)).rstrip("\n")
    return f"{HEAD}\n{text.removesuffix(f'{NAME} = {helper_text.CLASS}()')}{local} = {helper_text.CLASS}()"


def in_place_of_import(work: Work, lines: list[str], module: str) -> list[str]:
    """Return the import lines with the helper's text in place of its import."""
    start = f"from {module} import {NAME}"
    found = next((line for line in lines if line.startswith(start)), None)
    if found is None:
        return lines
    local = found.removeprefix(start).removeprefix(" as ") or NAME
    return [
        *(line for line in lines if line is not found),
        *cell(set(collect_advised_names(work, local)), local).split("\n"),
    ]


def collect_advised_names(work: Work, local: str) -> dict[str, int]:
    """Return the names that a cell uses and those that findings advise to write, each with its line."""
    advised = " ".join(finding.message for finding in work.findings if finding.status != "changed")
    return {**dict.fromkeys(MENTION.findall(advised), 1), **helper_text.uses(work.source.tree, local)}


def extend(work: Work) -> Work:
    """Extend the helper's cell of an earlier migration by what the notebook now uses.

    A cell that its owner has changed stays; what it lacks is reported.
    """
    found = CELL.search(work.source.text)
    if found is None:
        return work
    uses, there = collect_advised_names(work, found[2]), helper_text.held(found[1])
    if cell(there, found[2]) == found[0]:
        made = cell({*uses, *there}, found[2])
        if made == found[0]:
            return work
        work.edits.replace(found.start(), found.end(), made)
        return work.after()
    for name in helper_text.missing(found[1], uses):
        line = work.lines[uses[name] - 1]
        work.findings.append(on_missing("the helper in its cell", name, work.path, line, ""))
    return work


def find_pasted_helper(tree: ast.Module) -> str | None:
    """Return the name that a notebook gives to the helper of its cell; None if it has none."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            made, target = statement.value.func, statement.targets[0]
            if isinstance(made, ast.Name) and made.id == helper_text.CLASS and isinstance(target, ast.Name):
                return target.id
    return None
