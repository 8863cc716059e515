"""The result of a carry in sentences, for the page, the terminal and carry.json."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from viaduct.carrying.agreement import ValueKind, ValuePair
from viaduct.carrying.carry import CarryResult
from viaduct.carrying.coverage import is_counted
from viaduct.carrying.doubts import Doubt
from viaduct.carrying.faults import FaultOwner, find_fault
from viaduct.carrying.further_results import MAX_LINES
from viaduct.carrying.speed import describe_speed
from viaduct.migration.summary import plural
from viaduct.rehearsal.observe import MAX_EVALUATIONS, MAX_INPUT_SUMS
from viaduct.scripts.notebook_runs import locate_line

CHINESE_NAMES = {"Not proved": "未证明", "At fault": "原因", "Try": "建议", "Not compared": "未比较", "Also": "另外"}
FAULTS: dict[FaultOwner, tuple[str, str]] = {
    "script": ("the script itself", "脚本本身"),
    "package": ("a package that is missing, of another release or broken", "缺少软件包、版本不符或无法加载"),
    "file": ("a file or other input that is not there", "缺少文件或其他输入"),
    "limit": ("a documented limit of the card", "加速卡的文档限制"),
    "bound": ("the bounds of this run", "本次运行的时间或内存限制"),
    "viaduct": ("viaduct, not the script", "viaduct 自身,而不是脚本"),
}
VALUE_KINDS: tuple[ValueKind, ...] = ("loss", "gradient", "weight")
MAX_ARGUMENT_LETTERS = 80  # of the arguments of an earlier carry that are shown
MAX_SHOWN = 3  # items of a remark: lines, files, settings, device tests


def make_headline(result: CarryResult) -> str:
    to, chinese = result.request.to.upper(), result.request.lang == "zh"
    if result.verdict == "agrees":
        return make_agreement_headline(result, to)
    if result.verdict == "differs":
        assert result.explanation is not None
        return f"不一致:{result.explanation.headline}" if chinese else result.explanation.headline
    if result.verdict == "not proved":
        return make_doubt_headline(result)
    if result.failed_run is None:
        count = sum(hit["mode"] == "error" for hit in result.met_limits)
        if chinese:
            return f"无法运行:触及加速卡的 {count} 个文档限制。"
        limits = f"{count} documented {'limit is' if count == 1 else 'limits are'} met"
        return f"Could not run: the card would refuse it, {limits}."
    fault = find_fault(result.failed_run)
    return f"无法运行:{fault.chinese}。" if chinese else f"Could not run: {fault.text}."


def make_agreement_headline(result: CarryResult, to: str) -> str:
    """Return the headline of `agrees`, with the numbers of compared losses, gradients and tensors."""
    assert result.agreement is not None
    counts = [count_values(result, kind) for kind in VALUE_KINDS]
    compared = join_parts([count for count in counts if count], result.request.lang)
    if result.request.lang == "zh":
        ending = "在舍入误差内一致" if result.agreement.verdict == "rounding" else "完全相等"
        return f"一致:在 {to} 替身上,{compared}{ending}。"
    single = sum(len(result.agreement.informative_pairs(kind)) for kind in VALUE_KINDS) == 1
    ending = "is exactly equal" if single else "are exactly equal"
    if result.agreement.verdict == "rounding":
        ending = "agrees up to rounding" if single else "agree up to rounding"
    return f"Agrees on the {to} stand-in: {compared} {ending}."


def count_values(result: CarryResult, kind: ValueKind) -> str:
    """Describe the number of compared values of a kind, without those that are mostly rounding; empty for none."""
    assert result.agreement is not None
    count = len(result.agreement.informative_pairs(kind))
    if not count:
        return ""
    if result.request.lang == "zh":
        return {
            "loss": f"{count} 个损失",
            "gradient": f"第一步的 {count} 个梯度",
            "weight": f"结束时的 {count} 个张量",
        }[kind]
    return {
        "loss": f"{count} {'loss' if count == 1 else 'losses'} of {format_steps(result)}",
        "gradient": f"{plural(count, 'gradient')} of the first step",
        "weight": f"{plural(count, 'tensor')} at the end",
    }[kind]


def join_parts(parts: list[str], language: str) -> str:
    if language == "zh":
        return "、".join(parts)
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def make_doubt_headline(result: CarryResult) -> str:
    """Return the headline of `not proved`; it says what agrees, unless a doubt may hide a difference."""
    assert result.agreement is not None
    first, *further = sorted(result.doubts, key=lambda doubt: not doubt.hides_differences)
    chinese = result.request.lang == "zh"
    agrees = result.agreement.verdict in ("same", "rounding") and not first.hides_differences
    # If further results or written files differ, only losses, gradients and weights agree.
    has_differing_results = any(doubt.kind in ("printed", "written") for doubt in result.doubts)
    if chinese:
        agreeing = "训练数值一致" if has_differing_results else "执行到的部分一致"
        beginning = f"未证明:{agreeing},但" if agrees else "未证明:"
        return f"{beginning}{first.chinese}{f'(另有 {len(further)} 个原因)' if further else ''}。"
    agreeing = "the training numbers agree" if has_differing_results else "what ran agrees"
    beginning = f"Not proved: {agreeing}, but " if agrees else "Not proved: "
    others = f" ({plural(len(further), 'further reason')} below)" if further else ""
    return f"{beginning}{first.text.removesuffix('.')}{others}."


def list_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return pairs of name and sentence, in reading order."""
    remarks = [
        *list_failure_remarks(result),
        *list_doubt_remarks(result),
        *list_location_remarks(result),
        *list_compared_remarks(result),
        *list_uncompared_remarks(result),
    ]
    remarks += [speed] if (speed := describe_speed(result)) is not None else []
    remarks += [
        ("Intended", f"Done in the original, too, since it changes numbers on purpose: {change}.")
        for change in result.intended_changes
    ]
    if result.agreement is not None:
        remarks += [("Note", remark) for remark in (*result.agreement.remarks, *list_idle_remarks(result))]
    for path in result.shared_paths:
        advice = "with a relative path, each side has its own"
        remarks.append(("Shared", f"{path}, which both sides are given, changed while the original ran; {advice}."))
    if result.device_tests:
        locations = ", ".join(f"original {test.place}" for test in result.device_tests[:MAX_SHOWN])
        more = f" and {len(result.device_tests) - MAX_SHOWN} more" if len(result.device_tests) > MAX_SHOWN else ""
        tests = "The script tests the device, and may take another branch on the card"
        remarks.append(("Branches", f"{tests}: {locations}{more}."))
    remarks += list_earlier_remarks(result)
    if result.old_output is not None:
        remarks.append(("Kept", f"The earlier content of {result.request.out} is now in {result.old_output}."))
    return remarks


def list_earlier_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return a remark for each earlier carry whose executed edits count."""
    remarks = []
    for earlier in result.earlier_carries:
        count = sum(edit.earlier == earlier.folder for edit in result.edits)
        if not count:
            continue
        arguments = shlex.join(earlier.arguments)
        shortened = f"{arguments[:MAX_ARGUMENT_LETTERS]}{' …' if len(arguments) > MAX_ARGUMENT_LETTERS else ''}"
        command = f"{earlier.folder} (-- {shortened})" if arguments else earlier.folder
        if result.request.lang == "zh":
            remarks.append(("先前执行", f"{count} 处修改在 {command} 中执行,其比较结果一致。"))
        else:
            remarks.append(
                ("Earlier", f"{plural(count, 'edit')} not executed here ran in {command}, where what ran agrees.")
            )
    return remarks


def list_doubt_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return a remark for each doubt, and advice if edits were never executed."""
    name = name_remark(result, "Also" if result.verdict == "differs" else "Not proved")
    remarks = [(name, describe_doubt(result, doubt)) for doubt in result.doubts]
    if any(doubt.kind == "never executed" for doubt in result.doubts):
        remarks.append((name_remark(result, "Try"), advise_execution(result)))
    return remarks


def name_remark(result: CarryResult, name: str) -> str:
    """Return the name of a remark in the user's language."""
    return CHINESE_NAMES[name] if result.request.lang == "zh" else name


def advise_execution(result: CarryResult) -> str:
    assert result.migrated is not None
    count = result.original.summary.steps
    both_stopped = result.original.summary.stopped_after_steps and result.migrated.summary.stopped_after_steps
    if result.request.lang == "zh":
        stopped = f"两次运行都在 {count} 步后被停止,循环之后的代码没有执行:" if both_stopped else ""
        return (
            f"{stopped}在 -- 之后给出能执行到这些行的参数,例如脚本自己的步数;"
            f"一条命令无法全部执行到时,用其他参数和 --earlier {result.request.out} 再次运行。"
        )
    if both_stopped:
        return (
            f"Both runs were stopped after {format_steps(result)}, so nothing after the loop ran. "
            "After --, give the script's own option for so many steps, and other arguments that reach these lines."
        )
    return (
        "After --, give arguments with which the script reaches these lines. If no single command reaches all, "
        f"carry it once more with others and --earlier {result.request.out}."
    )


def describe_doubt(result: CarryResult, doubt: Doubt) -> str:
    text = (doubt.chinese if result.request.lang == "zh" else doubt.text).removesuffix(".")
    text = text[:1].upper() + text[1:]
    return f"{text}: {join_shown(doubt.items)}." if doubt.items else f"{text}."


def list_idle_remarks(result: CarryResult) -> list[str]:
    """Return a sentence for each optimizer that took no step on at least one side."""
    return [
        f"{fact.name[0].upper()}{fact.name[1:]} ({fact.settings['class']}) took no step in {format_steps(result)}"
        f"{format_location(result, fact.line)}, on at least one side: its effect is not compared."
        for fact in result.idle_optimizers
    ]


def format_steps(result: CarryResult) -> str:
    count = result.golden_run.summary.steps
    return plural(count, "step")


def format_location(result: CarryResult, location: tuple[str, int] | None) -> str:
    return f" ({display_path(result, location[0])}:{location[1]})" if location else ""


def list_failure_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return the reasons of the verdict `could not run`: what is at fault, with the last line of the traceback.

    If both runs finished, the reasons are the limits of the card that the migrated script met.
    """
    if result.verdict != "could not run":
        return []
    chinese = result.request.lang == "zh"
    met = [("Limit", describe_limit(result, hit)) for hit in result.met_limits if hit["mode"] == "error"]
    run = result.failed_run
    if run is None:
        return met
    fault = find_fault(run)
    at_fault, at_fault_zh = FAULTS[fault.owner]
    if not fault.is_certain:
        at_fault, at_fault_zh = f"probably {at_fault}", f"可能是{at_fault_zh}"
    last = run.failed_at
    location = f", {locate_line(last[0], last[1]).replace(last[0], display_path(result, last[0]))}" if last else ""
    advice = fault.chinese_advice if chinese else fault.advice
    remarks = [(name_remark(result, "At fault"), f"{at_fault_zh if chinese else at_fault}{location}."), *met]
    return [*remarks, (name_remark(result, "Try"), advice)] if advice else remarks


def describe_limit(result: CarryResult, hit: dict[str, object]) -> str:
    location = hit["place"]
    line = f"{display_path(result, str(location['file']))}:{location['line']}: " if isinstance(location, dict) else ""
    return f"{line}{hit['name']}: {hit['what']} {hit['change']}"


def list_location_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return remarks on the first divergence, on settings that differ, and on the suspected lines."""
    explanation = result.explanation
    if explanation is None:
        return []
    remarks = [("What is known", remark) for remark in explanation.remarks]
    for setting in explanation.changed_settings[:MAX_SHOWN]:
        remarks.append(("Made differently", f"{setting.sentence}{format_location(result, setting.right_at)}."))
    for suspect in result.suspects[:2]:
        why = f" ({suspect.why})" if suspect.why else ""
        remarks.append(("Look at", f"migrated {suspect.place}: {suspect.new or 'removed: ' + suspect.old}{why}"))
    return remarks


def list_compared_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return one remark that counts what was compared: values, evaluations, printed numbers and written files."""
    if result.agreement is None:
        return []
    parts = [describe_kind(result, kind) for kind in VALUE_KINDS]
    if result.further_results is not None:
        files = sum(file.state != "not compared" for file in result.written_files)
        parts += [
            format_count(result.further_results.evaluations, "pass without gradients", "passes without gradients"),
            format_count(result.further_results.compared, "printed number", "printed numbers"),
            format_count(files, "written file", "written files") + describe_rounded_files(result),
        ]
    return [("Compared", "; ".join(part for part in parts if part) + ".")]


def describe_rounded_files(result: CarryResult) -> str:
    """Return the part of a sentence that names the written files with values that differ by rounding."""
    names = [file.name for file in result.written_files if file.state == "rounding"]
    more = " and more" if len(names) > MAX_SHOWN else ""
    return f", within rounding: {', '.join(names[:MAX_SHOWN])}{more}" if names else ""


def format_count(count: int, one: str, several: str) -> str:
    """Return a count with its noun; empty for none."""
    return f"{count} {one if count == 1 else several}" if count else ""


def list_uncompared_remarks(result: CarryResult) -> list[tuple[str, str]]:
    """Return remarks on results, changed lines and written files that the verdict does not cover."""
    if result.agreement is None:
        return []
    sentences = [describe_uncompared(result)]
    if uncounted := [path for path in result.sides.diffs if not is_counted(path, result.sides)]:
        beginning = (
            "修改行的执行未计数:" if result.request.lang == "zh" else "changed lines, which are not counted, of "
        )
        sentences.append(f"{beginning}{join_shown(uncounted)}.")
    if files := [f"{file.name} ({file.detail})" for file in result.written_files if file.state == "not compared"]:
        sentences.append(f"{join_shown(files)}.")
    return [(name_remark(result, "Not compared"), sentence) for sentence in sentences]


def describe_uncompared(result: CarryResult) -> str:
    """Return a sentence with what is not compared in any carry of this framework."""
    if result.request.lang == "zh":
        by_framework = f"大张量输入和评估输出中未抽样的元素、每步前 {MAX_INPUT_SUMS // 2} 个张量之后的网络输入"
        if result.framework == "tf1":
            by_framework = "局部变量(如指标计数器)、其他的算子执行顺序"
        return (
            f"第一步之后的梯度、各步之间的权重、{by_framework}、不含数值的打印文本、日志以外的 stderr、"
            f"各 rank 第 {MAX_LINES} 行(或 800 万个字符)之后的打印内容、第 {MAX_EVALUATIONS} 次之后的评估、"
            "各 rank 打印最多的进程以外的进程、不能重复的数值、时间和速度、临时文件,以及加速卡自身的算子。"
        )
    by_framework = (
        "elements of large inputs and evaluations that are not sampled, network inputs after the first "
        f"{MAX_INPUT_SUMS // 2} tensors of a step"
    )
    if result.framework == "tf1":
        by_framework = "local variables such as counters of metrics, another order of operators"
    return (
        f"gradients after the first step, weights between steps, {by_framework}, printed text without numbers, stderr "
        f"except log messages, lines after the first {MAX_LINES:,} (or 8 million characters) that a rank prints, "
        f"evaluations after the first {MAX_EVALUATIONS:,}, processes of a rank other than the one that prints most, "
        "numbers that do not repeat themselves, times and speeds, temporary files; the card's own kernels."
    )


def join_shown(items: list[str]) -> str:
    """Join the first items, and count the others: a; b; c; +2."""
    return "; ".join([*items[:MAX_SHOWN], *([f"+{len(items) - MAX_SHOWN}"] if len(items) > MAX_SHOWN else [])])


def describe_kind(result: CarryResult, kind: ValueKind) -> str:
    assert result.agreement is not None
    pairs = result.agreement.pairs_of(kind)
    if not pairs:
        return f"no {kind} was seen"
    count = {
        "loss": format_count(len(pairs), "loss", "losses"),
        "gradient": f"{plural(len(pairs), 'gradient')} of the first step",
        "weight": f"{plural(len(pairs), 'weight')} at the end",
    }[kind]
    equal = sum(pair.same for pair in pairs)
    if equal == len(pairs):
        return f"{count}, exactly equal"
    return f"{count}, {equal} exactly equal{describe_worst(result.agreement.informative_pairs(kind))}"


def describe_worst(pairs: list[ValuePair]) -> str:
    """Describe the largest relative difference of some pairs, and count the pairs without a relative difference.

    Pairs that only one side has, or whose shapes differ, are left out.
    """
    measured = [pair for pair in pairs if not pair.why and math.isfinite(pair.error)]
    unmeasured = [pair.name for pair in pairs if not pair.why and not math.isfinite(pair.error)]
    worst = max(measured, key=lambda pair: pair.error, default=None)
    text = ""
    if unmeasured:
        reasons = f"from zero, not finite, or whole numbers: {unmeasured[0]}"
        text = f", {len(unmeasured)} without a relative measure ({reasons})"
    if worst is None or not worst.error:
        return text
    rounding = f", where {worst.allowed:.1e} is allowed" if worst.noise else ""
    return f"{text}, the largest {'other ' if unmeasured else ''}difference {worst.error:.1e}{rounding}"


def display_path(result: CarryResult, file: str) -> str:
    """Return the side of a file and its path within that side; for a file of neither side, its name."""
    path = Path(file)
    for side, root in (
        ("migrated", result.sides.migrated_root.resolve()),
        ("original", result.sides.original_root.resolve()),
    ):
        if path.is_relative_to(root):
            return f"{side} {path.relative_to(root).as_posix()}"
    return path.name
