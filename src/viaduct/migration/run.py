"""Migrate a whole project in memory: find its files, survey all of them, then rewrite each, in several processes.

Nothing of the project is imported or run. Nothing is written, with one exception: an interrupted migration in place is
undone first.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

from viaduct.cards import CARDS
from viaduct.cards.limits import Risk
from viaduct.cores import count_cores
from viaduct.errors import BadValue
from viaduct.migration import helper_file, helper_location, other_files, plugin_import, shell
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.findings import Finding
from viaduct.migration.frameworks import TENSORFLOW, mentions_framework
from viaduct.migration.journal import recover, recover_folder
from viaduct.migration.ledger import NO_PLUGIN, Place, audit_programs
from viaduct.migration.operator_notes import merge_operator_findings
from viaduct.migration.options import Options
from viaduct.migration.parts import Part, split_parts
from viaduct.migration.processes import TooSlow, can_fork, iterate_in_processes, limit_cpu
from viaduct.migration.project import Project, merge_outlines, survey
from viaduct.migration.results import FileResult, Outcome
from viaduct.migration.rule import is_rule_wanted, rules_by_name
from viaduct.migration.source import decode, lines_of
from viaduct.migration.walk import Walk, walk
from viaduct.scripts import notebooks

MAX_FILE_BYTES = 5_000_000
"""A larger file is not parsed. Trees and tables of 5 MB of code take about 400 MB of memory."""
MAX_FILE_SECONDS = 20.0
"""Limit of the processor time for one file."""
MIN_SURVEY_BYTES_A_SECOND = 100_000
"""If a survey takes MAX_FILE_SECONDS more than at this speed, each file is surveyed alone; slow ones are left out."""
COMMANDS_RULE = "torch.launch_commands"
"""Rule that the findings about commands of a notebook name, as do those about commands of shell scripts."""
MIN_PARALLEL_BYTES = 300_000
"""In a smaller project, starting processes takes longer than the migration."""
Progress = Callable[[int, int], None]
"""Called with the number of finished files and the number of all files."""


def migrate_project(
    path: Path, options: Options, jobs: int = 0, command: str = "", progress: Progress | None = None
) -> Outcome:
    """Migrate a file or a folder in memory. `jobs`: number of processes, 0: one per core; `command`: for reports."""
    began = time.perf_counter()
    files = recover_and_walk(path)
    exclude_files(files, options.exclude)
    texts = {script: data for script in list(files.scripts) if (data := files.read(script)) is not None}
    options = resolve_entry(options, files)
    gc_was_enabled = gc.isenabled()
    gc.disable()  # a collection visits millions of syntax nodes and frees hardly anything
    try:
        batch = Batch(texts, options, helper_location.plan_helpers(files, texts.items()) if options.to == "any" else {})
        results, project = batch.run(jobs, progress or (lambda done, total: None))
        results = merge_operator_findings(results)
        if texts:
            results += map(complete_text_file, other_files.migrate_all(files, options, project))
        if not options.only and options.mode == "rewrite":
            results = audit_results(project, results, batch.surveyed_texts, options)
        results.sort(key=lambda file: file.path)
        results, added = separate_helpers(project, files, results, batch.surveyed_texts)
    finally:
        if gc_was_enabled:
            gc.enable()
    entry = options.entry or guess_entry(results, files.is_single_script)
    own = {part for path in texts for part in PurePosixPath(path).with_suffix("").parts}
    return Outcome(
        files.root,
        options,
        files,
        results,
        command,
        seconds=time.perf_counter() - began,
        entry=entry,
        frameworks=project.frameworks,
        other_packages=sorted(project.other_packages - own, key=str.lower),
        helper_files=added,
    )


def audit_results(
    project: Project, results: list[FileResult], texts: dict[str, bytes], options: Options
) -> list[FileResult]:
    """Insert the plug-in's import into programs that lack it, and report other requirements that a program lacks."""
    by_path = {file.path: file for file in results}
    marks = {file.path: file.marks for file in results if file.marks}
    places = [place for file in results for place in file.places]
    scripts = [path for path in by_path if path.endswith((".py", ".ipynb"))]
    # A shell script or settings file was changed, so the card may be named there.
    is_set_outside = any(file.changed and file.path not in scripts for file in results)
    lacking: list[Place] = []
    for path in plugin_import.find_scripts_without_plugin(marks, project.imports, scripts, is_set_outside):
        extended = insert_plugin(by_path[path], texts, CARDS[options.to].plugin)
        by_path[path] = extended or by_path[path]
        # Set even if the insertion failed: it is reported here, and audit_programs would report it again.
        marks[path] = marks.get(path, frozenset()) | {"imports plug-in"}
        if extended is None:
            lacking.append(Place("plugin", path, 1, "unresolved", path, *NO_PLUGIN, is_unreported=True))
    for place in [*lacking, *audit_programs(marks, project.imports, places, is_set_outside)]:
        file = fill_texts(by_path[place.file], texts)
        findings = (place.make_finding(), *file.findings)
        by_path[place.file] = replace(file, places=(*file.counted_places, place), findings=findings)
    return list(by_path.values())


def insert_plugin(file: FileResult, texts: dict[str, bytes], module: str) -> FileResult | None:
    """Return a script with the import of the card's plug-in; None where it cannot be inserted."""
    before = file.before or texts[file.path]
    inserted = plugin_import.insert_import(file.path, file.after or before, module)
    if inserted is None or file.unread_reason:
        return None
    after, line = inserted
    file = fill_texts(file, texts)
    origin = file.original_lines[line - 1]
    return replace(
        file.add_findings([plugin_import.describe_insertion(file.path, origin, file.old_text, module)]),
        before=before,
        after=after,
        new_text=decode(after)[0],
        original_lines=(*file.original_lines[:line], origin, *file.original_lines[line:]),
    )


def fill_texts(file: FileResult, texts: dict[str, bytes]) -> FileResult:
    """Fill in `old_text`, `new_text` and `original_lines`: they are empty for an unchanged file without findings."""
    if file.old_text:
        return file
    text = decode(texts[file.path])[0]
    return replace(file, old_text=text, new_text=text, original_lines=tuple(range(1, len(lines_of(text)) + 1)))


def recover_and_walk(path: Path) -> Walk:
    """Undo interrupted migrations in a project, then find its files."""
    recover(path, print_progress)
    files = walk(path)
    for folder in files.interrupted_folders:
        recover_folder(files.root / folder, print_progress)
    return walk(path) if files.interrupted_folders else files


def print_progress(message: str) -> None:
    print(message, file=sys.stderr)


def separate_helpers(
    project: Project, files: Walk, results: list[FileResult], texts: dict[str, bytes]
) -> tuple[list[FileResult], list[FileResult]]:
    """Return the results of the project's other files, and those of helper modules of --to any.

    A helper that is among the project's files and needs no change counts as one of its other files. One that the user
    has edited is not overwritten; a member that it lacks is reported where a script uses it.
    """
    helpers, by_path = [], {file.path: file for file in results}
    # Notebooks contain the helper in a cell. The texts of unchanged scripts without findings are empty.
    scripts = (
        file if file.changed else fill_texts(file, texts)
        for file in results
        if file.path.endswith(".py") and (file.changed or file.path in project.surveyed)
    )
    for helper in helper_file.collect_helpers(files, project, scripts) if project.helpers else ():
        for name, path, line in helper.find_missing():
            file = fill_texts(by_path[path], texts)
            origin = file.original_lines[line - 1]
            text = lines_of(file.old_text)[origin - 1]
            finding = helper_file.report_missing_member(helper.path, name, path, origin, text)
            by_path[path] = file.add_findings([finding])
        if helper.after != helper.before or helper.path not in by_path:
            helpers.append(make_helper_result(helper))
            by_path.pop(helper.path, None)
    return list(by_path.values()), helpers


def make_helper_result(helper: helper_file.Helper) -> FileResult:
    before, after = helper.before, helper.after
    old, new = before.decode(errors="replace"), after.decode(errors="replace")
    lines, count = helper_file.map_lines(old, new), len(lines_of(new))
    texts = FileResult(helper.path, before, after, old_text=old, new_text=new, original_lines=lines)
    return replace(texts, size=len(after), line_count=count)


def resolve_entry(options: Options, files: Walk) -> Options:
    """Return the options with --entry as a path within the project; raise BadValue if there is no such script."""
    if not options.entry:
        return options
    entry_path = Path(options.entry)
    candidates = [entry_path.as_posix()]
    if entry_path.exists():
        candidates.append(Path(os.path.relpath(entry_path.resolve(), files.root.resolve())).as_posix())
    for candidate in candidates:
        if candidate in files.scripts:
            return replace(options, entry=candidate)
    raise BadValue(f"--entry {options.entry}: the project has no such script.", "Give its path within the project.")


def refuse_framework(project: Project, options: Options) -> None:
    """Raise BadValue in a project without a PyTorch file for --mode patch, and for --to any if it uses TensorFlow."""
    if project.torch_files:
        return
    using = sorted(path for path, frameworks in project.frameworks.items() if TENSORFLOW in frameworks)
    if options.to == "any" and using:
        raise BadValue(
            f"--to any cannot be done for TensorFlow 1 ({using[0]} imports it).",
            "It has no device-neutral API: the NPU wants its own run configuration, estimator and session options,",
            "and the MLU its own build of TensorFlow. Give --to npu or --to mlu.",
        )
    if options.mode == "patch":
        raise BadValue(
            "--mode patch is for PyTorch, and no script was found that imports it.",
            "TensorFlow 1 has no such patch: leave --mode out.",
        )


def exclude_files(files: Walk, patterns: tuple[str, ...]) -> None:
    """Exclude the files that --exclude names; raise BadValue if no script is left."""
    for pattern in patterns:
        if not files.exclude(pattern):
            print_progress(f"Note: --exclude {pattern} matches no further file of the project.")
    if patterns and not files.scripts:
        raise BadValue(
            f"--exclude {' --exclude '.join(patterns)} leaves no Python file to migrate.",
            "A pattern is that of .gitignore: docs/, export_*.py, legacy/**.",
        )


def complete_text_file(file: FileResult) -> FileResult:
    """Complete the result of a file that is neither Python nor a notebook. Its migration keeps the number of lines."""
    old, new = (data.decode(errors="replace") for data in (file.before, file.after))
    count = len(lines_of(old))
    numbered = replace(file, size=len(file.before), line_count=count, original_lines=tuple(range(1, count + 1)))
    return complete_result(numbered, old, new)


def extract_code(path: str, data: bytes) -> bytes:
    """Return the bytes of a script, or the code of a notebook's cells; empty for a large file or damaged notebook."""
    if len(data) > MAX_FILE_BYTES:
        return b""
    if not path.endswith(".ipynb"):
        return data
    try:
        return notebooks.parse_notebook(data).text.encode()
    except notebooks.NotebookError:
        return b""


# ---- many files


@dataclass(frozen=True)
class Batch:
    """The files of a project and the options. Forked workers share it with the parent process."""

    texts: dict[str, bytes]
    options: Options
    helpers: dict[str, tuple[str, str]]  # see Project.helpers

    @cached_property
    def surveyed_texts(self) -> dict[str, bytes]:
        """Path -> code to survey: of a notebook that of its cells, b"" for a file that is not analysed."""
        return {path: extract_code(path, data) for path, data in self.texts.items()}

    def run(self, jobs: int, progress: Progress) -> tuple[list[FileResult], Project]:
        """Migrate the files in `jobs` processes, 0: one per core; return the results and the project's survey.

        A large project is migrated in parts; the returned survey is then an outline.
        """
        parts = split_parts(self.surveyed_texts)
        workers = min(jobs or count_cores(), len(self.texts)) if can_fork() else 1
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
        """Survey all files together, then migrate each; in several processes if the project is large enough."""
        project, slow = self.survey(self.surveyed_texts)
        refuse_framework(project, self.options)
        if sum(map(len, self.texts.values())) < MIN_PARALLEL_BYTES:
            workers = 1
        # Large files first, so that no worker is still busy with one when the others have finished.
        paths = sorted((path for path in self.texts if path not in slow), key=lambda path: -len(self.texts[path]))
        results = [make_too_slow_result(path, self.texts[path]) for path in slow]
        chunk = max(1, min(16, len(paths) // (workers * 4)))  # at least four chunks for each worker
        pieces = [paths[start : start + chunk] for start in range(0, len(paths), chunk)]
        for piece_results in iterate_in_processes(partial(self.run_files, project), pieces, workers):
            results += piece_results
            progress(len(results), len(self.texts))
        return results, project

    def run_part(self, part: Part) -> tuple[list[FileResult], Project]:
        """Survey the members of a part and the files around it; migrate the members."""
        paths = [*part.members, *part.around]
        project, slow = self.survey({path: self.surveyed_texts[path] for path in sorted(paths)})
        results = [make_too_slow_result(path, self.texts[path]) for path in part.members if path in slow]
        results += self.run_files(project, [path for path in part.members if path not in slow])
        shell.record_options(project)
        return results, project.outline(part.members)

    def run_files(self, project: Project, paths: list[str]) -> list[FileResult]:
        return [migrate_one(path, self.texts[path], self.options, project) for path in paths]

    def survey(self, texts: dict[str, bytes]) -> tuple[Project, set[str]]:
        """Survey files together; return the project, and the files that were left out because they take too long."""
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


# ---- one file


def migrate_one(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one file and measure the processor time."""
    began = time.process_time()
    result = migrate_guarded(path, data, options, project)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return replace(
        result, size=len(data), line_count=lines, mentions_main=b"__main__" in data, seconds=time.process_time() - began
    )


def migrate_guarded(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    """Migrate one file within its limits. A failure of viaduct is reported as a finding; other files are migrated."""
    try:
        if len(data) > MAX_FILE_BYTES:
            return make_too_large_result(path, data)
        if path.endswith(".py") and helper_location.is_helper(data):
            return FileResult(path)
        with limit_cpu(MAX_FILE_SECONDS):
            migrate = migrate_notebook if path.endswith(".ipynb") else migrate_script
            return migrate(path, data, options, project)
    except TooSlow:
        return make_too_slow_result(path, data)
    except RecursionError:
        return make_left_alone_result(path, "is nested too deeply to be analysed", "嵌套过深,无法分析", data)
    except Exception as error:
        description = f"{type(error).__name__}: {error}"
        reason = f"viaduct failed on it ({description}); it is left as it was. Please report this"
        zh = f"viaduct 处理此文件时出错({description}),文件未改动,请反馈此问题"
        return replace(make_left_alone_result(path, reason, zh, data), traceback=traceback.format_exc())


def migrate_script(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    result = migrate_bytes(path, data, options, project)
    if result.unread_reason:
        findings = tuple(lower_risk(finding, data) for finding in result.findings)
        return replace(result, before=b"", after=b"", findings=findings)
    return complete_result(result, decode(data)[0], decode(result.after)[0])


def complete_result(result: FileResult, old: str, new: str) -> FileResult:
    """Return the result with the texts that an `Outcome` needs and without the others, which no worker has to send.

    `old` and `new`: the text before and after, or the code of a notebook.
    """
    if result.changed:
        return replace(result, old_text=old, new_text=new)
    result = replace(result, before=b"", after=b"")
    return replace(result, old_text=old, new_text=new) if result.findings else replace(result, original_lines=())


def migrate_notebook(path: str, data: bytes, options: Options, project: Project) -> FileResult:
    try:
        notebook = notebooks.parse_notebook(data)
        result = migrate_bytes(path, notebook.text.encode(), options, project)
        after = notebooks.restore_cells(notebook, result.after.decode()) if result.changed else b""
    except notebooks.NotebookError as error:
        return make_left_alone_result(path, str(error), error.zh, data)
    skipped = (report_skipped_cell(path, cell) for cell in notebook.skipped if cell.text)
    result = result.add_findings(finding for finding in skipped if finding)
    if project.torch_files and is_rule_wanted(COMMANDS_RULE, options):
        result = result.add_findings(report_commands(path, notebook))
    old, new = (notebooks.restore_magics(notebook, text.decode()) for text in (result.before, result.after))
    cells = tuple(zip([number + 1 for number in notebook.cells], notebook.starts, strict=True))
    result = replace(complete_result(result, old, new), cells=cells)
    return replace(result, before=data, after=after) if result.changed else result


def report_skipped_cell(path: str, cell: notebooks.SkippedCell) -> Finding | None:
    """Return the finding for a cell that was not analysed; None for a `%%` cell without framework, CUDA and NCCL."""
    is_relevant = mentions_framework(cell.text.encode()) or shell.CUDA_IN_COMMAND.search(cell.text) is not None
    if cell.text.lstrip().startswith("%%") and not is_relevant:
        return None
    end = cell.line + cell.text.count("\n")
    messages = f"{cell.reason}: migrate it by hand", f"{cell.zh}:请手工迁移"
    risk: Risk = "high" if is_relevant else "low"
    return Finding(path, cell.line, end, 1, "engine.unparsable", "report", "manual", *messages, risk, before=cell.text)


def report_commands(path: str, notebook: notebooks.Notebook) -> Iterator[Finding]:
    """Yield a finding for each IPython line that names CUDA or NCCL, such as `!python train.py --device cuda`.

    Cells that were not analysed are reported as a whole (`report_skipped_cell`).
    """
    skipped = {cell.line + offset for cell in notebook.skipped for offset in range(cell.text.count("\n") + 1)}
    for line, text in enumerate(notebook.text.split("\n"), 1):
        match = notebook.placeholder.match(text) if line not in skipped else None
        command = notebook.originals[int(match["number"])] if match else ""
        if shell.CUDA_IN_COMMAND.search(command):
            yield Finding(
                *(path, line, line, 1, COMMANDS_RULE, rules_by_name()[COMMANDS_RULE].category, "manual"),
                "commands of a notebook are not migrated, and this one names CUDA or NCCL: adapt it to the device",
                "notebook 中的命令不会被迁移,而此命令提到 CUDA 或 NCCL:请按目标设备修改",
                before=command,
            )


def make_too_large_result(path: str, data: bytes) -> FileResult:
    """Return the result of a file above the size limit; it gets a finding only if it mentions a framework."""
    reason = f"has {len(data) / 1e6:.1f} MB, more than the {MAX_FILE_BYTES / 1e6:g} MB that are analysed"
    zh = f"大小为 {len(data) / 1e6:.1f} MB,超过可处理的 {MAX_FILE_BYTES / 1e6:g} MB"
    if not mentions_framework(data):
        return FileResult(
            path, unread_reason=f"{reason}; it mentions no framework", unread_reason_zh=f"{zh};未提及任何框架"
        )
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
    return FileResult(path, findings=(lower_risk(finding, data),), unread_reason=reason, unread_reason_zh=zh)


def lower_risk(finding: Finding, data: bytes) -> Finding:
    """Return the finding, with low risk if the file mentions no framework and so hardly needs a migration."""
    return finding if mentions_framework(data) else replace(finding, risk="low")


def guess_entry(results: list[FileResult], is_single: bool) -> str:
    """Return the script that is presumably started: the only one, or the only changed one with `__main__`; else ""."""
    scripts = [file for file in results if not file.path.endswith(".ipynb")]
    mains = [file.path for file in scripts if is_single or (file.changed and file.mentions_main)]
    return mains[0] if len(mains) == 1 else ""
