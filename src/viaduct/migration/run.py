"""Migrate a whole project: find its files, look at all of them, then rewrite each; in parallel where it pays.

Nothing of the project is imported or run, and nothing is written here, but that what an interrupted migration has left
is undone first.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from viaduct.errors import BadValue, OutOfMemory
from viaduct.migration import helper_file, neutral, notebooks
from viaduct.migration.engine import Migrated, migrate_bytes
from viaduct.migration.findings import LEFT, RISK, Finding, Risk
from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.journal import recover, recover_folder
from viaduct.migration.ledger import Place, audit_programs, counts, of_finding
from viaduct.migration.options import Options
from viaduct.migration.project import FRAMEWORKS, Project, survey
from viaduct.migration.source import decode, lines_of
from viaduct.migration.walk import Skipped, Walk, walk

LARGEST = 5_000_000
"""Bytes of a file: beyond this it is data in disguise, and parsing it would take a gigabyte."""
PARALLEL_FROM = 300_000
"""Bytes of all files together: below this, starting processes takes longer than the work."""


@dataclass(frozen=True)
class FileResult:
    """What became of a file. The texts are there where something is to be shown: a change or a finding.

    Of a notebook `old` and `new` are its code cells joined, and `cells` the lines at which they begin.
    """

    path: str
    size: int
    line_count: int
    changed: bool = False
    before: bytes = b""
    after: bytes = b""
    old: str = ""
    new: str = ""
    stems: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    places: tuple[Place, ...] = ()  # of the ledger
    marks: frozenset[str] = frozenset()  # of a file of a program for several ranks
    reason: str = ""  # why it was not looked into
    reason_zh: str = ""
    remedy: str = ""  # what makes it readable
    cells: tuple[tuple[int, int], ...] = ()  # (cell, its first line)
    seconds: float = 0.0  # of a core
    main: bool = False  # has `if __name__ == "__main__"`
    traceback: str = ""

    def why(self, language: str) -> str:
        return self.reason_zh if language == "zh" and self.reason_zh else self.reason

    def where(self, line: int) -> str:
        """`train.py:12`, or of a notebook `train.ipynb cell 3:2`."""
        cell = next(((number, first) for number, first in reversed(self.cells) if first <= line), None)
        return f"{self.path} cell {cell[0]}:{line - cell[1] + 1}" if cell else f"{self.path}:{line}"


@dataclass
class Outcome:
    """All that a migration found, before anything is written."""

    root: Path
    options: Options
    walk: Walk
    files: list[FileResult]
    command: str = ""
    seconds: float = 0.0
    entry: str = ""
    frameworks: dict[str, frozenset[str]] = field(default_factory=dict)  # see Project
    added: list[FileResult] = field(default_factory=list)  # helpers of --to any: new, or with more in them
    by_path: dict[str, FileResult] = field(init=False)

    def __post_init__(self) -> None:
        self.by_path = {file.path: file for file in self.files}

    @property
    def changed(self) -> list[FileResult]:
        return [file for file in self.files if file.changed]

    @property
    def written(self) -> list[FileResult]:
        """What comes onto the disk: files that changed, and new ones."""
        return [*self.changed, *(file for file in self.added if file.changed)]

    @property
    def findings(self) -> list[Finding]:
        return [finding for file in self.files for finding in file.findings]

    @property
    def unread(self) -> list[Skipped | FileResult]:
        """What was not read, not understood or left out; it makes the result incomplete."""
        left_out = [skipped for skipped in self.walk.skipped if not skipped.is_deliberate]
        return sorted([*left_out, *(file for file in self.files if file.reason)], key=lambda found: found.path)

    @property
    def by_risk(self) -> list[Finding]:
        """What is left for a person, the riskiest first."""
        left = [finding for finding in self.findings if finding.status in LEFT]
        return sorted(left, key=lambda one: (RISK[one.risk], one.order))

    @property
    def places(self) -> list[Place]:
        """The places of the ledger, those of files that are no Python included, and what was not read."""
        found = [place for file in self.files for place in (file.places or from_findings(file))]
        return [*found, *(not_read(skipped) for skipped in self.unread if not is_told(skipped))]

    def where(self, finding: Finding | Place) -> str:
        return self.by_path[finding.file].where(finding.line)


def from_findings(file: FileResult) -> list[Place]:
    """The places of a shell script, a requirements file or one that could not be parsed."""
    return [of_finding(finding) for finding in file.findings if counts(finding)]


def is_told(path: Skipped | FileResult) -> bool:
    return isinstance(path, FileResult) and bool(path.findings)


def not_read(path: Skipped | FileResult) -> Place:
    zh = path.why("zh")
    return Place("files", path.path, 1, "unresolved", path.path, path.why("en"), zh)


def migrate_project(path: Path, options: Options, jobs: int = 0, command: str = "") -> Outcome:
    began = time.perf_counter()
    found = walk_whole(path)
    leave_out(found, options.exclude)
    texts = list(read_all(found))
    options = with_entry(options, found)
    collecting = gc.isenabled()
    gc.disable()  # trees by the million and no cycles worth a search
    try:
        project = survey((name, parsable(name, data)) for name, data in texts)
        refuse_framework(project, options)
        project.entry = options.entry
        project.helpers = neutral.plan(found, texts) if options.to == "any" else {}
        results = run_all(texts, options, project, jobs)
        if project.torch_files:
            results += list(brought_along(found, options))
            results += shell_scripts(found, options, project)
            results += settings_files(found, options)
        results = with_programs(project, results) if options.distributed and not options.only else results
        results, added = with_helpers(project, found, sorted(results, key=lambda file: file.path))
    finally:
        if collecting:
            gc.enable()
    outcome = Outcome(found.root, options, found, results, command, time.perf_counter() - began)
    outcome.frameworks = project.frameworks
    outcome.entry = options.entry or likely_entry(outcome)
    outcome.added = added
    return outcome


def with_programs(project: Project, results: list[FileResult]) -> list[FileResult]:
    """Add what whole programs lack that train on several ranks."""
    known = {file.path: file for file in results}
    marks = {file.path: file.marks for file in results if file.marks}
    for place in audit_programs(marks, project.imports, [place for file in results for place in file.places]):
        file = known[place.file]
        known[place.file] = replace(
            file, places=(*file.places, place), findings=(place.as_finding(), *file.findings), **texts_of(file, project)
        )
    return list(known.values())


def texts_of(file: FileResult, project: Project) -> dict[str, Any]:
    """The text of a file that had nothing to show so far."""
    if file.old:
        return {}
    text = project.parsed[file.path].source.text
    return {"old": text, "new": text, "stems": tuple(range(1, len(lines_of(text)) + 1))}


def walk_whole(path: Path) -> Walk:
    """Find the files of a project, after what an interrupted migration has left in it is undone."""
    recover(path, say)
    found = walk(path)
    for folder in found.interrupted:
        recover_folder(found.root / folder, say)
    return walk(path) if found.interrupted else found


def say(message: str) -> None:
    print(message, file=sys.stderr)


def with_helpers(project: Project, found: Walk, results: list[FileResult]) -> tuple[list[FileResult], list[FileResult]]:
    """The results, and beside them the modules that scripts import with --to any, where they come or grow.

    One that its owner has changed stays; what it lacks is said where a script asks for it.
    """
    added, told = [], {file.path: file for file in results}
    for helper in helper_file.gather(found, project, now(project, results)) if project.helpers else ():
        for name, path, line in helper.missing():
            told[path] = with_finding(told[path], project, helper.path, name, line)
        if helper.after != helper.before or helper.path not in told:
            added.append(of_helper(helper))
            told.pop(helper.path, None)
    return list(told.values()), added


def now(project: Project, results: list[FileResult]) -> Iterator[helper_file.Script]:
    """Scripts as they will be; notebooks have the helper in a cell."""
    for file in results:
        surveyed = project.parsed.get(file.path)
        if file.path.endswith(".py") and (file.changed or surveyed is not None):
            text = file.new if file.changed or surveyed is None else surveyed.source.text
            advised = " ".join(one.message for one in file.findings if one.status != "changed")
            yield helper_file.Script(file.path, text, file.changed, advised)


def of_helper(helper: helper_file.Helper) -> FileResult:
    old, new = helper.before.decode(errors="replace"), helper.after.decode(errors="replace")
    size, lines, changed = len(helper.after), len(lines_of(new)), helper.after != helper.before
    stems = helper_file.stems(old, new)
    return FileResult(helper.path, size, lines, changed, helper.before, helper.after, old, new, stems)


def with_finding(file: FileResult, project: Project, helper: str, name: str, line: int) -> FileResult:
    """On the line of the original from which the question stems."""
    if not file.changed:
        text = project.parsed[file.path].source.text
        file = replace(file, old=text, new=text, stems=tuple(range(1, len(lines_of(text)) + 1)))
    origin = file.stems[line - 1]
    finding = helper_file.on_missing(helper, name, file.path, origin, lines_of(file.old)[origin - 1])
    return replace(file, findings=tuple(sorted([*file.findings, finding], key=lambda one: one.order)))


def read_all(found: Walk) -> Iterator[tuple[str, bytes]]:
    """Yield path and content; what cannot be read goes to the list of what was left out."""
    for path in list(found.scripts):
        data = found.read(path)
        if data is not None:
            yield path, data


def with_entry(options: Options, found: Walk) -> Options:
    """--entry as the project's own path."""
    if not options.entry:
        return options
    wanted = Path(options.entry)
    names = [wanted.as_posix()]
    if wanted.exists():
        names.append(Path(os.path.relpath(wanted.resolve(), found.root.resolve())).as_posix())
    for name in names:
        if name in found.scripts:
            return replace(options, entry=name)
    raise BadValue(f"--entry {options.entry}: the project has no such script.", "Give its path within the project.")


def refuse_framework(project: Project, options: Options) -> None:
    """Refuse what cannot be done for a project whose every file is TensorFlow's."""
    if project.torch_files:
        return
    using = sorted(path for path, found in project.frameworks.items() if TENSORFLOW in found)
    if options.to == "any" and using:
        raise BadValue(
            f"--to any cannot be done for TensorFlow 1 ({using[0]} imports it).",
            "It has no device-neutral API: the NPU wants its own run configuration, estimator and session options,",
            "and the MLU its own build of TensorFlow. Give --to npu or --to mlu.",
        )
    if options.mode == "patch":
        raise BadValue(
            "--mode patch is for PyTorch, and no script here imports it.",
            "TensorFlow 1 has no such patch: leave --mode out.",
        )


def leave_out(found: Walk, patterns: tuple[str, ...]) -> None:
    """Take what --exclude names out of what is migrated; it is copied as it is."""
    for pattern in patterns:
        if not found.exclude(pattern):
            say(f"Note: --exclude {pattern} matches no file of the project.")
    if patterns and not found.scripts:
        raise BadValue(
            f"--exclude {' --exclude '.join(patterns)} leaves no Python file to migrate.",
            "A pattern is that of .gitignore: docs/, export_*.py, legacy/**.",
        )


def brought_along(found: Walk, options: Options) -> Iterator[FileResult]:
    """Files that are no scripts, of which something is to be said."""
    from viaduct.migration.manifests import look

    for path, text, findings in look(found, options):
        count = len(lines_of(text))
        stems = tuple(range(1, count + 1))
        yield FileResult(path, len(text.encode()), count, old=text, new=text, stems=stems, findings=findings)


def shell_scripts(found: Walk, options: Options, project: Project) -> list[FileResult]:
    from viaduct.migration.shell import migrate_all

    return [of_text(made) for made in migrate_all(found, options, project)]


def settings_files(found: Walk, options: Options) -> list[FileResult]:
    from viaduct.migration.settings import migrate_all

    return [of_text(made) for made in migrate_all(found, options)]


def of_text(made: Migrated) -> FileResult:
    """Of a file that is no Python."""
    result = of_migrated(made, made.before.decode(errors="replace"), made.after.decode(errors="replace"))
    return replace(result, size=len(made.before), line_count=len(lines_of(result.old)))


def parsable(path: str, data: bytes) -> bytes:
    """What the survey may parse: of a notebook its code; nothing of what is too large."""
    if len(data) > LARGEST:
        return b""
    if not path.endswith(".ipynb"):
        return data
    try:
        return notebooks.read(data).text.encode()
    except notebooks.NotMigrated:
        return b""


# ---- many files


Task = tuple[str, bytes]
_shared: tuple[Options, Project] | None = None


def run_all(texts: list[tuple[str, bytes]], options: Options, project: Project, jobs: int) -> list[FileResult]:
    workers = min(jobs or available_cores(), len(texts))
    if workers < 2 or sum(len(data) for _, data in texts) < PARALLEL_FROM or not can_fork():
        return [run_one(path, data, options, project) for path, data in texts]
    return run_parallel(texts, options, project, workers)


def run_parallel(tasks: list[Task], options: Options, project: Project, workers: int) -> list[FileResult]:
    """Forked workers see the survey as it is; it is not sent to them. Large files first, so that none comes last."""
    global _shared
    _shared = (options, project)
    gc.freeze()  # the workers share these pages as long as nobody writes into them
    try:
        tasks = sorted(tasks, key=lambda task: -len(task[1]))
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
            return list(pool.map(run_task, tasks, chunksize=max(1, min(16, len(tasks) // (workers * 4)))))
    except BrokenProcessPool:
        raise OutOfMemory("a process of the migration was killed.", "Perhaps memory was short: try --jobs 1.") from None
    finally:
        gc.unfreeze()
        _shared = None


def run_task(task: Task) -> FileResult:
    assert _shared is not None
    return run_one(*task, *_shared)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    return sys.platform.startswith("linux") and "fork" in multiprocessing.get_all_start_methods()


# ---- one file


def run_one(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    began = time.process_time()
    result = guarded(path, data, options, project)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return replace(
        result, size=len(data), line_count=lines, main=b"__main__" in data, seconds=time.process_time() - began
    )


def guarded(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """A mistake of ours in one file must not cost the user the other thousand; it is named, with its traceback."""
    migrate: Callable[[str, bytes, Options, Project], FileResult]
    migrate = migrate_notebook if path.endswith(".ipynb") else migrate_script
    try:
        if len(data) > LARGEST:
            return too_large(path, data)
        if path.endswith(".py") and neutral.is_helper(data):
            return FileResult(path, 0, 0)
        return migrate(path, data, options, project)
    except RecursionError:
        return left_alone(path, "is nested too deeply for the parser", "嵌套过深,解析器无法处理", data)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        reason = f"viaduct failed on it ({what}); it is left as it was. Please report this"
        zh = f"viaduct 处理此文件时出错({what}),文件未改动,请反馈此问题"
        return replace(left_alone(path, reason, zh, data), traceback=traceback.format_exc())


def migrate_script(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    made = migrate_bytes(path, data, options, project)
    if not made.changed and not made.findings:
        return FileResult(path, 0, 0, places=made.places, marks=made.marks)
    if made.reason:
        findings = tuple(weighed(one, data) for one in made.findings)
        alone = FileResult(path, 0, 0, reason=made.reason, reason_zh=made.reason_zh, remedy=made.remedy)
        return replace(alone, findings=findings)
    return of_migrated(made, decode(data)[0], decode(made.after)[0])


def of_migrated(made: Migrated, old: str, new: str) -> FileResult:
    return FileResult(
        *(made.path, 0, 0, made.changed),
        before=made.before if made.changed else b"",
        after=made.after if made.changed else b"",
        old=old,
        new=new,
        stems=made.lines,
        findings=made.findings,
        places=made.places,
        marks=made.marks,
        reason=made.reason,
        reason_zh=made.reason_zh,
    )


def migrate_notebook(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    try:
        notebook = notebooks.read(data)
        made = migrate_bytes(path, notebook.text.encode(), options, project)
        after = notebooks.put_back(notebook, made.after.decode()) if made.changed else b""
    except notebooks.NotMigrated as error:
        return left_alone(path, str(error), error.zh, data)
    skipped = tuple(on_skipped_cell(path, cell) for cell in notebook.skipped if cell.text)
    made = replace(made, findings=(*made.findings, *(one for one in skipped if one is not None)))
    if not made.changed and not made.findings:
        return FileResult(path, 0, 0, places=made.places, marks=made.marks)
    old, new = (notebooks.readable(notebook, text.decode()) for text in (made.before, made.after))
    cells = tuple(zip([place + 1 for place in notebook.cells], notebook.starts, strict=True))
    return replace(of_migrated(made, old, new), before=data if made.changed else b"", after=after, cells=cells)


def on_skipped_cell(path: str, cell: notebooks.Skipped) -> Finding | None:
    """A cell that was not looked into concerns a person if it mentions a framework, or should have been Python."""
    concerns = any(word in cell.text.encode() for word in FRAMEWORKS)
    if cell.text.lstrip().startswith("%%") and not concerns:
        return None
    end = cell.line + cell.text.count("\n")
    said = f"{cell.reason}: migrate it by hand", f"{cell.zh}:请手工迁移"
    risk: Risk = "high" if concerns else "low"
    return Finding(path, cell.line, end, 1, "engine.unparsable", "report", "manual", *said, risk, before=cell.text)


def too_large(path: str, data: bytes) -> FileResult:
    """Generated data is no concern of ours; code of that size is one for a person."""
    reason = f"has {len(data) / 1e6:.1f} MB, more than the {LARGEST / 1e6:g} MB that are looked into"
    zh = f"大小为 {len(data) / 1e6:.1f} MB,超过可处理的 {LARGEST / 1e6:g} MB"
    if not any(word in data for word in FRAMEWORKS):
        return FileResult(path, 0, 0, reason=f"{reason}; it mentions no framework", reason_zh=f"{zh};未提及任何框架")
    return left_alone(path, reason, zh, data)


def left_alone(path: str, reason: str, zh: str, data: bytes) -> FileResult:
    said = f"{reason}. It is copied as it is", f"{zh}。文件原样复制"
    finding = Finding(path, 1, 1, 1, "engine.left_alone", "report", "manual", *said, "high")
    return FileResult(path, 0, 0, findings=(weighed(finding, data),), reason=reason, reason_zh=zh)


def weighed(finding: Finding, data: bytes) -> Finding:
    """A file that mentions no framework is hardly one that had to be migrated."""
    return finding if any(word in data for word in FRAMEWORKS) else replace(finding, risk="low")


def likely_entry(outcome: Outcome) -> str:
    """The script that is started, if there is only one that could be."""
    scripts = [file for file in outcome.files if not file.path.endswith(".ipynb")]
    mains = [file.path for file in scripts if outcome.walk.single or (file.changed and file.main)]
    return mains[0] if len(mains) == 1 else ""
