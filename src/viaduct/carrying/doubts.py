"""Doubts: reasons why a comparison of two runs is not a proof, such as edits that were never executed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from viaduct.carrying.observations import has_newly_joined_ranks
from viaduct.carrying.repetition import describe_place
from viaduct.carrying.sides import SIDE_NAMES
from viaduct.carrying.values import find_changed_values
from viaduct.migration.summary import plural

if TYPE_CHECKING:
    from viaduct.carrying.carry import CarryResult
    from viaduct.carrying.running import Run

DoubtKind = Literal[  # also in carry.json, where --earlier reads them
    "not deterministic", "other ranks", "wrong tree", "not the file", "never executed", "no effect", "not compared",
    "printed", "changed files", "written",
]  # fmt: skip


@dataclass(frozen=True)
class Doubt:
    """One reason, in English and Chinese, with the files, lines or values concerned."""

    kind: DoubtKind
    text: str
    chinese: str
    items: list[str] = field(default_factory=list)

    @property
    def hides_differences(self) -> bool:
        """Return True if the runs cannot be compared at all, so a difference between them shows nothing either."""
        return self.kind in ("not deterministic", "other ranks", "wrong tree", "not the file", "changed files")


def find_doubts(result: CarryResult) -> list[Doubt]:
    return [
        *find_nondeterminism(result),
        *find_joined_ranks(result),
        *find_foreign_files(result),
        *find_unexecuted_edits(result),
        *find_changes_without_effect(result),
        *find_unseen_ranks(result),
        *find_uncompared(result),
        *find_differing_results(result),
    ]


def find_nondeterminism(result: CarryResult) -> Iterator[Doubt]:
    """Yield a doubt for a side if its second run failed, or differs from the first by more than rounding."""
    for first in (result.original, result.migrated):
        if first is None:
            continue
        name, chinese = SIDE_NAMES[first.side]
        repetition = result.repetitions.get(first.side)
        if repetition is not None and repetition.is_deterministic:
            continue
        if repetition is None or not repetition.second_run.is_finished:
            failure = repetition.second_run.summary.failure if repetition is not None else ""
            yield Doubt(
                "not deterministic",
                f"{name} finished its first run and failed in its second",
                f"{chinese}第一次运行成功,第二次失败",
                [failure] if failure else [],
            )
            continue
        pair = repetition.first_unequal
        if pair is None:  # no value was recorded in either run, which `find_uncompared` reports
            continue
        location = describe_place(first, repetition.second_run, pair)
        moment = "at the end" if pair.step is None else f"from step {pair.step}"
        moment_zh = "结束时" if pair.step is None else f"从第 {pair.step} 步起"
        yield Doubt(
            "not deterministic",
            f"{name} is not deterministic {moment} ({location}): two runs of it with the same seed differ",
            f"{chinese}{moment_zh}不确定({location}):相同种子的两次运行结果不同",
            list(describe_shared_model_dir(result, first)),
        )


def describe_shared_model_dir(result: CarryResult, run: Run) -> Iterator[str]:
    """Yield a sentence if the ranks of an Estimator share a model_dir: a late rank may restore another's checkpoint."""
    # TensorFlow writes a file named `checkpoint` beside its checkpoints.
    folders = sorted(
        {name.rpartition("/")[0] for name in run.summary.written_files if name.rpartition("/")[2] == "checkpoint"}
    )
    script = result.sides.migrated_script if run.side == "migrated" else result.sides.original_script
    if result.request.ranks < 2 or result.framework != "tf1" or not folders or b"Estimator(" not in script.read_bytes():
        return
    yield (
        f"the ranks share the model_dir {folders[0] or '.'}: a rank that starts late may restore another rank's "
        "checkpoint, on the card too; give each rank its own folder"
    )


def find_joined_ranks(result: CarryResult) -> list[Doubt]:
    """Return a doubt if ranks train together on the migrated side only."""
    assert result.migrated is not None
    if not has_newly_joined_ranks(result.golden_run.observations, result.migrated.observations):
        return []
    return [
        Doubt(
            "other ranks",
            "the original is written for one process, so each of its ranks trained alone, while the migrated script's "
            "ranks trained together: compare with --ranks 1 (nn.DataParallel with --data-parallel unwrap)",
            "原脚本为单进程编写,各 rank 独立训练,而迁移后的各 rank 共同训练:请用 --ranks 1 比较"
            "(nn.DataParallel 请加 --data-parallel unwrap)",
        )
    ]


def find_foreign_files(result: CarryResult) -> Iterator[Doubt]:
    """Yield doubts about files from outside the side's tree, and about executed code that is not in its file."""
    assert result.migrated is not None
    for run in (result.golden_run, result.migrated):
        files, side, chinese = run.executed_files.problems, run.side, SIDE_NAMES[run.side][1]
        yield from make_doubts(
            "wrong tree",
            [f"{file.position} ({file.file})" for file in files if file.problem == "wrong tree"],
            f"the {side} run loaded {{n}} file{{s}} from outside its own tree",
            f"{chinese}加载了自己目录之外的 {{n}} 个文件",
        )
        yield from make_doubts(
            "not the file",
            [f"{file.position}: {file.detail}" for file in files if file.problem == "not the file"],
            f"the {side} run executed code that differs from {{n}} file{{s}} on disk",
            f"{chinese}执行的代码与磁盘上的 {{n}} 个文件不一致",
        )


def find_unexecuted_edits(result: CarryResult) -> Iterator[Doubt]:
    """Yield doubts about changed lines that were never executed.

    The lines are listed if they were removed, or if anything in their file was executed. Otherwise the file is listed.
    """
    assert result.migrated is not None
    in_earlier = {edit.file for edit in result.edits if edit.side == "migrated" and edit.is_executed}
    executed = result.migrated.executed_files.positions | in_earlier
    unexecuted = [edit for edit in result.edits if not edit.is_executed]
    listed = [edit for edit in unexecuted if edit.side == "original" or edit.file in executed]
    lines = [f"{edit.side} {edit.place}: {edit.text}" for edit in listed]
    yield from make_doubts("never executed", lines, "{n} edit{s} {was} never executed", "{n} 处修改从未执行")
    edited = {edit.file for edit in unexecuted if edit.side == "migrated"} - executed
    files = [path for path in result.sides.diffs if path in edited]
    text = "{n} file{s} that the migration rewrote {was} never executed"
    yield from make_doubts("never executed", files, text, "迁移改写的 {n} 个文件从未执行")


def find_changes_without_effect(result: CarryResult) -> Iterator[Doubt]:
    """Yield doubts about settings and lines of the user's copy with other values, while no difference was found."""
    assert result.agreement is not None
    steps = result.original.summary.steps
    yield from make_doubts(
        "no effect",
        [setting.sentence for setting in result.ineffective_settings],
        f"{{n}} value{{s}} {{was}} set differently, without a known effect in {plural(steps, 'step')}",
        f"{{n}} 处数值不同,但在 {steps} 步内未见其影响",
    )
    yield from make_doubts(
        "no effect",
        find_changed_values(result.sides) if result.agreement.verdict != "differ" else [],
        "{n} line{s} {was} given other values or operators by hand, without a known effect on what was compared",
        "手工修改了 {n} 行中的值或运算符,但比较的内容没有体现其影响",
    )


def find_uncompared(result: CarryResult) -> Iterator[Doubt]:
    """Yield doubts about an unsure agreement, about equal losses that are not finite, and values that rounding hides.

    A single hidden loss is a doubt; weights are one if rounding hides more than half of them; gradients are none.
    """
    assert result.agreement is not None
    agreement = result.agreement
    losses, weights = (agreement.pairs_of(kind) for kind in ("loss", "weight"))
    unknown = {pair.step or 0 for pair in losses if pair.same and not math.isfinite(pair.left)}
    yield from make_doubts(
        "not compared",
        [f"step {step}" for step in sorted(unknown)],
        "{n} step{s} had a loss that is NaN or infinite on both sides, which shows nothing about the migration",
        "{n} 步的损失在两侧都不是有限值,无法说明迁移是否正确",
    )
    if agreement.verdict == "unsure":
        yield Doubt("not compared", agreement.remarks[0], agreement.remarks[0])
    if agreement.verdict != "rounding":
        return
    hidden = len(losses) - len(agreement.informative_pairs("loss"))
    if hidden or len(agreement.informative_pairs("weight")) * 2 < len(weights):
        yield Doubt(
            "not compared",
            "the script amplifies rounding so much that later values show nothing; compare with fewer --steps",
            "脚本将舍入误差放大到后面的数值无法比较;减少 --steps 可以比较更多内容",
            agreement.remarks,
        )


def find_unseen_ranks(result: CarryResult) -> list[Doubt]:
    """Return a doubt about ranks that took no step on either side."""
    assert result.migrated is not None
    observed = {rank.number for run in (result.golden_run, result.migrated) for rank in run.observations.ranks}
    count = result.request.ranks
    unseen = [f"rank {number}" for number in range(count) if number not in observed]
    return make_doubts(
        "not compared",
        unseen,
        f"{{n}} of {count} ranks took no step on either side",
        f"{count} 个 rank 中有 {{n}} 个在两侧都没有执行训练步",
    )


def find_differing_results(result: CarryResult) -> Iterator[Doubt]:
    """Yield doubts about further results and written files that differ, and about files of the user that changed."""
    yield from make_doubts(
        "printed",
        result.further_results.differing if result.further_results is not None else [],
        "{n} further result{s} (data, evaluations, printed numbers) {was} not the same",
        "另有 {n} 项结果(数据、评估、打印的数值)不一致",
    )
    runs = [run for run in (result.original, result.migrated) if run is not None]
    runs += [repetition.second_run for repetition in result.repetitions.values()]
    yield from make_doubts(
        "changed files",
        sorted({path for run in runs for path in run.summary.changed_originals}),
        "{n} of your own files changed while the scripts ran, so the runs may have read different content",
        "脚本运行期间,您自己的 {n} 个文件发生了变化,各次运行读到的内容可能不同",
    )
    differing = [f"{file.name}: {file.detail}" for file in result.written_files if file.state == "differs"]
    text = "{n} file{s} that the scripts wrote {are} not the same"
    yield from make_doubts("written", differing, text, "脚本写出的 {n} 个文件不一致")


def make_doubts(kind: DoubtKind, items: list[str], text: str, chinese: str) -> list[Doubt]:
    """Return a doubt about some items; nothing without items.

    In both texts {n} is the number of items; in `text`, {s}, {was} and {are} depend on it.
    """
    forms = {"s": "", "was": "was", "are": "is"} if len(items) == 1 else {"s": "s", "was": "were", "are": "are"}
    return [Doubt(kind, text.format(n=len(items), **forms), chinese.format(n=len(items)), items)] if items else []
