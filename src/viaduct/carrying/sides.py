"""The two sides of a carry: the original script and the migrated one, and what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from viaduct.carrying.output_folder import COPY
from viaduct.carrying.request import Request
from viaduct.errors import BadValue
from viaduct.migration import report as migration_report
from viaduct.migration.diffing import Row, compare
from viaduct.migration.findings import Finding
from viaduct.migration.run import Outcome, migrate_project
from viaduct.migration.source import decode, lines_of
from viaduct.migration.start_scripts import start_scripts
from viaduct.migration.walk import walk
from viaduct.migration.writing import write_out
from viaduct.rehearsal import project
from viaduct.reporting import DiffFile
from viaduct.scripts.notebook_runs import is_notebook, read_source

SHOWN = 6
RUNNABLE = (".py", ".ipynb")


@dataclass
class Sides:
    """`files`: what differs between the two, line by line, by the path within the project."""

    root: Path  # of the original
    folder: Path  # of the migrated one
    entry: str  # the script that is started, within both
    outcome: Outcome | None = None  # of our own migration
    left: Outcome | None = None  # what the rules still have to say about somebody's own copy
    files: dict[str, list[Row]] = field(default_factory=dict)
    unlike: dict[str, set[int]] = field(default_factory=dict)  # lines of somebody's copy that the rules write otherwise

    @property
    def original_script(self) -> Path:
        """Return the path of the original script."""
        return (self.root / self.entry).resolve()

    @property
    def migrated_script(self) -> Path:
        """Return the path of the migrated script."""
        return (self.folder / self.entry).resolve()

    @property
    def manual_findings(self) -> list[tuple[str, Finding]]:
        """Return the findings that need manual review, riskiest first, with their locations."""
        outcome = self.outcome or self.left
        return [(outcome.where(finding), finding) for finding in outcome.by_risk] if outcome is not None else []

    @property
    def unread_count(self) -> int:
        """Return the number of files that the rules could not analyse."""
        outcome = self.outcome or self.left
        return sum(1 for file in outcome.files if file.reason) if outcome is not None else 0

    def diffs(self, language: str) -> list[DiffFile]:
        if self.outcome is not None:
            return migration_report.diffs(self.outcome, language)
        return [plain_diff(path, rows) for path, rows in self.files.items()]


def find_project(request: Request) -> tuple[Path, str]:
    """Return what to migrate and the script within it: a script with modules of its own stands for their folder."""
    if request.source.is_dir():
        return request.source, request.options.entry
    if not request.source.exists():
        raise BadValue(f"there is no {request.source}.", "Give a script, or the folder of a project with --entry.")
    if request.options.entry and request.options.entry != request.source.name:
        raise BadValue(f"--entry {request.options.entry}: {request.source} is a script already.", "Leave --entry out.")
    known = project.read(request.source.resolve())
    if request.module:
        return find_module_project(request, known)
    if len(known.sources) == 1:
        return request.source, request.source.name
    if request.migrated is not None and holds_only_folder(request.migrated, known):
        return known.script.parent, known.script.name
    return known.root, known.script.relative_to(known.root).as_posix()


def find_module_project(request: Request, known: project.Project) -> tuple[Path, str]:
    """Return the folder from which `python -m` finds the module, or one above it that its imports need."""
    script = known.script
    depth = request.module.count(".") + (script.name == "__main__.py")
    found = script.parents[depth]
    root = known.root if found.is_relative_to(known.root) else found
    return root, script.relative_to(root).as_posix()


def holds_only_folder(migrated: Path, known: project.Project) -> bool:
    """Return True if somebody's copy is one of the script's folder, not of the whole project."""
    script = known.script
    return not (migrated / script.relative_to(known.root)).is_file() and (migrated / script.name).is_file()


def migrate(request: Request) -> Sides:
    """Migrate in memory; nothing is written."""
    path, entry = find_project(request)
    if request.migrated is not None:
        return compare_with_copy(request, path, entry)
    options = replace(request.options, entry=entry if path.is_dir() else "")
    outcome = migrate_project(path, options, command=request.command)
    if not outcome.files:
        raise BadValue(f"{path} has no Python file.", "Give the folder in which the scripts are.")
    sides = Sides(outcome.root, request.out / COPY, entry or outcome.entry or find_entry(outcome), outcome)
    sides.files = {file.path: compare(file.old, file.new, file.stems) for file in outcome.changed}
    return sides


def find_entry(outcome: Outcome) -> str:
    """Return the project's script: --entry, or the only candidate."""
    mains = [file.path for file in outcome.files if file.main and file.path.endswith(".py")]
    if len(mains) == 1:
        return mains[0]
    found = ", ".join(mains[:SHOWN]) or "none of its files has `if __name__ == '__main__'`"
    raise BadValue(f"{outcome.root} has more than one script: which is started?", f"--entry says it: {found}.")


def write(sides: Sides, request: Request) -> None:
    """Write the migrated copy."""
    if sides.outcome is not None:
        is_script = not request.module and not is_notebook(sides.entry)
        extra = start_scripts(sides.outcome) if is_script else {}
        write_out(sides.outcome, request.out / COPY, extra, link_data=True)


# ---- a copy that somebody else has made


def compare_with_copy(request: Request, path: Path, entry: str) -> Sides:
    """Return the sides of a project that was migrated by hand."""
    assert request.migrated is not None
    given = request.migrated
    if not given.exists():
        raise BadValue(f"--migrated {given}: there is no such folder.", "Give the folder of the migrated copy.")
    if given.is_file():
        root, entry, folder, name = path if path.is_dir() else path.parent, entry or path.name, given.parent, given.name
        if name != entry:
            raise BadValue(f"--migrated {given}: the original is called {entry}.", "Give both the same name.")
    else:
        root, folder = path if path.is_dir() else path.parent, given
    if not entry:
        raise BadValue("--migrated needs to know which script is started.", "Give --entry with its path in the folder.")
    if not (folder / entry).is_file():
        raise BadValue(f"--migrated {given} has no {entry}.", "Both sides need the script under the same name.")
    scripts = walk(path).scripts
    sides = Sides(root, folder, entry, left=find_leftovers(request, given, entry))
    sides.files = dict(diff_scripts(root, folder, scripts))
    sides.unlike = dict(find_unlike_lines(request, path, folder))
    return sides


def find_unlike_lines(request: Request, path: Path, folder: Path) -> Iterator[tuple[str, set[int]]]:
    """Yield lines of the copy that the rules would not write so; for a missing one, the line before."""
    single, several = (
        migrate_project(path, replace(request.options, entry="", distributed=many)) for many in (False, True)
    )
    for file, other in zip(single.files, several.files, strict=True):
        if file.path.endswith(RUNNABLE) and (folder / file.path).is_file():
            theirs, before = read_text(folder / file.path), read_text(single.root / file.path)
            yield file.path, diff_lines(file.new or before, theirs) & diff_lines(other.new or before, theirs)


def diff_lines(ours: str, theirs: str) -> set[int]:
    codes = SequenceMatcher(None, lines_of(ours), lines_of(theirs), autojunk=False).get_opcodes()
    return {line for kind, _, _, c, d in codes if kind != "equal" for line in (range(c + 1, d + 1) or [c])}


def find_leftovers(request: Request, given: Path, entry: str) -> Outcome:
    """Return what the rules would still report; nothing is changed."""
    options = replace(request.options, entry=entry if given.is_dir() else "")
    return migrate_project(given, options)


def diff_scripts(root: Path, folder: Path, scripts: list[str]) -> list[tuple[str, list[Row]]]:
    """Return the differences between two trees, script by script."""
    found = []
    for path in scripts:
        if not path.endswith(RUNNABLE) or not (folder / path).is_file():
            continue
        old, new = (read_text(tree / path) for tree in (root, folder))
        if old != new:
            found.append((path, compare(old, new, match_lines(old, new))))
    return found


def read_text(path: Path) -> str:
    """Return the source of a script; of a notebook its code cells, joined, as they are run."""
    data = path.read_bytes()
    try:
        return decode(read_source(path, data))[0]
    except BadValue:  # a notebook that cannot be run: it is compared as it is
        return decode(data)[0]


def match_lines(old: str, new: str) -> list[int]:
    """Return for each new line the old line it replaces, as far as the texts show."""
    before, after = lines_of(old), lines_of(new)
    found = [0] * len(after)
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            for index in range(c, d):
                found[index] = min(a + index - c, b - 1) + 1
    return found


def plain_diff(path: str, rows: list[Row]) -> DiffFile:
    from viaduct.migration.diffing import around
    from viaduct.reporting import DiffRow

    drawn: list[DiffRow | int] = []
    for row in around(rows, set()):
        if isinstance(row, int):
            drawn.append(row)
        else:
            left, right = ([(piece.text, piece.marked) for piece in side] for side in (row.left, row.right))
            drawn.append(DiffRow(row.kind, row.old, row.new, left, right))
    return DiffFile(path, drawn)
