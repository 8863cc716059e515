"""The two sides of a carry: the original script and the migrated one, with their differences.

If the sides differ although the migration changed numbers on purpose, the migrated side is compared with the reference:
the original with only the intended changes. It is a copy to which only the rules that make them are applied, or the
original with ranks that train together, or both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from viaduct.carrying.output_folder import MIGRATED_FOLDER, RUNS_FOLDER
from viaduct.carrying.request import Request
from viaduct.errors import BadValue
from viaduct.migration import report as migration_report
from viaduct.migration.diffing import AlignedLine, compare_texts, omit_unchanged_rows
from viaduct.migration.findings import Finding
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project
from viaduct.migration.source import decode, lines_of
from viaduct.migration.start_scripts import render_start_scripts
from viaduct.migration.walk import walk
from viaduct.migration.writing import write_out
from viaduct.rehearsal import project
from viaduct.rehearsal.files import split_arguments
from viaduct.reporting import DiffFile, DiffRow
from viaduct.scripts.notebook_runs import is_notebook, read_source

Side = Literal["original", "migrated"]
SIDE_NAMES: dict[Side, tuple[str, str]] = {
    "original": ("the original", "原脚本"),
    "migrated": ("the migrated script", "迁移后的脚本"),
}
MAX_LISTED_SCRIPTS = 6  # in an error message
RUNNABLE = (".py", ".ipynb")  # suffixes of the files that are compared
INTENDED_CHANGES = {  # rule -> description of its change
    "tf1.dataset_drop_remainder": "the last, smaller batch of each pass over the data is dropped"
}
JOINED_RANKS = (
    "all ranks begin with rank 0's variables, and gradients are averaged, while the original is for one device"
)
MAX_ENTRIES = 2000  # files and folders, at and below a path, whose times are read


@dataclass
class Sides:
    """The folders of the original and of the migrated project, and the lines in which they differ."""

    original_root: Path
    migrated_root: Path
    entry: str  # path of the script within both folders
    migration: Outcome | None = None  # result of the rules, if they made the migrated side
    copy_review: Outcome | None = None  # result of the rules for the user's copy (--migrated): what they would change
    diffs: dict[str, list[AlignedLine]] = field(default_factory=dict)  # path within the project -> diff
    # By path: the lines of the user's copy (--migrated) that the rules would write differently.
    deviating_lines: dict[str, set[int]] = field(default_factory=dict)

    @property
    def original_script(self) -> Path:
        return (self.original_root / self.entry).resolve()

    @property
    def migrated_script(self) -> Path:
        return (self.migrated_root / self.entry).resolve()

    @property
    def manual_findings(self) -> list[tuple[str, Finding]]:
        """Return the findings that need manual review, riskiest first, with their locations."""
        outcome = self.migration or self.copy_review
        return (
            [(outcome.locate(finding), finding) for finding in outcome.unfinished_findings]
            if outcome is not None
            else []
        )

    @property
    def unanalysed_count(self) -> int:
        """Return the number of files that the rules could not analyse."""
        outcome = self.migration or self.copy_review
        return sum(1 for file in outcome.files if file.unread_reason) if outcome is not None else 0

    def make_diffs(self, language: str) -> list[DiffFile]:
        """Return the diffs for the page, with the rules' remarks if the rules made the migrated side."""
        if self.migration is not None:
            return migration_report.make_diffs(self.migration, language)
        return [make_diff(path, rows) for path, rows in self.diffs.items()]


def find_project(request: Request) -> tuple[Path, str]:
    """Return the file or folder to migrate, and the path of the script within it (empty for a folder without --entry).

    A folder is returned as it is. For a script that imports modules of its project, the project's folder is returned,
    or the script's folder if --migrated is a copy of that. Raise BadValue if the source does not exist or --entry
    contradicts it.
    """
    if request.source.is_dir():
        return request.source, request.options.entry
    if not request.source.exists():
        raise BadValue(f"there is no {request.source}.", "Give a script, or the folder of a project with --entry.")
    if request.options.entry and request.options.entry != request.source.name:
        raise BadValue(f"--entry {request.options.entry}: {request.source} is a script already.", "Leave --entry out.")
    script_project = project.read_project(request.source.resolve())
    if request.module:
        return find_module_project(request, script_project)
    if len(script_project.sources) == 1:
        return request.source, request.source.name
    script = script_project.script
    if request.migrated is not None and is_copy_of_script_folder(request.migrated, script_project):
        return script.parent, script.name
    return script_project.root, script.relative_to(script_project.root).as_posix()


def find_module_project(request: Request, script_project: project.Project) -> tuple[Path, str]:
    """Return the project's root and the path of the script within it.

    If `python -m` finds the module from a folder outside the root, that folder takes the root's place.
    """
    # The name of a package means its __main__.py, one level deeper.
    script = script_project.script
    depth = request.module.count(".") + (script.name == "__main__.py")
    start_folder = script.parents[depth]
    root = script_project.root if start_folder.is_relative_to(script_project.root) else start_folder
    return root, script.relative_to(root).as_posix()


def is_copy_of_script_folder(migrated: Path, script_project: project.Project) -> bool:
    """Return True if the user's copy (--migrated) is a copy of the script's folder, not of the whole project."""
    script = script_project.script
    return not (migrated / script.relative_to(script_project.root)).is_file() and (migrated / script.name).is_file()


def migrate(request: Request) -> Sides:
    """Return both sides: migrate in memory, or take the user's copy (--migrated). Nothing is written.

    Raises BadValue if there is no Python file, or if it is not clear which script is started.
    """
    path, entry = find_project(request)
    if request.migrated is not None:
        return compare_with_copy(request, path, entry)
    options = replace(request.options, entry=entry if path.is_dir() else "")
    outcome = migrate_project(path, options, command=request.command)
    if not outcome.files:
        raise BadValue(f"{path} has no Python file.", "Give the folder in which the scripts are.")
    sides = Sides(outcome.root, request.out / MIGRATED_FOLDER, entry or outcome.entry or find_entry(outcome), outcome)
    sides.diffs = {
        file.path: compare_texts(file.old_text, file.new_text, file.original_lines) for file in outcome.changed_files
    }
    return sides


def find_entry(outcome: Outcome) -> str:
    """Return the only .py file with the text `__main__`; raise BadValue if there are none or several."""
    mains = [file.path for file in outcome.files if file.mentions_main and file.path.endswith(".py")]
    if len(mains) == 1:
        return mains[0]
    advice = "Give the script that is started with --entry PATH."
    if not mains:
        raise BadValue(f"none of the Python files of {outcome.root} mentions `__main__`.", advice)
    more = f" and {len(mains) - MAX_LISTED_SCRIPTS} more" if len(mains) > MAX_LISTED_SCRIPTS else ""
    listed = ", ".join(mains[:MAX_LISTED_SCRIPTS])
    raise BadValue(f"{outcome.root} has {len(mains)} files that mention `__main__`: {listed}{more}.", advice)


def write_migrated_copy(sides: Sides, request: Request) -> None:
    """Write the migrated copy, unless the user made it (--migrated).

    Start scripts are added, except for a module (`python -m`) and a notebook.
    """
    if sides.migration is not None:
        is_script = not request.module and not is_notebook(sides.entry)
        extra_files = render_start_scripts(sides.migration) if is_script else {}
        write_out(sides.migration, request.out / MIGRATED_FOLDER, extra_files, link_data=True)


# ---- the user's copy (--migrated)


def compare_with_copy(request: Request, path: Path, entry: str) -> Sides:
    """Return the sides for a migrated copy of the user, a folder or one script.

    Raise BadValue if the copy does not exist, or does not hold the script with the original's name.
    """
    assert request.migrated is not None
    copy = request.migrated
    if not copy.exists():
        advice = "Give the migrated copy: a script or a folder."
        raise BadValue(f"--migrated {copy}: there is no such file or folder.", advice)
    original_root, migrated_root = path if path.is_dir() else path.parent, copy
    if copy.is_file():
        migrated_root, entry = copy.parent, entry or path.name
        if copy.name != entry:
            raise BadValue(f"--migrated {copy}: the original is called {entry}.", "Give both the same name.")
    if not entry:
        raise BadValue("--migrated needs to know which script is started.", "Give --entry with its path in the folder.")
    if not (migrated_root / entry).is_file():
        raise BadValue(f"--migrated {copy} has no {entry}.", "Both sides need the script under the same name.")
    # The rules' findings on the copy are what was not migrated by hand.
    options = replace(request.options, entry=entry if copy.is_dir() else "")
    sides = Sides(original_root, migrated_root, entry, copy_review=migrate_project(copy, options))
    sides.diffs = dict(diff_scripts(original_root, migrated_root, walk(path).scripts))
    sides.deviating_lines = dict(find_deviating_lines(request, path, migrated_root))
    return sides


def find_deviating_lines(request: Request, path: Path, copy_root: Path) -> Iterator[tuple[str, set[int]]]:
    """Yield for each file the lines of the user's copy that the rules would write differently.

    For a missing line, the line before it counts. The user may have migrated for one card or for several
    (`distributed`), so only a line unlike both migrations deviates.
    """
    options = [replace(request.options, entry="", distributed=distributed) for distributed in (False, True)]
    one_card, several_cards = (migrate_project(path, option) for option in options)
    for file, other in zip(one_card.files, several_cards.files, strict=True):
        if file.path.endswith(RUNNABLE) and (copy_root / file.path).is_file():
            copied, original = read_text(copy_root / file.path), read_text(one_card.root / file.path)
            migrations = (file.new_text or original, other.new_text or original)
            yield file.path, set.intersection(*(find_differing_lines(text, copied) for text in migrations))


def find_differing_lines(ours: str, theirs: str) -> set[int]:
    """Return the numbers of the lines of `theirs` that `ours` does not have.

    For lines that only `ours` has, the number of the line before them is returned.
    """
    codes = SequenceMatcher(None, lines_of(ours), lines_of(theirs), autojunk=False).get_opcodes()
    return {line for kind, _, _, c, d in codes if kind != "equal" for line in (range(c + 1, d + 1) or [c])}


def diff_scripts(
    original_root: Path, migrated_root: Path, scripts: list[str]
) -> Iterator[tuple[str, list[AlignedLine]]]:
    """Yield the diffs of the scripts that both folders have with different text."""
    for path in scripts:
        if not path.endswith(RUNNABLE) or not (migrated_root / path).is_file():
            continue
        old, new = read_text(original_root / path), read_text(migrated_root / path)
        if old != new:
            yield path, compare_texts(old, new, match_lines(old, new))


def read_text(path: Path) -> str:
    """Return the source of a script, or a notebook's code cells in order."""
    data = path.read_bytes()
    try:
        return decode(read_source(path, data))[0]
    except BadValue:  # a notebook that cannot be run; its JSON text is compared
        return decode(data)[0]


def match_lines(old: str, new: str) -> list[int]:
    """Return for each new line the number of the old line that it equals or replaces; 0 for an inserted line."""
    before, after = lines_of(old), lines_of(new)
    origins = [0] * len(after)
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            for index in range(c, d):
                origins[index] = min(a + index - c, b - 1) + 1
    return origins


def make_diff(path: str, rows: list[AlignedLine]) -> DiffFile:
    """Return a file's diff for the page: the changed rows and a few rows around them."""
    drawn: list[DiffRow | int] = []
    for row in omit_unchanged_rows(rows):
        if isinstance(row, int):  # the number of unchanged rows that are left out here
            drawn.append(row)
        else:
            left, right = (
                [(piece.text, piece.marked) for piece in pieces] for pieces in (row.old_pieces, row.new_pieces)
            )
            drawn.append(DiffRow(row.kind, row.old, row.new, left, right))
    return DiffFile(path, drawn)


# ---- the reference: the original with only the intended changes


def find_changing_rules(sides: Sides) -> dict[str, str]:
    """Return the rules that changed this project and are known to change numbers, with descriptions."""
    if sides.migration is None:  # the user migrated by hand, without rules
        return {}
    used = {finding.rule for finding in sides.migration.findings if finding.status == "changed"}
    return {rule: description for rule, description in INTENDED_CHANGES.items() if rule in used}


def write_reference(request: Request, sides: Sides, rules: tuple[str, ...]) -> Path:
    """Write a copy of the original with only these rules applied; return its script."""
    path, entry = find_project(request)
    options = replace(request.options, entry=entry if path.is_dir() else "", only=rules, skip=())
    folder = request.out / RUNS_FOLDER / "reference_source"
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_out(migrate_project(path, options), folder, {}, link_data=True)
    return (folder / sides.entry).resolve()


# ---- paths that both sides share by mistake: each run has its own working folder, but absolute paths among the
# arguments are the same, so the migrated script may find the original's checkpoints there and resume from them


def find_change_times(arguments: Sequence[str]) -> dict[str, float]:
    """Return the absolute paths among the arguments, with the time of the last change (0: the path does not exist)."""
    return {value: find_last_change(Path(value)) for value in split_arguments(arguments) if os.path.isabs(value)}


def find_last_change(path: Path) -> float:
    """Return the time of the last change at or below a path, among the first MAX_ENTRIES entries; 0 for no entry."""
    entries = islice(chain([path], path.rglob("*")), MAX_ENTRIES)
    return max((entry.lstat().st_mtime for entry in entries if os.path.lexists(entry)), default=0.0)


def find_changed_since(before: dict[str, float]) -> list[str]:
    """Return the paths that have changed since `before`, the result of `find_change_times`; any program counts."""
    return [value for value, time in before.items() if find_last_change(Path(value)) > time]
