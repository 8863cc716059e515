"""What keeps two runs that agree from being a proof: files of the wrong tree, edits that never ran, and their like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from viaduct.carrying.carry import Carried
    from viaduct.carrying.running import Run

Kind = Literal["wrong tree", "not the file", "never executed", "no effect", "not compared"]
SIDES = {"original": "原脚本", "migrated": "迁移后的脚本"}


@dataclass(frozen=True)
class Doubt:
    """One reason, in both languages, and what it is about: files, lines, values."""

    kind: Kind
    text: str
    chinese: str
    items: list[str] = field(default_factory=list)

    @property
    def hides_differences(self) -> bool:
        """Return True where the runs were not runs of the two sides, so that a difference says nothing either."""
        return self.kind in ("wrong tree", "not the file")

    def say(self, language: str) -> str:
        return self.chinese if language == "zh" else self.text


def find_doubts(carried: Carried) -> list[Doubt]:
    assert carried.agreement is not None
    return [*strange_files(carried), *unexecuted_files(carried), *no_effect(carried), *not_compared(carried)]


def strange_files(carried: Carried) -> Iterator[Doubt]:
    for run in (carried.base, carried.migrated):
        if run is None:
            continue
        side = "migrated" if run.side == "migrated" else "original"
        wrong = [file for file in run.provenance.problems if file.problem == "wrong tree"]
        if wrong:
            items = [f"{file.position} ({file.file})" for file in wrong]
            other = "original's" if side == "migrated" else "migrated"
            yield Doubt(
                "wrong tree",
                f"the {side} run loaded {files(len(wrong))} of the {other} tree, which its own tree does not have",
                f"{SIDES[side]}加载了另一侧目录中的 {len(wrong)} 个文件,而自己的目录中没有这些文件",
                items,
            )
        changed = [file for file in run.provenance.problems if file.problem == "not the file"]
        if changed:
            items = [f"{file.position}: {file.detail}" for file in changed]
            yield Doubt(
                "not the file",
                f"the {side} run executed code that is not what {files(len(changed))} on disk contain",
                f"{SIDES[side]}执行的代码与磁盘上的 {len(changed)} 个文件不一致",
                items,
            )


def unexecuted_files(carried: Carried) -> Iterator[Doubt]:
    assert carried.migrated is not None
    ran = carried.migrated.provenance.positions
    missed = [path for path in carried.sides.files if path not in ran and not path.endswith(".ipynb")]
    if missed:
        yield Doubt(
            "never executed",
            f"{files(len(missed))} that the migration rewrote {'was' if len(missed) == 1 else 'were'} never executed",
            f"迁移改写的 {len(missed)} 个文件从未执行",
            missed,
        )


def no_effect(carried: Carried) -> Iterator[Doubt]:
    """Something was made with another number, and the run was too short or too simple to show it."""
    if carried.unfelt:
        count = len(carried.unfelt)
        yield Doubt(
            "no effect",
            f"{count} {'value was' if count == 1 else 'values were'} made differently, without effect in "
            f"{steps(carried.original)}",
            f"{count} 处数值不同,但在 {carried.original.summary.steps} 步内没有产生影响",
            [other.words for other in carried.unfelt],
        )


def not_compared(carried: Carried) -> Iterator[Doubt]:
    assert carried.agreement is not None
    if carried.agreement.verdict == "unsure":
        yield Doubt("not compared", carried.agreement.remarks[0], carried.agreement.remarks[0])


def files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def steps(run: Run) -> str:
    count = run.summary.steps
    return f"{count} {'step' if count == 1 else 'steps'}"
