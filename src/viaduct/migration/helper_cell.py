"""Insert the helper of `--to any`, the code that queries the machine's accelerator, into a notebook as a cell.

Scripts import it from a module (helper_file.py). A notebook is often passed on alone, without the module.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from viaduct.migration import helper_text
from viaduct.migration.helper_file import find_member_lines, report_missing_member
from viaduct.migration.helper_location import HELPER_MARK, HELPER_OBJECT

if TYPE_CHECKING:
    from viaduct.migration.engine import MigratedFile

FIRST_LINE = f"# Whatever accelerator this machine has. {HELPER_MARK.decode()}."
DOCSTRING = re.compile(r'\A""".*?"""\n+', re.DOTALL)
# Groups: text of the helper, name of its object.
HELPER_CELL = re.compile(
    rf"^{re.escape(FIRST_LINE)}\n(.*?)^(\w+) = {helper_text.HELPER_CLASS}\(\)$", re.DOTALL | re.MULTILINE
)


def render_cell(uses: set[str], local: str) -> str:
    """Return the text of the cell: the helper's class with the members `uses`, and an object of it named `local`."""
    module = DOCSTRING.sub("", helper_text.render_helper(uses)).rstrip("\n")
    definitions = module.removesuffix(f"{HELPER_OBJECT} = {helper_text.HELPER_CLASS}()")
    return f"{FIRST_LINE}\n{definitions}{local} = {helper_text.HELPER_CLASS}()"


def replace_import_by_cell(file: MigratedFile, lines: list[str], module: str) -> list[str]:
    """Return the import lines with the text of the cell instead of the import of the helper from `module`."""
    start = f"from {module} import {HELPER_OBJECT}"
    import_line = next((line for line in lines if line.startswith(start)), None)
    if import_line is None:
        return lines
    local = import_line.removeprefix(start).removeprefix(" as ") or HELPER_OBJECT
    return [
        *(line for line in lines if line is not import_line),
        *render_cell(set(find_used_members(file, local)), local).split("\n"),
    ]


def find_used_members(file: MigratedFile, local: str) -> dict[str, int]:
    return find_member_lines(file.source.tree, local, file.findings)


def extend_cell(file: MigratedFile) -> MigratedFile:
    """Add missing members to the cell of an earlier migration; if the user has changed the cell, only report them."""
    cell = HELPER_CELL.search(file.source.text)
    if cell is None:
        return file
    helper, local = cell.groups()
    used_lines, defined = find_used_members(file, local), helper_text.find_definitions(helper)
    if render_cell(defined, local) == cell.group():  # the user has not changed it
        extended = render_cell({*used_lines, *defined}, local)
        if extended == cell.group():
            return file
        file.edits.replace(cell.start(), cell.end(), extended)
        return file.apply_edits()
    for name in helper_text.find_missing(helper, used_lines):
        original_line = file.original_lines[used_lines[name] - 1]
        file.findings.append(report_missing_member(helper="", name=name, path=file.path, line=original_line))
    return file


def find_pasted_helper(tree: ast.Module) -> str | None:
    """Return the name of the helper's object in a notebook with a helper cell; else None."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=helper_text.HELPER_CLASS))):
                return name
    return None
