"""Migrate a whole project in memory: find its files, survey all of them, then rewrite each, in several processes.

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
from viaduct.migration.candidates import Mark
from viaduct.migration.engine import Migrated, migrate_bytes
from viaduct.migration.findings import RISK_ORDER, UNFINISHED_STATUSES, Finding
from viaduct.migration.frameworks import TENSORFLOW, mentions_framework
from viaduct.migration.journal import recover, recover_folder
from viaduct.migration.ledger import NO_PLUGIN, Place, audit_programs, is_counted, make_place_of_finding
from viaduct.migration.limits import TooSlow, limit_cpu
from viaduct.migration.operator_notes import gather_notes
from viaduct.migration.options import Options
from viaduct.migration.parts import Part, split_parts
from viaduct.migration.project import Project, merge_outlines, survey
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
    """Result of migrating one file."""

    path: str
    size: int = 0  # bytes
    line_count: int = 0
    changed: bool = False
    before: bytes = b""  # content of the file, and what it becomes; empty if it was not changed
    after: bytes = b""
    old: str = ""  # the same as text, of a notebook its code cells joined; only with a change or a finding
    new: str = ""
    stems: tuple[int, ...] = ()  # for each line of `new`, the line of `old` that it stems from
    findings: tuple[Finding, ...] = ()
    places: tuple[Place, ...] = ()  # entries of the ledger: what each requirement of the target concerns (ledger.py)
    marks: frozenset[Mark] = frozenset()  # what the file does that matters for other files of its program
    reason: str = ""  # why it was not analysed; empty if it was
    reason_zh: str = ""
    remedy: str = ""  # what the user can do about it
    cells: tuple[tuple[int, int], ...] = ()  # of a notebook: number of each code cell, its first line in `old`
    seconds: float = 0.0  # processor time
    mentions_main: bool = False  # contains `__main__`
    traceback: str = ""  # of an exception that viaduct raised on the file

    def why(self, language: str) -> str:
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
    entry: str = ""  # the script that is started; empty if that is not known
    frameworks: dict[str, frozenset[str]] = field(default_factory=dict)  # see Project
    added: list[FileResult] = field(default_factory=list)  # helper files of --to any: new, extended, or unchanged
    by_path: dict[str, FileResult] = field(init=False)

    def __post_init__(self) -> None:
        self.by_path = {file.path: file for file in self.files}

    @property
    def changed(self) -> list[FileResult]:
        return [file for file in self.files if file.changed]

    @property
    def written(self) -> list[FileResult]:
        """Files that are written: those that changed, and new ones."""
        return [*self.changed, *(file for file in self.added if file.changed)]

    @property
    def findings(self) -> list[Finding]:
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
        unfinished = [finding for finding in self.findings if finding.status in UNFINISHED_STATUSES]
        return sorted(unfinished, key=lambda finding: (RISK_ORDER[finding.risk], finding.order))

    @property
    def places(self) -> list[Place]:
        """Entries of the ledger. A file without any of its own, such as a shell script, has those of its findings.

        What was not read has one entry, unless a finding says so.
        """
        places = [
            place
            for file in self.files
            for place in file.places
            or [make_place_of_finding(finding) for finding in file.findings if is_counted(finding)]
        ]
        for path in self.unread:
            if not (isinstance(path, FileResult) and path.findings):
                reasons = path.why("en"), path.why("zh")
                places.append(Place("files", path.path, 1, "unresolved", path.path, *reasons))
        return places

    def where(self, finding: Finding | Place) -> str:
        """Return the file and line of a finding, as shown to the user."""
        return self.by_path[finding.file].where(finding.line)


Progress = Callable[[int, int], None]
"""Called with the number of files that are done, and the number of all."""


def migrate_project(
    path: Path, options: Options, jobs: int = 0, command: str = "", progress: Progress | None = None
) -> Outcome:
    """Migrate a file or a folder in memory; on the disk only an interrupted migration in place is undone.

    `jobs`: number of processes, 0 for one a core; `command`: the command line, for the reports.
    """
    from viaduct.migration import manifests, settings, shell

    began = time.perf_counter()
    found = recover_and_walk(path)
    leave_out(found, options.exclude)
    texts = {script: data for script in list(found.scripts) if (data := found.read(script)) is not None}
    options = with_entry(options, found)
    collecting = gc.isenabled()
    gc.disable()  # it would search millions of syntax nodes, which form hardly any cycles
    try:
        batch = Batch(texts, options, neutral.plan_helpers(found, texts.items()) if options.to == "any" else {})
        results, project = batch.run(jobs, progress or (lambda done, total: None))
        if project.torch_files:  # other kinds of files are migrated only in a PyTorch project
            results = gather_notes(results)
            results += [make_manifest_result(*manifest) for manifest in manifests.check_manifests(found, options)]
            results += [make_text_result(migrated) for migrated in shell.migrate_all(found, options, project)]
            results += [make_text_result(migrated) for migrated in settings.migrate_all(found, options)]
        if not options.only and options.mode == "rewrite":
            results = audit_results(project, results, batch.surveyed_texts, options)
        results.sort(key=lambda file: file.path)
        results, added = separate_helpers(project, found, results, batch.surveyed_texts)
    finally:
        if collecting:
            gc.enable()
    outcome = Outcome(found.root, options, found, results, command, time.perf_counter() - began)
    outcome.frameworks = project.frameworks
    outcome.entry = options.entry or likely_entry(outcome)
    outcome.added = added
    return outcome


def audit_results(
    project: Project, results: list[FileResult], texts: dict[str, bytes], options: Options
) -> list[FileResult]:
    """Insert the plug-in's import into programs that lack it, and report what else a program as a whole lacks."""
    by_path = {file.path: file for file in results}
    marks = {file.path: file.marks for file in results if file.marks}
    places = [place for file in results for place in file.places]
    scripts = [path for path in by_path if path.endswith((".py", ".ipynb"))]
    # A shell script or settings file was changed, so the card may be named there.
    is_set_outside = any(file.changed and file.path not in scripts for file in results)
    lacking: list[Place] = []
    for path in plugin_import.find_scripts_without_plugin(marks, project.imports, scripts, is_set_outside):
        extended = insert_plugin(by_path[path], texts, CARDS[options.to].module)
        by_path[path] = extended or by_path[path]
        marks[path] = marks.get(path, frozenset()) | {
            "imports plug-in"
        }  # so that audit_programs does not report it too
        if extended is None:
            lacking.append(Place("plugin", path, 1, "unresolved", path, *NO_PLUGIN, is_new=True))
    for place in [*lacking, *audit_programs(marks, project.imports, places, is_set_outside)]:
        file = with_texts(by_path[place.file], texts)
        by_path[place.file] = replace(file, places=(*file.places, place), findings=(place.as_finding(), *file.findings))
    return list(by_path.values())


def insert_plugin(file: FileResult, texts: dict[str, bytes], module: str) -> FileResult | None:
    """Return a script with the import of the card's plug-in; None where it cannot be inserted."""
    before = file.before or texts[file.path]
    inserted = plugin_import.insert_import(file.path, file.after or before, module)
    if inserted is None or file.reason:
        return None
    after, line = inserted
    file = with_texts(file, texts)
    origin = file.stems[line - 1]
    place, finding = plugin_import.describe_insertion(file.path, origin, file.old, module)
    return replace(
        with_finding(file, finding),
        changed=True,
        before=before,
        after=after,
        new=decode(after)[0],
        stems=(*file.stems[:line], origin, *file.stems[line:]),
        places=(*file.places, place),
    )


def with_texts(file: FileResult, texts: dict[str, bytes]) -> FileResult:
    """Return the result with `old`, `new` and `stems`, which an unchanged file without findings does not have."""
    if file.old:
        return file
    text = decode(texts[file.path])[0]
    return replace(file, old=text, new=text, stems=tuple(range(1, len(lines_of(text)) + 1)))


def with_finding(file: FileResult, finding: Finding) -> FileResult:
    return replace(file, findings=tuple(sorted([*file.findings, finding], key=lambda finding: finding.order)))


def recover_and_walk(path: Path) -> Walk:
    """Undo what an interrupted migration has left in a project, then find its files."""
    recover(path, print_progress)
    found = walk(path)
    for folder in found.interrupted:
        recover_folder(found.root / folder, print_progress)
    return walk(path) if found.interrupted else found


def print_progress(message: str) -> None:
    print(message, file=sys.stderr)


def separate_helpers(
    project: Project, found: Walk, results: list[FileResult], texts: dict[str, bytes]
) -> tuple[list[FileResult], list[FileResult]]:
    """Return the results without the helper modules of --to any, and those of the helper modules.

    A helper that its owner has changed stays; what it lacks is reported where a script uses it.
    """
    helpers, by_path = [], {file.path: file for file in results}
    scripts = migrated_scripts(project, results, texts)
    for helper in helper_file.collect_helpers(found, project, scripts) if project.helpers else ():
        for name, path, line in helper.missing():
            file = with_texts(by_path[path], texts)
            origin = file.stems[line - 1]
            text = lines_of(file.old)[origin - 1]
            by_path[path] = with_finding(file, helper_file.report_missing_member(helper.path, name, path, origin, text))
        if helper.after != helper.before or helper.path not in by_path:
            helpers.append(make_helper_result(helper))
            by_path.pop(helper.path, None)
    return list(by_path.values()), helpers


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


def make_helper_result(helper: helper_file.Helper) -> FileResult:
    old, new = helper.before.decode(errors="replace"), helper.after.decode(errors="replace")
    size, lines, changed = len(helper.after), len(lines_of(new)), helper.after != helper.before
    stems = helper_file.map_lines(old, new)
    return FileResult(helper.path, size, lines, changed, helper.before, helper.after, old, new, stems)


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


def make_manifest_result(path: str, text: str, findings: tuple[Finding, ...]) -> FileResult:
    """Return the result of a requirements list, a CUDA source or another file with findings; it is not changed."""
    count = len(lines_of(text))
    stems = tuple(range(1, count + 1))
    return FileResult(path, len(text.encode()), count, old=text, new=text, stems=stems, findings=findings)


def make_text_result(migrated: Migrated) -> FileResult:
    old, new = (data.decode(errors="replace") for data in (migrated.before, migrated.after))
    return replace(make_result(migrated, old, new), size=len(migrated.before), line_count=len(lines_of(old)))


def python_text(path: str, data: bytes) -> bytes:
    """Return the Python code of a file, of a notebook its code cells joined; empty if it is too large or damaged."""
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
    helpers: dict[str, tuple[str, str]]  # see Project.helpers

    @cached_property
    def surveyed_texts(self) -> dict[str, bytes]:
        """Texts that the survey reads: of a notebook its code."""
        return {path: python_text(path, data) for path, data in self.texts.items()}

    def run(self, jobs: int, progress: Progress) -> tuple[list[FileResult], Project]:
        """Migrate the files in `jobs` processes, 0 for one a core; return the results, and the project's survey.

        Of a large project, which is migrated in parts, the survey is an outline.
        """
        parts = split_parts(self.surveyed_texts)
        workers = min(jobs or usable_cores(), len(self.texts)) if can_fork() else 1
        if len(parts) == 1:
            return self.run_whole(workers, progress)
        results: list[FileResult] = []
        outlines: list[Project] = []
        for part_results, outline in iterate_in_processes(self.run_part, parts, workers):
            results += part_results
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
        results = [make_too_slow_result(path, self.texts[path]) for path in slow]
        chunk = max(1, min(16, len(paths) // (workers * 4)))
        pieces = [paths[start : start + chunk] for start in range(0, len(paths), chunk)]
        for piece_results in iterate_in_processes(partial(self.run_files, project), pieces, workers):
            results += piece_results
            progress(len(results), len(self.texts))
        return results, project

    def run_part(self, part: Part) -> tuple[list[FileResult], Project]:
        """Survey the files of one part and those around it; migrate the part's own."""
        from viaduct.migration.shell import note_options

        paths = [*part.members, *part.around]
        project, slow = self.survey({path: self.surveyed_texts[path] for path in sorted(paths)})
        results = [make_too_slow_result(path, self.texts[path]) for path in part.members if path in slow]
        results += self.run_files(project, [path for path in part.members if path not in slow])
        note_options(project)
        return results, project.outline(part.members)

    def run_files(self, project: Project, paths: list[str]) -> list[FileResult]:
        return [run_one(path, self.texts[path], self.options, project) for path in paths]

    def survey(self, texts: dict[str, bytes]) -> tuple[Project, set[str]]:
        """Survey files together; return the project, and the files that were left out as each alone takes too long."""
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
Result = TypeVar("Result")
_work: Callable[[Any], Any] | None = None
"""The function that forked workers call: what it is bound to (texts, survey) is in their memory without pickling."""


def iterate_in_processes(work: Callable[[Item], Result], items: list[Item], workers: int) -> Iterator[Result]:
    """Call a function for each item, in several processes if `workers` allows, and yield results as they come."""
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
    """Call the function for one item in a worker process."""
    assert _work is not None
    result = _work(item)
    gc.collect()  # a cycle of references may keep a tree
    return result


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
    """Kill workers that are still working; after a normal end there are none."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)  # it sees that they are gone, and does not wait


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    return sys.platform.startswith("linux") and "fork" in multiprocessing.get_all_start_methods()


# ---- one file


def run_one(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one file and measure the processor time."""
    began = time.process_time()
    result = migrate_guarded(path, data, options, project)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return replace(
        result, size=len(data), line_count=lines, mentions_main=b"__main__" in data, seconds=time.process_time() - began
    )


def migrate_guarded(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one file within its limits. An error of viaduct in one file is reported and does not stop the others."""
    try:
        if len(data) > MAX_FILE_BYTES:
            return make_too_large_result(path, data)
        if path.endswith(".py") and neutral.is_helper(data):
            return FileResult(path)
        with limit_cpu(MAX_FILE_SECONDS):
            migrate = migrate_notebook if path.endswith(".ipynb") else migrate_script
            return migrate(path, data, options, project)
    except TooSlow:
        return make_too_slow_result(path, data)
    except RecursionError:
        return make_left_alone_result(path, "is nested too deeply for the parser", "嵌套过深,解析器无法处理", data)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        reason = f"viaduct failed on it ({what}); it is left as it was. Please report this"
        zh = f"viaduct 处理此文件时出错({what}),文件未改动,请反馈此问题"
        return replace(make_left_alone_result(path, reason, zh, data), traceback=traceback.format_exc())


def migrate_script(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    migrated = migrate_bytes(path, data, options, project)
    if not migrated.changed and not migrated.findings:
        return FileResult(path, places=migrated.places, marks=migrated.marks)
    if migrated.reason:
        findings = tuple(weigh_finding(finding, data) for finding in migrated.findings)
        unread = FileResult(path, reason=migrated.reason, reason_zh=migrated.reason_zh, remedy=migrated.remedy)
        return replace(unread, findings=findings)
    return make_result(migrated, decode(data)[0], decode(migrated.after)[0])


def make_result(migrated: Migrated, old: str, new: str) -> FileResult:
    """Return the result of a file. `old` and `new`: its texts, of a notebook its code cells joined."""
    return FileResult(
        migrated.path,
        changed=migrated.changed,
        before=migrated.before if migrated.changed else b"",
        after=migrated.after if migrated.changed else b"",
        old=old,
        new=new,
        stems=migrated.lines,
        findings=migrated.findings,
        places=migrated.places,
        marks=migrated.marks,
        reason=migrated.reason,
        reason_zh=migrated.reason_zh,
    )


def migrate_notebook(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    try:
        notebook = notebooks.read(data)
        migrated = migrate_bytes(path, notebook.text.encode(), options, project)
        after = notebooks.restore_cells(notebook, migrated.after.decode()) if migrated.changed else b""
    except notebooks.NotMigrated as error:
        return make_left_alone_result(path, str(error), error.zh, data)
    skipped = (report_skipped_cell(path, cell) for cell in notebook.skipped if cell.text)
    migrated = replace(migrated, findings=(*migrated.findings, *(finding for finding in skipped if finding)))
    if not migrated.changed and not migrated.findings:
        return FileResult(path, places=migrated.places, marks=migrated.marks)
    old, new = (notebooks.restore_magics(notebook, text.decode()) for text in (migrated.before, migrated.after))
    cells = tuple(zip([number + 1 for number in notebook.cells], notebook.starts, strict=True))
    result = replace(make_result(migrated, old, new), cells=cells)
    return replace(result, before=data, after=after) if migrated.changed else result


def report_skipped_cell(path: str, cell: notebooks.Skipped) -> Finding | None:
    """Return the finding of a cell that was not analysed; None for a `%%` cell that mentions no framework."""
    concerns = mentions_framework(cell.text.encode())
    if cell.text.lstrip().startswith("%%") and not concerns:
        return None
    end = cell.line + cell.text.count("\n")
    messages = f"{cell.reason}: migrate it by hand", f"{cell.zh}:请手工迁移"
    risk: Risk = "high" if concerns else "low"
    return Finding(path, cell.line, end, 1, "engine.unparsable", "report", "manual", *messages, risk, before=cell.text)


def make_too_large_result(path: str, data: bytes) -> FileResult:
    """Return the result of a file above the size limit; it gets a finding only if it mentions a framework."""
    reason = f"has {len(data) / 1e6:.1f} MB, more than the {MAX_FILE_BYTES / 1e6:g} MB that are looked into"
    zh = f"大小为 {len(data) / 1e6:.1f} MB,超过可处理的 {MAX_FILE_BYTES / 1e6:g} MB"
    if not mentions_framework(data):
        return FileResult(path, reason=f"{reason}; it mentions no framework", reason_zh=f"{zh};未提及任何框架")
    return make_left_alone_result(path, reason, zh, data)


def make_too_slow_result(path: str, data: bytes) -> FileResult:
    reason = f"takes longer than the {MAX_FILE_SECONDS:g} s that a file may take"
    zh = f"处理时间超过单个文件的上限 {MAX_FILE_SECONDS:g} 秒"
    result = make_left_alone_result(path, reason, zh, data)
    return replace(result, findings=tuple(replace(finding, status="unresolved") for finding in result.findings))


def make_left_alone_result(path: str, reason: str, zh: str, data: bytes) -> FileResult:
    """Return the result of a file that could not be analysed and is copied as it is."""
    messages = f"{reason}. It is copied as it is", f"{zh}。文件原样复制"
    finding = Finding(path, 1, 1, 1, "engine.left_alone", "report", "manual", *messages, "high")
    return FileResult(path, findings=(weigh_finding(finding, data),), reason=reason, reason_zh=zh)


def weigh_finding(finding: Finding, data: bytes) -> Finding:
    """Return the finding, with low risk if the file mentions no framework: such a file rarely needs a migration."""
    return finding if mentions_framework(data) else replace(finding, risk="low")


def likely_entry(outcome: Outcome) -> str:
    """Return the script that is probably started: one given alone, or the only changed one with `__main__`; else ""."""
    scripts = [file for file in outcome.files if not file.path.endswith(".ipynb")]
    mains = [file.path for file in scripts if outcome.walk.single or (file.changed and file.mentions_main)]
    return mains[0] if len(mains) == 1 else ""
