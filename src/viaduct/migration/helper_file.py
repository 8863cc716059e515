"""Write or extend the helper of `--to any`, a module by which scripts query the machine's accelerator.

An existing helper gets the members that scripts use and it lacks. If the user has changed it, it stays as it is, and
the missing members are reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from viaduct.migration import helper_text
from viaduct.migration.findings import Finding
from viaduct.migration.helper_location import HELPER_OBJECT
from viaduct.migration.predicates import imported_modules
from viaduct.migration.project import Project
from viaduct.migration.source import lines_of
from viaduct.migration.walk import Walk

if TYPE_CHECKING:
    from viaduct.migration.results import FileResult

MEMBER_MENTION = re.compile(rf"\b{HELPER_OBJECT}\.(\w+)")
RULE = "engine.helper"


@dataclass
class Helper:
    """A helper file and the uses of its members."""

    path: str
    before: bytes  # content on the disk; empty if the file is missing
    needed: bool = False  # a script that imports it was changed by this migration
    uses: dict[str, tuple[str, int]] = field(default_factory=dict)  # member -> (script, line in its new text)

    @property
    def old(self) -> str:
        return self.before.decode(errors="replace").replace("\r\n", "\n")

    @property
    def is_ours(self) -> bool:
        """True if the helper is missing or unchanged since viaduct wrote it."""
        return not self.before or helper_text.is_as_written(self.old)

    @property
    def after(self) -> bytes:
        """Content of the helper after the migration."""
        if not self.is_ours:
            return self.before
        text = helper_text.render_helper({*self.uses, *helper_text.find_definitions(self.old)})
        return text.replace("\n", "\r\n" if b"\r\n" in self.before else "\n").encode()

    def find_missing(self) -> Iterator[tuple[str, str, int]]:
        """Yield (member, script, line) of used members that a helper changed by the user lacks."""
        if not self.is_ours:
            yield from ((name, *self.uses[name]) for name in helper_text.find_missing(self.old, self.uses))


def collect_helpers(walk: Walk, project: Project, scripts: Iterable[FileResult]) -> list[Helper]:
    """Return the helpers that scripts import: existing ones, those of changed scripts, and lost ones (`is_lost`).

    The texts of the scripts are filled in: `FileResult.new_text`.
    """
    helpers: dict[str, Helper] = {}
    for script in scripts:
        module, path = project.helpers.get(script.path, ("", ""))
        if not module or f"from {module} import" not in script.new_text:
            continue
        tree = ast.parse(script.new_text)
        local = find_local_name(tree, module)
        if local:
            file = walk.root / path
            helper = helpers.setdefault(path, Helper(path, file.read_bytes() if file.is_file() else b""))
            helper.needed |= script.changed
            used = find_member_lines(tree, local, script.findings)
            helper.uses |= {name: (script.path, line) for name, line in used.items() if name not in helper.uses}
    return [helper for _, helper in sorted(helpers.items()) if helper.before or helper.needed or is_lost(walk, helper)]


def find_member_lines(tree: ast.Module, local: str, findings: Iterable[Finding]) -> dict[str, int]:
    """Return member -> line for the helper members that a script uses; line 1 for those that only findings name.

    `local`: name of the helper's object in the script. Findings of changes do not count: the script has their text.
    """
    messages = " ".join(finding.message for finding in findings if finding.status != "changed")
    return {**dict.fromkeys(MEMBER_MENTION.findall(messages), 1), **helper_text.find_uses(tree, local)}


def is_lost(walk: Walk, helper: Helper) -> bool:
    """Return True if no file of the project has the helper's name; False for a single script, without a project."""
    name = PurePosixPath(helper.path).name
    return not walk.is_single_script and all(PurePosixPath(path).name != name for path in walk.scripts)


def find_local_name(tree: ast.AST, module: str) -> str:
    """Return the local name of the helper's object; "" if a script does not import it."""
    statements = (
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and imported_modules(node) == [module]
    )
    names = (
        alias.asname or HELPER_OBJECT for node in statements for alias in node.names if alias.name == HELPER_OBJECT
    )
    return next(names, "")


def report_missing_member(helper: str, name: str, path: str, line: int, before: str = "") -> Finding:
    """Return the finding about a member that is used, and that the helper, which the user has changed, lacks.

    `helper`: path of the helper, or "" for the cell of a notebook; `before`: text of the line that uses the member.
    """
    remedy = "; or move that file away and migrate again, then the helper is written anew" if helper else ""
    remedy_zh = ",或移走该文件后重新迁移,届时会重新写入" if helper else ""
    return Finding(
        *(path, line, line, 1, RULE, "mandatory", "manual"),
        f"{helper or 'the helper in its cell'} has been changed since it was written, and has no {name}: "
        f"write it there{remedy}",
        f"{helper or '单元格中的辅助代码'} 写入后已被修改,其中没有 {name}:请自行补上{remedy_zh}",
        "high",
        before,
    )


def map_lines(old: str, new: str) -> tuple[int, ...]:
    """Return, for each line of an extended helper, its line in the old text; 0 for a new line."""
    before, after = lines_of(old), lines_of(new)
    origins = [0] * len(after)
    for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        for index in range(block.size):
            origins[block.b + index] = block.a + index + 1
    return tuple(origins)
