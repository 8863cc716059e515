"""Migrate a whole project in memory: find its files, survey all of them, then rewrite each; large projects in parallel.

Nothing of the project is imported or run. Nothing is written, with one exception: an interrupted migration in place is
undone first.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from viaduct.cards import CARDS
from viaduct.cards.limits import Risk
from viaduct.errors import BadValue, OutOfMemory
from viaduct.migration import helper_file, neutral, plugin_import
from viaduct.migration.engine import Migrated, migrate_bytes
from viaduct.migration.findings import LEFT, RISK, Finding
from viaduct.migration.frameworks import TENSORFLOW
from viaduct.migration.journal import recover, recover_folder
from viaduct.migration.ledger import NO_PLUGIN, Place, audit_programs, counts, of_finding
from viaduct.migration.limits import TooSlow, limit_cpu
from viaduct.migration.operator_notes import gather_notes
from viaduct.migration.options import Options
from viaduct.migration.parts import Part, split_parts
from viaduct.migration.project import FRAMEWORKS, Project, merge_outlines, survey
from viaduct.migration.source import decode, lines_of
from viaduct.migration.walk import Skipped, Walk, walk
from viaduct.scripts import notebooks

MAX_FILE_BYTES = 5_000_000
"""A larger file is taken for data and not read: parsing it would take a gigabyte."""
MAX_FILE_SECONDS = 20.0
"""Processor time that one file may take."""
MIN_SURVEY_BYTES_A_SECOND = 100_000
"""If a survey is slower than this, each file is tried alone, and those that take too long are left out."""
PARALLEL_FROM_BYTES = 300_000
"""Size of a project below which starting processes takes longer than the work."""


@dataclass(frozen=True)
class FileResult:
    """Result of migrating one file. `old` and `new` are set only if the file has a change or a finding.

    For a notebook they are its code cells joined, and `cells` has the lines at which the cells begin.
    """

    path: str
    size: int
    line_count: int
    changed: bool = False
    before: bytes = b""  # content of the file; empty if it was not changed
    after: bytes = b""
    old: str = ""
    new: str = ""
    stems: tuple[int, ...] = ()  # for each line of `new`, the line of `old` that it stems from
    findings: tuple[Finding, ...] = ()
    places: tuple[Place, ...] = ()  # entries of the ledger
    marks: frozenset[str] = frozenset()  # what it does that concerns its program: candidates_tf1, candidates_torch
    reason: str = ""  # why it was not analysed
    reason_zh: str = ""
    remedy: str = ""  # what makes it readable
    cells: tuple[tuple[int, int], ...] = ()  # (cell, its first line)
    seconds: float = 0.0  # processor time
    main: bool = False  # mentions `__main__`
    traceback: str = ""

    def why(self, language: str) -> str:
        """Return the reason in a language."""
        return self.reason_zh if language == "zh" and self.reason_zh else self.reason

    def where(self, line: int) -> str:
        """Return the file and line, as shown to the user: `train.py:12`; in a notebook `train.ipynb cell 3:2`."""
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
    added: list[FileResult] = field(default_factory=list)  # helper files of --to any: new, extended, or unchanged
    by_path: dict[str, FileResult] = field(init=False)

    def __post_init__(self) -> None:
        self.by_path = {file.path: file for file in self.files}

    @property
    def changed(self) -> list[FileResult]:
        """Files that changed."""
        return [file for file in self.files if file.changed]

    @property
    def written(self) -> list[FileResult]:
        """Files that are written: those that changed, and new ones."""
        return [*self.changed, *(file for file in self.added if file.changed)]

    @property
    def findings(self) -> list[Finding]:
        """Findings of all files."""
        return [finding for file in self.files for finding in file.findings]

    @property
    def unread(self) -> list[Skipped | FileResult]:
        """Files that were not read or not understood; they make the result incomplete.

        Paths that are left out on purpose, such as those that git ignores, are not among them.
        """
        left_out = [skipped for skipped in self.walk.skipped if not skipped.is_deliberate]
        return sorted([*left_out, *(file for file in self.files if file.reason)], key=lambda entry: entry.path)

    @property
    def by_risk(self) -> list[Finding]:
        """Findings that need manual review or are unresolved, the riskiest first."""
        unfinished = [finding for finding in self.findings if finding.status in LEFT]
        return sorted(unfinished, key=lambda finding: (RISK[finding.risk], finding.order))

    @property
    def places(self) -> list[Place]:
        """Entries of the ledger: of Python files, of other files by their findings, and of files that were not read."""
        entries = [entry for file in self.files for entry in (file.places or from_findings(file))]
        return [*entries, *(not_read(skipped) for skipped in self.unread if not has_findings(skipped))]

    def where(self, finding: Finding | Place) -> str:
        """Return the file and line of a finding, as shown to the user."""
        return self.by_path[finding.file].where(finding.line)


def from_findings(file: FileResult) -> list[Place]:
    """Return the ledger's entries of a file without any: a shell script, a requirements file, an unparsable file."""
    return [of_finding(finding) for finding in file.findings if counts(finding)]


def has_findings(path: Skipped | FileResult) -> bool:
    """Return True for a file whose findings say already why it was not read."""
    return isinstance(path, FileResult) and bool(path.findings)


def not_read(path: Skipped | FileResult) -> Place:
    """Return the ledger's entry of a file that was not read."""
    zh = path.why("zh")
    return Place("files", path.path, 1, "unresolved", path.path, path.why("en"), zh)


Progress = Callable[[int, int], None]
"""Called with the number of files that are done, and the number of all."""


def migrate_project(
    path: Path, options: Options, jobs: int = 0, command: str = "", progress: Progress | None = None
) -> Outcome:
    """Migrate a file or a folder in memory. Only what an interrupted migration has left there is written: undone."""
    began = time.perf_counter()
    found = walk_whole(path)
    leave_out(found, options.exclude)
    texts = list(read_all(found))
    options = with_entry(options, found)
    collecting = gc.isenabled()
    gc.disable()  # millions of syntax nodes, and no cycles that are worth a search
    try:
        work = Batch(dict(texts), options, neutral.plan(found, texts) if options.to == "any" else {})
        results, project = work.run(jobs, progress or (lambda done, total: None))
        if project.torch_files:
            results = gather_notes(results)
            results += list(brought_along(found, options))
            results += shell_scripts(found, options, project)
            results += settings_files(found, options)
        if not options.only and options.mode == "rewrite":
            results = with_programs(project, results, work.surveyed_texts, options)
        results, added = with_helpers(project, found, sorted(results, key=lambda file: file.path), work.surveyed_texts)
    finally:
        if collecting:
            gc.enable()
    outcome = Outcome(found.root, options, found, results, command, time.perf_counter() - began)
    outcome.frameworks = project.frameworks
    outcome.entry = options.entry or likely_entry(outcome)
    outcome.added = added
    return outcome


def with_programs(
    project: Project, results: list[FileResult], texts: dict[str, bytes], options: Options
) -> list[FileResult]:
    """Add what programs as a whole lack: import the plug-in where it is missing, and report what else is."""
    by_path = {file.path: file for file in results}
    marks = {file.path: file.marks for file in results if file.marks}
    entries = [record for file in results for record in file.places]
    is_set_outside = any(file.changed and not file.path.endswith((".py", ".ipynb")) for file in results)
    lacking: list[Place] = []
    scripts = [path for path in by_path if path.endswith((".py", ".ipynb"))]
    for path in plugin_import.scripts_without_plugin(marks, project.imports, scripts, is_set_outside):
        extended = with_plugin(by_path[path], texts, CARDS[options.to].module)
        by_path[path] = extended or by_path[path]
        marks[path] = marks.get(path, frozenset()) | {"imports plug-in"}  # or reported below, so not once more
        if extended is None:
            lacking.append(Place("plugin", path, 1, "unresolved", path, *NO_PLUGIN, is_new=True))
    for entry in [*lacking, *audit_programs(marks, project.imports, entries, is_set_outside)]:
        file = by_path[entry.file]
        by_path[entry.file] = replace(
            file, places=(*file.places, entry), findings=(entry.as_finding(), *file.findings), **texts_of(file, texts)
        )
    return list(by_path.values())


def with_plugin(file: FileResult, texts: dict[str, bytes], module: str) -> FileResult | None:
    """Return a script with the import of the card's plug-in; None where it cannot be inserted."""
    before = file.before or texts[file.path]
    made = plugin_import.insert_import(file.path, file.after or before, module)
    if made is None or file.reason:
        return None
    after, line = made
    shown = replace(file, **texts_of(file, texts))
    origin = shown.stems[line - 1]
    location, finding = plugin_import.as_changed(file.path, origin, shown.old, module)
    return replace(
        shown,
        changed=True,
        before=before,
        after=after,
        new=decode(after)[0],
        stems=(*shown.stems[:line], origin, *shown.stems[line:]),
        findings=tuple(sorted([*file.findings, finding], key=lambda finding: finding.order)),
        places=(*file.places, location),
    )


def texts_of(file: FileResult, texts: dict[str, bytes]) -> dict[str, Any]:
    """Return the fields `old`, `new` and `stems` of an unchanged file; nothing if the file has them already."""
    if file.old:
        return {}
    text = decode(texts[file.path])[0]
    return {"old": text, "new": text, "stems": tuple(range(1, len(lines_of(text)) + 1))}


def walk_whole(path: Path) -> Walk:
    """Find the files of a project, after what an interrupted migration has left in it is undone."""
    recover(path, print_progress)
    found = walk(path)
    for folder in found.interrupted:
        recover_folder(found.root / folder, print_progress)
    return walk(path) if found.interrupted else found


def print_progress(message: str) -> None:
    """Print a message to stderr."""
    print(message, file=sys.stderr)


def with_helpers(
    project: Project, found: Walk, results: list[FileResult], texts: dict[str, bytes]
) -> tuple[list[FileResult], list[FileResult]]:
    """Return the results without the helper modules of --to any, and the helper modules: new, extended or unchanged.

    A helper that its owner has changed stays; what it lacks is reported where a script uses it.
    """
    added, reported = [], {file.path: file for file in results}
    scripts = migrated_scripts(project, results, texts)
    for helper in helper_file.gather(found, project, scripts) if project.helpers else ():
        for name, path, line in helper.missing():
            reported[path] = with_finding(reported[path], texts, helper.path, name, line)
        if helper.after != helper.before or helper.path not in reported:
            added.append(of_helper(helper))
            reported.pop(helper.path, None)
    return list(reported.values()), added


def migrated_scripts(
    project: Project, results: list[FileResult], texts: dict[str, bytes]
) -> Iterator[helper_file.Script]:
    """Yield the Python files with their new texts; notebooks have the helper in a cell."""
    for file in results:
        surveyed = file.path in project.surveyed
        if file.path.endswith(".py") and (file.changed or surveyed):
            text = file.new if file.changed else decode(texts[file.path])[0]
            advised = " ".join(finding.message for finding in file.findings if finding.status != "changed")
            yield helper_file.Script(file.path, text, file.changed, advised)


def of_helper(helper: helper_file.Helper) -> FileResult:
    """Return the result of a helper file."""
    old, new = helper.before.decode(errors="replace"), helper.after.decode(errors="replace")
    size, lines, changed = len(helper.after), len(lines_of(new)), helper.after != helper.before
    stems = helper_file.stems(old, new)
    return FileResult(helper.path, size, lines, changed, helper.before, helper.after, old, new, stems)


def with_finding(file: FileResult, texts: dict[str, bytes], helper: str, name: str, line: int) -> FileResult:
    """Return a script's result with a finding: its line `line` uses a name that the changed helper does not have."""
    if not file.changed:
        text = decode(texts[file.path])[0]
        file = replace(file, old=text, new=text, stems=tuple(range(1, len(lines_of(text)) + 1)))
    origin = file.stems[line - 1]
    finding = helper_file.on_missing(helper, name, file.path, origin, lines_of(file.old)[origin - 1])
    return replace(file, findings=tuple(sorted([*file.findings, finding], key=lambda finding: finding.order)))


def read_all(found: Walk) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each script; `found.skipped` gets those that cannot be read."""
    for path in list(found.scripts):
        data = found.read(path)
        if data is not None:
            yield path, data


def with_entry(options: Options, found: Walk) -> Options:
    """Return the options with --entry as a path within the project; raise BadValue if there is no such script."""
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
    """Refuse --to any and --mode patch, which are for PyTorch, for a project without a PyTorch file."""
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
    """Take the files that --exclude names out of the migration: they are copied unchanged. Refuse to take out all."""
    for pattern in patterns:
        if not found.exclude(pattern):
            print_progress(f"Note: --exclude {pattern} matches no file of the project.")
    if patterns and not found.scripts:
        raise BadValue(
            f"--exclude {' --exclude '.join(patterns)} leaves no Python file to migrate.",
            "A pattern is that of .gitignore: docs/, export_*.py, legacy/**.",
        )


def brought_along(found: Walk, options: Options) -> Iterator[FileResult]:
    """Yield the results of requirement lists, CUDA sources and other files with findings; they are not changed."""
    from viaduct.migration.manifests import check_manifests

    for path, text, findings in check_manifests(found, options):
        count = len(lines_of(text))
        stems = tuple(range(1, count + 1))
        yield FileResult(path, len(text.encode()), count, old=text, new=text, stems=stems, findings=findings)


def shell_scripts(found: Walk, options: Options, project: Project) -> list[FileResult]:
    """Return the results of the project's shell scripts."""
    from viaduct.migration.shell import migrate_all

    return [of_text(made) for made in migrate_all(found, options, project)]


def settings_files(found: Walk, options: Options) -> list[FileResult]:
    """Return the results of the project's settings files."""
    from viaduct.migration.settings import migrate_all

    return [of_text(made) for made in migrate_all(found, options)]


def of_text(made: Migrated) -> FileResult:
    """Return the result of a file that is no Python."""
    result = of_migrated(made, made.before.decode(errors="replace"), made.after.decode(errors="replace"))
    return replace(result, size=len(made.before), line_count=len(lines_of(result.old)))


def parsable(path: str, data: bytes) -> bytes:
    """Return the Python code of a file: a notebook's cells joined; nothing of a file that is too large."""
    if len(data) > MAX_FILE_BYTES:
        return b""
    if not path.endswith(".ipynb"):
        return data
    try:
        return notebooks.read(data).text.encode()
    except notebooks.NotMigrated:
        return b""


# ---- many files


@dataclass(frozen=True)
class Batch:
    """The files of a project, and how they are migrated. Forked workers share it with the parent process."""

    texts: dict[str, bytes]
    options: Options
    helpers: dict[str, tuple[str, str]]

    @cached_property
    def surveyed_texts(self) -> dict[str, bytes]:
        """Texts that the survey reads: of a notebook its code."""
        return {path: parsable(path, data) for path, data in self.texts.items()}

    def run(self, jobs: int, progress: Progress) -> tuple[list[FileResult], Project]:
        """Migrate the files, in parts if the project is large; return the results, and the project's survey."""
        parts = split_parts(self.surveyed_texts)
        workers = min(jobs or available_cores(), len(self.texts)) if can_fork() else 1
        if len(parts) == 1:
            return self.run_whole(workers, progress)
        results: list[FileResult] = []
        outlines: list[Project] = []
        for made, outline in as_they_come(self.run_part, parts, workers):
            results += made
            outlines.append(outline)
            progress(len(results), len(self.texts))
        project = merge_outlines(outlines)
        refuse_framework(project, self.options)
        return results, project

    def run_whole(self, workers: int, progress: Progress) -> tuple[list[FileResult], Project]:
        """Survey all files together, then migrate them one by one; in several processes if they are large enough."""
        project, slow = self.survey(self.surveyed_texts)
        refuse_framework(project, self.options)
        if sum(map(len, self.texts.values())) < PARALLEL_FROM_BYTES:
            workers = 1
        # Large files first, so that the workers do not wait for one at the end.
        paths = sorted((path for path in self.texts if path not in slow), key=lambda path: -len(self.texts[path]))
        results = [too_slow(path, self.texts[path]) for path in slow]
        chunk = max(1, min(16, len(paths) // (workers * 4)))
        pieces = [paths[start : start + chunk] for start in range(0, len(paths), chunk)]
        for made in as_they_come(partial(self.run_files, project), pieces, workers):
            results += made
            progress(len(results), len(self.texts))
        return results, project

    def run_part(self, part: Part) -> tuple[list[FileResult], Project]:
        """Survey and migrate the files of one part."""
        from viaduct.migration.shell import note_options

        paths = [*part.members, *part.around]
        project, slow = self.survey({path: self.surveyed_texts[path] for path in sorted(paths)})
        results = [too_slow(path, self.texts[path]) for path in part.members if path in slow]
        results += self.run_files(project, [path for path in part.members if path not in slow])
        note_options(project)
        return results, project.outline(part.members)

    def run_files(self, project: Project, paths: list[str]) -> list[FileResult]:
        """Migrate several files of a part one after the other."""
        return [run_one(path, self.texts[path], self.options, project) for path in paths]

    def survey(self, texts: dict[str, bytes]) -> tuple[Project, set[str]]:
        """Survey files together; return the project, and the files that were left out since each takes too long."""
        slow: set[str] = set()
        allowed = MAX_FILE_SECONDS + sum(map(len, texts.values())) / MIN_SURVEY_BYTES_A_SECOND
        try:
            with limit_cpu(allowed):
                project = survey(texts.items())
        except TooSlow:
            slow = {path for path, data in texts.items() if not can_survey(path, data)}
            project = survey((path, data) for path, data in texts.items() if path not in slow)
        project.entry, project.helpers = self.options.entry, self.helpers
        return project, slow


def can_survey(path: str, data: bytes) -> bool:
    """Return True if a file can be surveyed within its time."""
    try:
        with limit_cpu(MAX_FILE_SECONDS):
            survey([(path, data)])
    except TooSlow:
        return False
    return True


Item = TypeVar("Item")
Made = TypeVar("Made")
_work: Callable[[Any], Any] | None = None


def as_they_come(work: Callable[[Item], Made], items: list[Item], workers: int) -> Iterator[Made]:
    """Do the work for each item, in several processes if there are several, and yield results as they come."""
    global _work
    if min(workers, len(items)) < 2:
        yield from map(work, items)
        return
    _work = work
    gc.freeze()  # the workers share these pages as long as nobody writes into them
    pool = ProcessPoolExecutor(
        min(workers, len(items)), mp_context=multiprocessing.get_context("fork"), initializer=leave_signals_to_parent
    )
    try:
        with sigint_blocked():
            pending = {pool.submit(work_on, item) for item in items}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        pool.shutdown()
    except BrokenProcessPool:
        raise OutOfMemory("a process of the migration was killed.", "Perhaps memory was short: try --jobs 1.") from None
    finally:
        stop_at_once(pool)
        gc.unfreeze()
        _work = None


def work_on(item: Any) -> Any:
    """Do one item in a worker process."""
    assert _work is not None
    made = _work(item)
    gc.collect()  # a tree may be held by a circle of references
    return made


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hold Ctrl-C back while workers are forked: one that is not set up yet would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent() -> None:
    """Ignore Ctrl-C in a worker: it reaches all processes of a terminal, and the parent ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stop_at_once(pool: ProcessPoolExecutor) -> None:
    """End workers that still have something to do: nobody waits for it any more."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)  # it sees that they are gone, and does not wait


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return True where worker processes can be forked."""
    return sys.platform.startswith("linux") and "fork" in multiprocessing.get_all_start_methods()


# ---- one file


def run_one(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one file and measure the processor time."""
    began = time.process_time()
    result = migrate_guarded(path, data, options, project)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return replace(
        result, size=len(data), line_count=lines, main=b"__main__" in data, seconds=time.process_time() - began
    )


def migrate_guarded(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one file within its limits. An error of viaduct in one file is reported and does not stop the others."""
    migrate: Callable[[str, bytes, Options, Project], FileResult]
    migrate = migrate_notebook if path.endswith(".ipynb") else migrate_script
    try:
        if len(data) > MAX_FILE_BYTES:
            return too_large(path, data)
        if path.endswith(".py") and neutral.is_helper(data):
            return FileResult(path, 0, 0)
        with limit_cpu(MAX_FILE_SECONDS):
            return migrate(path, data, options, project)
    except TooSlow:
        return too_slow(path, data)
    except RecursionError:
        return left_alone(path, "is nested too deeply for the parser", "嵌套过深,解析器无法处理", data)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        reason = f"viaduct failed on it ({what}); it is left as it was. Please report this"
        zh = f"viaduct 处理此文件时出错({what}),文件未改动,请反馈此问题"
        return replace(left_alone(path, reason, zh, data), traceback=traceback.format_exc())


def migrate_script(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one Python file."""
    made = migrate_bytes(path, data, options, project)
    if not made.changed and not made.findings:
        return FileResult(path, 0, 0, places=made.places, marks=made.marks)
    if made.reason:
        findings = tuple(weigh_finding(finding, data) for finding in made.findings)
        alone = FileResult(path, 0, 0, reason=made.reason, reason_zh=made.reason_zh, remedy=made.remedy)
        return replace(alone, findings=findings)
    return of_migrated(made, decode(data)[0], decode(made.after)[0])


def of_migrated(made: Migrated, old: str, new: str) -> FileResult:
    """Return the result of a file, with its texts where there is something to show."""
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
    """Migrate the code cells of a notebook."""
    try:
        notebook = notebooks.read(data)
        made = migrate_bytes(path, notebook.text.encode(), options, project)
        after = notebooks.put_back(notebook, made.after.decode()) if made.changed else b""
    except notebooks.NotMigrated as error:
        return left_alone(path, str(error), error.zh, data)
    skipped = tuple(on_skipped_cell(path, cell) for cell in notebook.skipped if cell.text)
    made = replace(
        made, findings=(*made.findings, *(skipped_file for skipped_file in skipped if skipped_file is not None))
    )
    if not made.changed and not made.findings:
        return FileResult(path, 0, 0, places=made.places, marks=made.marks)
    old, new = (notebooks.readable(notebook, text.decode()) for text in (made.before, made.after))
    cells = tuple(zip([item + 1 for item in notebook.cells], notebook.starts, strict=True))
    return replace(of_migrated(made, old, new), before=data if made.changed else b"", after=after, cells=cells)


def on_skipped_cell(path: str, cell: notebooks.Skipped) -> Finding | None:
    """Return the finding of a cell that was not analysed; None for a `%%` cell that mentions no framework."""
    concerns = any(text in cell.text.encode() for text in FRAMEWORKS)
    if cell.text.lstrip().startswith("%%") and not concerns:
        return None
    end = cell.line + cell.text.count("\n")
    said = f"{cell.reason}: migrate it by hand", f"{cell.zh}:请手工迁移"
    risk: Risk = "high" if concerns else "low"
    return Finding(path, cell.line, end, 1, "engine.unparsable", "report", "manual", *said, risk, before=cell.text)


def too_large(path: str, data: bytes) -> FileResult:
    """Return the result of a file above the size limit; it gets a finding only if it mentions a framework."""
    reason = f"has {len(data) / 1e6:.1f} MB, more than the {MAX_FILE_BYTES / 1e6:g} MB that are looked into"
    zh = f"大小为 {len(data) / 1e6:.1f} MB,超过可处理的 {MAX_FILE_BYTES / 1e6:g} MB"
    if not any(text in data for text in FRAMEWORKS):
        return FileResult(path, 0, 0, reason=f"{reason}; it mentions no framework", reason_zh=f"{zh};未提及任何框架")
    return left_alone(path, reason, zh, data)


def too_slow(path: str, data: bytes) -> FileResult:
    """Return the result of a file that took too long."""
    reason = f"takes longer than the {MAX_FILE_SECONDS:g} s that a file may take"
    zh = f"处理时间超过单个文件的上限 {MAX_FILE_SECONDS:g} 秒"
    made = left_alone(path, reason, zh, data)
    return replace(made, findings=tuple(replace(finding, status="unresolved") for finding in made.findings))


def left_alone(path: str, reason: str, zh: str, data: bytes) -> FileResult:
    """Return the result of a file that is copied as it is."""
    said = f"{reason}. It is copied as it is", f"{zh}。文件原样复制"
    finding = Finding(path, 1, 1, 1, "engine.left_alone", "report", "manual", *said, "high")
    return FileResult(path, 0, 0, findings=(weigh_finding(finding, data),), reason=reason, reason_zh=zh)


def weigh_finding(finding: Finding, data: bytes) -> Finding:
    """Return the finding, with low risk if the file mentions no framework: it hardly had to be migrated."""
    return finding if any(text in data for text in FRAMEWORKS) else replace(finding, risk="low")


def likely_entry(outcome: Outcome) -> str:
    """Return the script that is started: a script given alone, or the only changed one with `__main__`; else empty."""
    scripts = [file for file in outcome.files if not file.path.endswith(".ipynb")]
    mains = [file.path for file in scripts if outcome.walk.single or (file.changed and file.main)]
    return mains[0] if len(mains) == 1 else ""
