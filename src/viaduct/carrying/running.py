"""The runs of a carry: each is a rehearsal in a separate process and folder, with the same seed.

The perturbed run executes the original after moving its weights by one unit in the last place. It measures how much the
script amplifies rounding. Its name, also of its folder and in carry.json, is "shaken".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from viaduct.carrying import coverage
from viaduct.carrying.executed_files import ExecutedFiles, read_executed_files
from viaduct.carrying.observations import Observations, read_observations
from viaduct.carrying.output_capture import capture_output
from viaduct.carrying.output_folder import RUNS_FOLDER
from viaduct.carrying.request import Request
from viaduct.carrying.sides import SIDE_NAMES, Side, Sides
from viaduct.errors import BadValue, ViaductError
from viaduct.rehearsal import project, tf1_stage
from viaduct.rehearsal.files import choose_file_view, set_record_folder
from viaduct.rehearsal.own_launch import find_launch_line
from viaduct.rehearsal.plan import FrameworkName, Plan
from viaduct.rehearsal.process import rehearse
from viaduct.rehearsal.stage import refuse_old_torch
from viaduct.rehearsal.step_at import STEP_AT_FLAG, find_step_end, parse_step_end
from viaduct.rehearsal.summary import Summary, describe_summary
from viaduct.scripts.notebook_runs import is_notebook

RunName = Literal["original", "migrated", "shaken", "reference"]  # also the names of the folders in OUT/runs
OUTPUT_FILE = "output.txt"
# A frame in a printed traceback: its file and line.
TRACEBACK_FRAME = re.compile(r'^\s*(?:\[rank \d+\] )?\s*File "([^"]+)", line (\d+)', re.MULTILINE)
LABELS: dict[RunName, str] = {  # at the beginning of each line that the run prints
    "original": "original",
    "migrated": "migrated",
    "shaken": "original, weights perturbed",
    "reference": "original, intended changes",
}
MAX_OUTPUT_LINES = 60  # last lines of the output that the page shows


@dataclass(frozen=True)
class Run:
    """One rehearsal: its plan, summary, observations and output, and the files that it executed."""

    name: RunName
    plan: Plan
    summary: Summary
    observations: Observations
    executed_files: ExecutedFiles = field(default_factory=ExecutedFiles)

    @property
    def side(self) -> Side:
        return "migrated" if self.name == "migrated" else "original"

    @property
    def is_finished(self) -> bool:
        """Return True if the script took a step and ended with code 0, and every process noted its end in the record.

        A run that a limit of time or memory stopped, or whose time and memory could not be watched, is not finished.
        """
        summary = self.summary
        return (
            summary.script_exit_code == 0
            and summary.steps > 0
            and not (summary.stopped_by_limit or summary.unreported_end)
        )

    @property
    def output(self) -> str:
        path = Path(self.plan.record_folder) / OUTPUT_FILE
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def output_of_rank(self, rank: int | None) -> str:
        """Return the lines of a rank, or the whole output for None."""
        if rank is None:
            return self.output
        return "\n".join(line for line in self.output.splitlines() if line.startswith(f"[rank {rank}] "))

    @property
    def output_tail(self) -> str:
        return "\n".join(self.output.splitlines()[-MAX_OUTPUT_LINES:])

    @property
    def failed_at(self) -> tuple[str, int] | None:
        """Return file and line of the output's last traceback entry within the run's project, or None."""
        frames = TRACEBACK_FRAME.findall(self.output_of_rank(self.summary.failed_rank))
        project = f"{self.plan.executed_root}/"
        return next(((file, int(line)) for file, line in reversed(frames) if file.startswith(project)), None)


class Interrupted(ViaductError):
    """Interruption by a signal. The exit code is 128 + the signal's number, as in a shell."""

    def __init__(self, number: int, when: str = "") -> None:
        self.exit_code = 128 + number
        super().__init__(f"interrupted{' ' + when if when else ''}; the output folder is as it was before.")


def choose_framework(request: Request, sides: Sides) -> FrameworkName:
    """Return which stand-ins run the script: those for PyTorch or TensorFlow 1.

    Raise an error if a package is missing or too old.
    """
    script_project = project.read_project(sides.original_script)
    framework = request.framework or project.find_framework(script_project)
    project.refuse_missing_packages(script_project)
    if framework == "tf1":
        tf1_stage.require_tensorflow()
    else:
        refuse_old_torch()
    return framework


def make_original_plan(request: Request, sides: Sides, framework: FrameworkName, report: Callable[[str], None]) -> Plan:
    """Return the plan of the original; the plans of the other runs are derived from it."""
    record = request.out.resolve() / RUNS_FOLDER / "original"
    script_starts_ranks = request.launch == "self"
    if request.launch == "auto" and request.ranks > 1:
        script_starts_ranks = bool(find_launch_line(project.read_project(sides.original_script)))
    plan = Plan(
        platform="original",
        framework=framework,
        script=str(sides.original_script),
        arguments=request.arguments,
        record_folder=str(record),
        steps=request.steps,
        timeout=request.timeout,
        memory=request.memory,
        seed=request.seed,
        ranks=request.ranks,
        script_starts_ranks=script_starts_ranks,
        limit_modes="off",
        step_at=find_step_at(request, sides),
        fake_data=request.fake_data,
        inspect=True,
        source_tree=str(sides.original_root.resolve()),
        other_source_trees=(str(sides.migrated_root.resolve()),),
        start_folder=str(sides.original_script.parent) if is_notebook(sides.entry) else str(Path.cwd()),
        module=request.module,
        language=request.lang,
        command=request.command,
    )
    return choose_file_view(plan, report)


def find_step_at(request: Request, sides: Sides) -> str:
    """Return the line or function of the original that ends a step (--step-at); raise BadValue if there is none."""
    if not request.step_at:
        return ""
    sources = project.list_relative_sources(project.read_project(sides.original_script), sides.original_root)
    return str(find_step_end(request.step_at, sources))


def move_step_at(text: str, sides: Sides) -> str:
    """Return --step-at with the line numbers of the migrated script; raise BadValue if the migration removed the lines.

    A function's name, and a line of an unchanged file, stay as they are.
    """
    target = parse_step_end(text) if text else None
    if target is None or target.file not in sides.diffs:
        return text
    rows = [row for row in sides.diffs[target.file] if row.old is not None and row.new is not None]
    lines = [row.new for row in rows if row.new and row.old and target.first <= row.old <= target.last]
    if not lines:
        raise BadValue(f"{STEP_AT_FLAG} {text}: the migration removes this line.", "Name a line near it.")
    return str(replace(target, first=min(lines), last=max(lines)))


def derive_plan(name: RunName, original: Plan, request: Request, sides: Sides, script: Path | None = None) -> Plan:
    """Return the plan of another run, made from the original's plan. `script`: is run in place of the original."""
    original_root, migrated_root = str(sides.original_root.resolve()), str(sides.migrated_root.resolve())
    trees: tuple[str, ...] = ()  # of the plan: source_tree and other_source_trees, if they are not the original's
    if name == "migrated":
        plan = replace(original, platform=request.to, script=str(sides.migrated_script), limit_modes=request.limits)
        plan = replace(plan, step_at=move_step_at(plan.step_at, sides))
        trees = migrated_root, original_root
    else:
        plan = replace(original, script=str(script or original.script), perturb=name == "shaken")
        if script is not None and not script.is_relative_to(original_root):
            # The script's path ends with the entry's path.
            trees = str(script)[: -len(sides.entry) - 1], original_root, migrated_root
    if trees:
        plan = replace(plan, source_tree=trees[0], other_source_trees=trees[1:], replaced_source_tree=original_root)
    return set_record_folder(plan, Path(original.record_folder).parent / name)


def execute(name: RunName, plan: Plan, sides: Sides, report: Callable[[str], None]) -> Run:
    """Rehearse the plan and read what was recorded; raise Interrupted if a signal ended it."""
    Path(plan.record_folder).mkdir(parents=True)
    if name == "original" or name == "migrated":
        coverage.request_counts(plan, sides, name)
    with capture_output(Path(plan.record_folder) / OUTPUT_FILE, LABELS[name]):
        summary = rehearse(plan, report)
    counts, *_ = describe_summary(summary, plan)  # the other lines are on the page
    report(f"{name}: {counts}")
    run = Run(name, plan, summary, read_observations(plan), read_executed_files(plan))
    if summary.interrupting_signal:
        raise Interrupted(summary.interrupting_signal, f"while {SIDE_NAMES[run.side][0]} ran")
    return run
