"""The two sides of a carrying: the script as it was, and the migrated one, ours or somebody's own; and what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from viaduct.carrying.asked import Asked
from viaduct.carrying.places import COPY
from viaduct.errors import BadValue
from viaduct.migration import report as migration_report
from viaduct.migration.diffing import Row, compare
from viaduct.migration.findings import Finding
from viaduct.migration.run import Outcome, migrate_project
from viaduct.migration.source import decode, lines_of
from viaduct.migration.starting import start_scripts
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
    def original(self) -> Path:
        return (self.root / self.entry).resolve()

    @property
    def migrated(self) -> Path:
        return (self.folder / self.entry).resolve()

    @property
    def manual(self) -> list[tuple[str, Finding]]:
        """What a person must still do, the riskiest first, with the place."""
        told = self.outcome or self.left
        return [(told.where(one), one) for one in told.by_risk] if told is not None else []

    @property
    def unread(self) -> int:
        """Files that the rules could not analyse."""
        told = self.outcome or self.left
        return sum(1 for file in told.files if file.reason) if told is not None else 0

    def diffs(self, language: str) -> list[DiffFile]:
        if self.outcome is not None:
            return migration_report.diffs(self.outcome, language)
        return [plain_diff(path, rows) for path, rows in self.files.items()]


def project_of(asked: Asked) -> tuple[Path, str]:
    """What to migrate, and the script within it. A script with files of its own stands for the folder of them all."""
    if asked.source.is_dir():
        return asked.source, asked.options.entry
    if not asked.source.exists():
        raise BadValue(f"there is no {asked.source}.", "Give a script, or the folder of a project with --entry.")
    if asked.options.entry and asked.options.entry != asked.source.name:
        raise BadValue(f"--entry {asked.options.entry}: {asked.source} is a script already.", "Leave --entry out.")
    known = project.read(asked.source.resolve())
    if asked.module:
        return project_of_module(asked, known)
    if len(known.sources) == 1:
        return asked.source, asked.source.name
    if asked.migrated is not None and holds_only_folder(asked.migrated, known):
        return known.script.parent, known.script.name
    return known.root, known.script.relative_to(known.root).as_posix()


def project_of_module(asked: Asked, known: project.Project) -> tuple[Path, str]:
    """The folder in which `python -m` finds the module, or one further up that the module's imports reach into."""
    script = known.script
    depth = asked.module.count(".") + (script.name == "__main__.py")
    found = script.parents[depth]
    root = known.root if found.is_relative_to(known.root) else found
    return root, script.relative_to(root).as_posix()


def holds_only_folder(migrated: Path, known: project.Project) -> bool:
    """Return True if somebody's copy is one of the script's folder, not of the whole project."""
    script = known.script
    return not (migrated / script.relative_to(known.root)).is_file() and (migrated / script.name).is_file()


def migrate(asked: Asked) -> Sides:
    """In memory; nothing is written."""
    path, entry = project_of(asked)
    if asked.migrated is not None:
        return by_hand(asked, path, entry)
    options = replace(asked.options, entry=entry if path.is_dir() else "")
    outcome = migrate_project(path, options, command=asked.command)
    if not outcome.files:
        raise BadValue(f"{path} has no Python file.", "Give the folder in which the scripts are.")
    sides = Sides(outcome.root, asked.out / COPY, entry or outcome.entry or the_only_main(outcome), outcome)
    sides.files = {file.path: compare(file.old, file.new, file.stems) for file in outcome.changed}
    return sides


def the_only_main(outcome: Outcome) -> str:
    """A project's script: --entry, or the only one that can be."""
    mains = [file.path for file in outcome.files if file.main and file.path.endswith(".py")]
    if len(mains) == 1:
        return mains[0]
    found = ", ".join(mains[:SHOWN]) or "none of its files has `if __name__ == '__main__'`"
    raise BadValue(f"{outcome.root} has more than one script: which is started?", f"--entry says it: {found}.")


def write(sides: Sides, asked: Asked) -> None:
    if sides.outcome is not None:
        is_script = not asked.module and not is_notebook(sides.entry)
        extra = start_scripts(sides.outcome) if is_script else {}
        write_out(sides.outcome, asked.out / COPY, extra, link_data=True)


# ---- a copy that somebody else has made


def by_hand(asked: Asked, path: Path, entry: str) -> Sides:
    assert asked.migrated is not None
    given = asked.migrated
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
    sides = Sides(root, folder, entry, left=leftovers(asked, given, entry))
    sides.files = dict(differing(root, folder, scripts))
    sides.unlike = dict(unlike_ours(asked, path, folder))
    return sides


def unlike_ours(asked: Asked, path: Path, folder: Path) -> Iterator[tuple[str, set[int]]]:
    """Lines of the copy that are not what the rules make of the original; of one that is missing, the line before."""
    one, several = (migrate_project(path, replace(asked.options, entry="", distributed=many)) for many in (False, True))
    for file, other in zip(one.files, several.files, strict=True):
        if file.path.endswith(RUNNABLE) and (folder / file.path).is_file():
            theirs, before = read_text(folder / file.path), read_text(one.root / file.path)
            yield file.path, unlike(file.new or before, theirs) & unlike(other.new or before, theirs)


def unlike(ours: str, theirs: str) -> set[int]:
    codes = SequenceMatcher(None, lines_of(ours), lines_of(theirs), autojunk=False).get_opcodes()
    return {line for kind, _, _, c, d in codes if kind != "equal" for line in (range(c + 1, d + 1) or [c])}


def leftovers(asked: Asked, given: Path, entry: str) -> Outcome:
    """What the rules would still say; they change nothing here."""
    options = replace(asked.options, entry=entry if given.is_dir() else "")
    return migrate_project(given, options)


def differing(root: Path, folder: Path, scripts: list[str]) -> list[tuple[str, list[Row]]]:
    found = []
    for path in scripts:
        if not path.endswith(RUNNABLE) or not (folder / path).is_file():
            continue
        old, new = (read_text(place / path) for place in (root, folder))
        if old != new:
            found.append((path, compare(old, new, stems(old, new))))
    return found


def read_text(path: Path) -> str:
    """Return the source of a script; of a notebook its code cells, joined, as they are run."""
    data = path.read_bytes()
    try:
        return decode(read_source(path, data))[0]
    except BadValue:  # a notebook that cannot be run: it is compared as it is
        return decode(data)[0]


def stems(old: str, new: str) -> list[int]:
    """Of each new line the old one that it stands for, as far as texts can tell."""
    before, after = lines_of(old), lines_of(new)
    found = [0] * len(after)
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            for place in range(c, d):
                found[place] = min(a + place - c, b - 1) + 1
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
