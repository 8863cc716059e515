"""The rehearsals of a carrying, one after the other: each in a process and a folder of its own, with the same seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from viaduct.carrying import coverage, provenance
from viaduct.carrying.asked import Asked
from viaduct.carrying.listening import kept_in
from viaduct.carrying.migrated import Sides
from viaduct.carrying.observed import Observed, read
from viaduct.carrying.places import RUNS
from viaduct.carrying.provenance import Provenance
from viaduct.errors import BadValue, ViaductError
from viaduct.rehearsal import project, tf1_stage
from viaduct.rehearsal.files import choose_view, settle
from viaduct.rehearsal.plan import Plan, StageName
from viaduct.rehearsal.process import rehearse
from viaduct.rehearsal.stage import refuse_old_torch
from viaduct.rehearsal.step_at import FLAG, find_target, parse_target
from viaduct.rehearsal.summary import Summary, told
from viaduct.scripts.notebook_runs import is_notebook

Side = Literal["original", "migrated", "shaken", "reference"]
OUTPUT = "output.txt"
FRAME = re.compile(r'^\s*(?:\[rank \d+\] )?\s*File "([^"]+)", line (\d+)', re.MULTILINE)
LABELS: dict[Side, str] = {
    "original": "original",
    "migrated": "migrated",
    "shaken": "original, weights moved",
    "reference": "original, known changes",
}
ENDS = 60  # lines of the output that a page shows


@dataclass(frozen=True)
class Run:
    """One rehearsal: how it went, what it left, what it said."""

    side: Side
    plan: Plan
    summary: Summary
    observed: Observed
    provenance: Provenance = field(default_factory=Provenance)

    @property
    def finished(self) -> bool:
        return (
            self.summary.script_exit_code == 0
            and self.summary.steps > 0
            and not (self.summary.bound or self.summary.silent)
        )

    @property
    def output(self) -> str:
        path = Path(self.plan.record) / OUTPUT
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def said_by(self, rank: int | None) -> str:
        """The output; of several ranks only that one's lines, where it is known who failed."""
        if rank is None:
            return self.output
        return "\n".join(line for line in self.output.splitlines() if line.startswith(f"[rank {rank}] "))

    @property
    def last_words(self) -> str:
        return "\n".join(self.output.splitlines()[-ENDS:])

    @property
    def failed_at(self) -> tuple[str, int] | None:
        """The innermost line of the user's own in the last traceback."""
        frames = [(file, int(line)) for file, line in FRAME.findall(self.said_by(self.summary.failed_rank))]
        own = [at for at in frames if at[0].startswith(f"{self.plan.tree or self.plan.project}/")]
        return own[-1] if own else None


class Interrupted(ViaductError):
    """By a signal: no failure of the script's, and no answer. The exit code is a shell's for that signal."""

    def __init__(self, number: int, when: str = "") -> None:
        self.exit_code = 128 + number
        super().__init__(f"interrupted{' ' + when if when else ''}; nothing is left behind.")


def side_words(side: Side) -> str:
    return "the migrated script" if side == "migrated" else "the original"


def stage_of(asked: Asked, sides: Sides) -> StageName:
    """Also refuses, before anything is run, what cannot be run here."""
    known = project.read(sides.original)
    stage = asked.framework or project.stage_of(known)
    project.refuse_missing(known, "original")
    if stage == "tf1":
        tf1_stage.need_tensorflow()
    else:
        refuse_old_torch()
    return stage


def plan_of(asked: Asked, sides: Sides, stage: StageName, tell: Callable[[str], None]) -> Plan:
    """Of the original; the other runs are the same but for a few fields."""
    record = asked.out.resolve() / RUNS / "original"
    own = asked.launch == "auto" and asked.ranks > 1 and bool(project.launch_line(project.read(sides.original)))
    plan = Plan(
        on="original",
        stage=stage,
        script=str(sides.original),
        arguments=asked.arguments,
        record=str(record),
        steps=asked.steps,
        timeout=asked.timeout,
        memory=asked.memory,
        seed=asked.seed,
        ranks=asked.ranks,
        launches_itself=asked.launch == "self" or own,
        limits="off",
        step_at=find_step_at(asked, sides),
        fake_data=asked.fake_data,
        look=True,
        tree=str(sides.root.resolve()),
        other_trees=(str(sides.folder.resolve()),),
        origin=str(sides.original.parent) if is_notebook(sides.entry) else str(Path.cwd()),
        module=asked.module,
        language=asked.lang,
        command=asked.command,
    )
    return choose_view(plan, tell)


def find_step_at(asked: Asked, sides: Sides) -> str:
    """Return the place where a step ends, in the original; raises BadValue where there is none."""
    if not asked.step_at:
        return ""
    return str(find_target(asked.step_at, project.relative_sources(project.read(sides.original), sides.root)))


def move_step_at(text: str, sides: Sides) -> str:
    """Return the same place after the migration: its lines may have moved."""
    target = parse_target(text) if text else None
    if target is None or target.file not in sides.files:
        return text
    rows = [row for row in sides.files[target.file] if row.old is not None and row.new is not None]
    lines = [row.new for row in rows if row.new and row.old and target.first <= row.old <= target.last]
    if not lines:
        raise BadValue(f"{FLAG} {text}: the migration leaves nothing of this line.", "Name a line near it.")
    return str(replace(target, first=min(lines), last=max(lines)))


def plan_for(side: Side, first: Plan, asked: Asked, sides: Sides, script: Path | None = None) -> Plan:
    plan = replace(first, record=str(Path(first.record).parent / side))
    root, folder = str(sides.root.resolve()), str(sides.folder.resolve())
    if side == "migrated":
        plan = replace(plan, tree=folder, other_trees=(root,), replaces=root)
        plan = replace(plan, step_at=move_step_at(plan.step_at, sides))
        plan = replace(plan, on=asked.to, script=str(sides.migrated), limits=asked.limits)
        return settle(plan, Path(plan.record))
    if script is not None and not script.is_relative_to(root):
        tree = str(script)[: -len(sides.entry) - 1]
        plan = replace(plan, tree=tree, other_trees=(root, folder), replaces=root)
    return settle(replace(plan, script=str(script or first.script), shake=side == "shaken"), Path(plan.record))


def run(side: Side, plan: Plan, sides: Sides, tell: Callable[[str], None]) -> Run:
    Path(plan.record).mkdir(parents=True)
    if side in ("original", "migrated"):
        coverage.prepare(plan, sides, side)
    with kept_in(Path(plan.record) / OUTPUT, LABELS[side]):
        summary = rehearse(plan, tell)
    for line in told(summary, plan)[:1]:
        tell(f"{side}: {line}")
    if summary.interrupted:
        raise Interrupted(summary.interrupted, f"while {side_words(side)} ran")
    return Run(side, plan, summary, read(plan), provenance.read(plan))
