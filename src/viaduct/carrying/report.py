"""The HTML page of a carry: the verdict, what was compared, and the lines for manual review."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from viaduct.carrying.agreement import Agreement, ValueKind, ValuePair
from viaduct.carrying.carry import CarryResult, Verdict
from viaduct.carrying.causes import format_value
from viaduct.carrying.commands import list_commands
from viaduct.carrying.coverage import Edit
from viaduct.carrying.executed_files import ExecutedFile
from viaduct.carrying.observations import Rank
from viaduct.carrying.output_folder import BASELINE_FILE, COMPARISON_FOLDER, PAGE_FILE
from viaduct.carrying.running import Run
from viaduct.carrying.sentences import VALUE_KINDS, display_path, list_remarks, make_headline
from viaduct.carrying.sides import Sides
from viaduct.carrying.speed import describe_speed, list_figures, name_columns
from viaduct.migration.summary import plural
from viaduct.rehearsal.limits import NOT_CHECKED, describe_unchecked
from viaduct.reporting import (
    BarSeries,
    Callout,
    Code,
    Comment,
    DiffFile,
    DiffRow,
    DiffView,
    Facts,
    LineChart,
    Link,
    NamedBars,
    Page,
    Part,
    Remark,
    Section,
    Series,
    Table,
    Tile,
    Tone,
    Value,
    write_page,
)

TONES: dict[Verdict, Tone] = {
    "agrees": "good", "differs": "bad", "not proved": "warn", "could not run": "bad",
}  # fmt: skip
CHINESE_VERDICTS: dict[Verdict, str] = {
    "agrees": "一致", "differs": "不一致", "not proved": "未证明", "could not run": "无法运行",
}  # fmt: skip
Layer = tuple[str, dict[str, ValuePair]]  # name of a parameter or variable, its pairs by kind
PLURALS: dict[ValueKind, str] = {"loss": "losses", "gradient": "gradients", "weight": "weights"}
MOMENTS: dict[ValueKind, str] = {"gradient": "gradient of the first step", "weight": "weight at the end"}
MAX_CHARTED_LAYERS = 60  # the table has all layers
MAX_OUTSIDE_FILES = 5  # files outside both projects that are listed
MAX_SETTINGS = 40  # rows of the table of settings with other values
MAX_DRAWN_RANKS = 2  # of each side, in the chart of losses
BOTH_EXECUTED = "Both scripts were executed on this machine; no accelerator took part. The numbers are the CPU's."
ORIGINAL_EXECUTED = "The original was executed on this machine, and failed. The migrated script was not executed."


def write(result: CarryResult, path: Path) -> None:
    write_page(make_page(result), path)


def make_page(result: CarryResult) -> Page:
    request = result.request
    comparison = Link("every tensor, as viaduct compare shows it", f"{COMPARISON_FOLDER}/{PAGE_FILE}")
    links = [comparison] if result.drift else []
    remarks = [Remark(*pair) for pair in list_remarks(result)]
    lead = [Callout(TONES[result.verdict], make_headline(result), remarks, links)]
    sections = [
        *make_divergence_sections(result),
        *make_loss_sections(result),
        *make_layer_sections(result),
        *make_written_sections(result),
        *make_executed_sections(result),
        *make_limit_sections(result),
        make_manual_section(result),
        make_changes_section(result),
        make_commands_section(result),
        *make_baseline_sections(result),
        make_method_section(result),
    ]
    title = f"{result.sides.entry} carried to {request.to.upper()}"
    executed = ORIGINAL_EXECUTED if result.migrated is None else BOTH_EXECUTED
    return Page(title, executed, make_tiles(result), sections, lead, verb="carry", kind="carry report")


def make_tiles(result: CarryResult) -> list[Tile]:
    good = {"agrees": True, "not proved": None}.get(result.verdict, False)  # None: neither good nor bad
    verdict = CHINESE_VERDICTS[result.verdict] if result.request.lang == "zh" else result.verdict
    return [
        Tile("verdict", verdict, describe_closeness(result), good),
        make_steps_tile(result),
        *make_edits_tile(result),
        *(make_agreement_tile(result.agreement, kind) for kind in VALUE_KINDS if result.agreement),
        make_limits_tile(result),
        make_manual_tile(result.sides),
    ]


def describe_closeness(result: CarryResult) -> str:
    """Describe how closely the sides agree, or the number of doubts; "" if they differ or were not compared."""
    if result.agreement is None or result.verdict == "could not run":
        return ""
    if result.verdict == "not proved":
        return plural(len(result.doubts), "reason")
    exactly = "exactly, in all that was compared"
    if any(file.state == "rounding" for file in result.written_files):
        exactly = "exactly, but written files within rounding"
    closeness = {"same": exactly, "rounding": "within rounding"}
    return closeness.get(result.agreement.verdict, "")


def make_edits_tile(result: CarryResult) -> list[Tile]:
    if not result.edits:
        return []
    ran = sum(edit.is_executed for edit in result.edits)
    return [Tile("edits executed", f"{ran} of {len(result.edits)}", good=True if ran == len(result.edits) else None)]


def make_steps_tile(result: CarryResult) -> Tile:
    count = "not run"
    if result.migrated is not None:
        count = f"{result.migrated.summary.steps} of {result.golden_run.summary.steps}"
    return Tile("steps", count, plural(result.request.ranks, "rank"))


def make_agreement_tile(agreement: Agreement, kind: ValueKind) -> Tile:
    """Return the tile of one kind of values, without those that are mostly rounding."""
    pairs, judged = agreement.pairs_of(kind), agreement.informative_pairs(kind)
    if not pairs:
        return Tile(f"{PLURALS[kind]} that agree", "not seen", "not compared")
    if agreement.verdict == "unsure":
        equal = sum(pair.same for pair in pairs)
        note = "the others are not judged" if equal < len(pairs) else ""
        return Tile(f"{PLURALS[kind]} that are equal", f"{equal} of {len(pairs)}", note, good=None)
    bad = sum(pair.bad for pair in judged)
    hidden = len(pairs) - len(judged)
    note = f"{hidden} of {len(pairs)} not judged: mostly rounding" if hidden else ""
    agreeing = f"{len(judged) - bad} of {len(judged)}"
    return Tile(f"{PLURALS[kind]} that agree", agreeing, note, good=False if bad else None if hidden else True)


def make_limits_tile(result: CarryResult) -> Tile:
    met = len(result.met_limits)
    if met:
        return Tile("limits met", str(met), good=False)
    if result.migrated is None:
        return Tile("limits met", "not run")
    unchecked = describe_unchecked(result.request.limits)
    if unchecked == NOT_CHECKED:
        return Tile("limits met", "not checked", "--limits off")
    note = unchecked or ("" if result.migrated.is_finished else "before the run ended")
    return Tile("limits met", "0", note, None if note else True)


def make_manual_tile(sides: Sides) -> Tile:
    manual, unanalysed = len(sides.manual_findings), sides.unanalysed_count
    note = f"{plural(unanalysed, 'file')} could not be analysed" if unanalysed else ""
    return Tile("manual review", str(manual), note, good=None if manual or unanalysed else True)


# ---- the first divergence


def make_divergence_sections(result: CarryResult) -> list[Section]:
    explanation = result.explanation
    if explanation is None:
        return make_output_sections(result)
    parts: list[Part] = []
    if result.suspects:
        rows = [[suspect.place, suspect.why, suspect.old, suspect.new] for suspect in result.suspects]
        columns = ["migrated line", "why it is suspected", "before", "after"]
        parts.append(Table(columns, rows, "Changed lines, the likeliest first"))
    if explanation.changed_settings:
        columns = ["object", "setting", "original", "migrated", "line"]
        rows = []
        for setting in explanation.changed_settings[:MAX_SETTINGS]:
            line = f"{display_path(result, setting.right_at[0])}:{setting.right_at[1]}" if setting.right_at else ""
            rows.append([setting.name, setting.what, format_value(setting.left), format_value(setting.right), line])
        parts.append(Table(columns, rows, "Created with other values"))
    return [Section("First divergence", " ".join(explanation.remarks), parts)]


def make_output_sections(result: CarryResult) -> list[Section]:
    run = result.failed_run
    if run is None:
        return []
    code = Code(run.output_tail, f"runs/{run.name}/output.txt")
    return [Section("Output", "The last lines that the failed run printed.", [code])]


# ---- the numbers


def make_loss_sections(result: CarryResult) -> list[Section]:
    runs = [run for run in (result.golden_run, result.migrated) if run is not None and run.observations.ranks]
    if not runs:
        return []
    lines = [make_loss_series(run, rank) for run in runs for rank in list_drawn_ranks(run)]
    equal = has_equal_losses(result)
    if equal:
        originals = lines[: len(list_drawn_ranks(runs[0]))]
        lines = [replace(line, name=f"{line.name} and migrated, equal") for line in originals]
    charts: list[Part] = [LineChart("Loss", "step", "loss", lines)]
    if result.agreement is not None and not equal:
        # The first loss of each step has the name "loss".
        pairs = [pair for pair in result.agreement.pairs_of("loss") if pair.name == "loss" and pair.rank == 0]
        steps = [pair.step for pair in pairs]
        series = [Series("difference", steps, [pair.error for pair in pairs])]
        if any(pair.noise for pair in pairs):
            series.append(Series("allowed", steps, [pair.allowed for pair in pairs]))
        rank_name = ", rank 0" if len(list_drawn_ranks(runs[0])) > 1 else ""
        charts.append(LineChart(f"Relative difference{rank_name}", "step", "of the loss", series, log_y=True))
    return [Section("Losses", describe_losses(result), charts)]


def describe_losses(result: CarryResult) -> str:
    if result.agreement is None:
        return ""
    text = "Losses of the original, and of the migrated script on the stand-in."
    ranks = result.golden_run.observations.ranks
    if has_equal_losses(result):
        of_each_rank = " for each rank" if len(ranks) > 1 else ""
        text = f"Exactly equal, step by step: original and migrated are drawn as one line{of_each_rank}."
    if len(ranks) > MAX_DRAWN_RANKS:
        text += f" The first {MAX_DRAWN_RANKS} of {len(ranks)} ranks are drawn."
    return text


def has_equal_losses(result: CarryResult) -> bool:
    pairs = result.agreement.pairs_of("loss") if result.agreement is not None else []
    return bool(pairs) and all(pair.same for pair in pairs)


def list_drawn_ranks(run: Run) -> list[Rank]:
    return run.observations.ranks[:MAX_DRAWN_RANKS]


def make_loss_series(run: Run, rank: Rank) -> Series:
    values = [step[0] if step else None for step in rank.losses]
    name = name_side(run)
    if len(run.observations.ranks) > 1:
        name += f", rank {rank.number}"
    return Series(name, list(range(len(values))), values)


def name_side(run: Run) -> str:
    """Return the side of a golden or migrated run; the run "reference" is the original with the intended changes."""
    return "original, with the intended changes" if run.name == "reference" else run.name


def make_layer_sections(result: CarryResult) -> list[Section]:
    layers = group_by_layer(result.agreement) if result.agreement is not None else []
    if not layers:
        return []
    text = (
        "Tensors with a gradient come first. They are in the order in which the script creates them, mostly the order "
        "of the forward pass. Buffers and variables of optimizers, if any, follow."
    )
    if len(result.original.observations.ranks) > 1:
        text = f"{text} The values are rank 0's."
    differing = [layer for layer in layers if not all(pair.same for pair in layer[1].values())]
    is_judged = result.agreement is not None and result.agreement.verdict != "unsure"
    chart: list[Part] = [draw_layers(differing, len(layers), is_judged)] if differing else []
    return [Section("Drift by layer", text, [*chart, list_layers(layers, is_judged)])]


def draw_layers(differing: Sequence[Layer], count: int, is_judged: bool) -> NamedBars:
    """Return the chart of the layers that differ, or of the MAX_CHARTED_LAYERS that differ most, in their order.

    `count`: number of all layers. Without `is_judged` no bar is marked as bad.
    """
    largest = sorted(differing, key=lambda layer: -max(pair.error for pair in layer[1].values()))[:MAX_CHARTED_LAYERS]
    drawn = [layer for layer in differing if layer in largest]
    text = f"{len(differing):,} of {plural(count, 'layer')} {'differs' if len(differing) == 1 else 'differ'}."
    if len(drawn) < len(differing):
        text += f" The {len(drawn)} that differ most are drawn; the table has all."
    if equal := count - len(differing):
        text += f" {plural(equal, 'layer')} without a bar: all compared values are equal."
    series = [
        BarSeries(
            name,
            [pairs[kind].error if kind in pairs else None for _, pairs in drawn],
            frozenset(
                index for index, (_, pairs) in enumerate(drawn) if is_judged and kind in pairs and pairs[kind].bad
            ),
        )
        for kind, name in MOMENTS.items()
    ]
    return NamedBars("Relative difference by layer", [name for name, _ in drawn], series, text)


def group_by_layer(agreement: Agreement) -> list[Layer]:
    """Return the pairs of rank 0 by layer: layers with a gradient first, then others, such as optimizer variables."""
    pairs = [pair for pair in agreement.pairs if pair.kind != "loss" and pair.rank == 0]
    layers: dict[str, dict[str, ValuePair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair.kind != "gradient"):
        layers.setdefault(pair.name, {})[pair.kind] = pair
    return list(layers.items())


def list_layers(layers: Sequence[Layer], is_judged: bool) -> Table:
    """Return the table of all layers; with their tolerances and verdicts if something differs and `is_judged`."""
    columns = ["layer", *MOMENTS.values()]
    rows: list[list[object]] = [[name, *map(format_difference, map(pairs.get, MOMENTS))] for name, pairs in layers]
    if not is_judged or all(pair.same for _, pairs in layers for pair in pairs.values()):
        return Table(columns, rows, "Relative difference by layer")
    judged = [[*row, *judge_layer(pairs)] for row, (_, pairs) in zip(rows, layers, strict=True)]
    columns += ["allowed (gradient / weight)", "verdict"]
    return Table(columns, judged, "Relative difference by layer, in numbers")


def judge_layer(pairs_by_kind: dict[str, ValuePair]) -> list[object]:
    """Return the cells of the columns "allowed" and "verdict"."""
    pairs = list(pairs_by_kind.values())
    bad = [pair for pair in pairs if pair.bad]
    tolerances = {kind: pair.allowed for kind, pair in pairs_by_kind.items() if pair.allowed}
    allowed = " / ".join(f"{tolerances[kind]:.1e}" if kind in tolerances else "–" for kind in MOMENTS)
    if bad:
        why = next((pair.why for pair in bad if pair.why), "")
        verdict = f"bad: {why}" if why else "bad"
    elif all(pair.is_informative for pair in pairs):
        verdict = "good"
    else:
        verdict = "not judged: mostly rounding"
    return [Value(allowed, max(tolerances.values())) if tolerances else None, verdict]


def format_difference(pair: ValuePair | None) -> Value | None:
    if pair is None:
        return None
    if pair.same:
        return Value("equal", 0.0)
    if pair.why:
        return Value("not compared", math.inf)
    return Value(f"{pair.error:.1e}" if math.isfinite(pair.error) else "no measure", pair.error)


# ---- files that were written or executed


def make_written_sections(result: CarryResult) -> list[Section]:
    """Return the files that the scripts wrote, differing ones first."""
    order = {"differs": 0, "not compared": 1}
    files = sorted(result.written_files, key=lambda file: order.get(file.state, 2))
    if not files:
        return []
    rows = [[file.name, "within rounding" if file.state == "rounding" else file.state, file.detail] for file in files]
    columns = ["file", "result", "what was compared, or why not"]
    return [Section("Written files", "Files that the runs wrote, compared by content.", [Table(columns, rows)])]


def make_executed_sections(result: CarryResult) -> list[Section]:
    """Return the project's files that each side executed, with their hashes; then the edits."""
    if result.migrated is None:
        return []
    runs = result.golden_run, result.migrated
    # Both are by position: the path within the project, which is the same on both sides.
    ours, theirs = ({file.position: file for file in run.executed_files.in_project} for run in runs)
    positions = [*dict.fromkeys([*ours, *theirs, *result.sides.diffs])]
    rows = [make_file_row(result, path, ours.get(path), theirs.get(path)) for path in positions]
    columns = ["file", name_side(result.golden_run), "migrated", "in processes", "remark"]
    text = "SHA-256 of each file when it was executed. Each side may execute only the project files of its own folder."
    outside = sorted({*result.golden_run.executed_files.outside, *result.migrated.executed_files.outside})
    if outside:
        text += f" Outside both folders, and not migrated: {', '.join(outside[:MAX_OUTSIDE_FILES])}"
        text += f" and {len(outside) - MAX_OUTSIDE_FILES} more." if len(outside) > MAX_OUTSIDE_FILES else "."
    files = Section("Files that were executed", text, [Table(columns, rows)] if rows else [])
    return [files, *make_edit_sections(result)]


def make_edit_sections(result: CarryResult) -> list[Section]:
    """Return the changed lines with their counts; lines that were never executed come first."""
    if not result.edits:
        return []
    rows = [
        [f"{edit.side} {edit.place}", format_executions(edit), edit.text]
        for edit in sorted(result.edits, key=lambda edit: (edit.is_executed, bool(edit.count)))
    ]
    ran = sum(edit.is_executed for edit in result.edits)
    where = " here or in an earlier carry" if any(edit.earlier for edit in result.edits) else ""
    lines = plural(len(result.edits), "changed line")
    text = (
        f"{ran} of {lines} with code {'was' if ran == 1 else 'were'} executed{where}, "
        "counted in all processes together. Lines that never ran are not proved. The count of a line with several "
        "branches is that of the branch that ran least. Lines that the migration removed are counted in the original."
    )
    return [Section("Edits that were executed", text, [Table(["line", "executed", "text"], rows)])]


def format_executions(edit: Edit) -> Value:
    if edit.earlier:
        return Value(f"in {edit.earlier}", 0.0)
    return Value(f"{edit.count:,}" if edit.count else "never", float(edit.count))


def make_file_row(
    result: CarryResult, path: str, left: ExecutedFile | None, right: ExecutedFile | None
) -> list[object]:
    hashes = [file.sha256[:12] or "no source" if file else "not executed" for file in (left, right)]
    counts = [file.processes for file in (left, right) if file]
    remark = next((f"{file.problem}: {file.detail}" for file in (right, left) if file and file.problem), "")
    if not remark and right is None and path in result.sides.diffs:
        earlier = next((edit.earlier for edit in result.edits if edit.file == path and edit.earlier), "")
        remark = f"rewritten, executed in {earlier}" if earlier else "rewritten, never executed"
    if not remark and left and right:
        remark = "rewritten" if left.sha256 != right.sha256 else "the same"
    return [path, *hashes, max(counts, default=0), remark]


# ---- limits, manual review, changes and commands


def make_limit_sections(result: CarryResult) -> list[Section]:
    if result.migrated is None:
        return []
    fields = ("mode", "what", "card", "change")
    rows = [
        [hit["name"], format_location(result, hit["place"]), *(hit[field] for field in fields)]
        for hit in result.met_limits
    ]
    columns = ["limit", "line", "mode", "what the script does", "what the card would do", "what to change"]
    text = "docs/rehearse.md lists all limits that are checked." if rows else describe_no_limit(result)
    return [Section("Limits", text, [Table(columns, rows)] if rows else [])]


def describe_no_limit(result: CarryResult) -> str:
    unchecked = describe_unchecked(result.request.limits)
    if unchecked == NOT_CHECKED:
        return "Not checked: --limits off."
    end = "" if result.migrated is not None and result.migrated.is_finished else " before the run ended"
    remark = f" {unchecked[0].upper()}{unchecked[1:]}." if unchecked else ""
    return f"None of the card's limits that docs/rehearse.md lists was met{end}.{remark}"


def format_location(result: CarryResult, location: dict[str, object] | None) -> str:
    return f"{display_path(result, str(location['file']))}:{location['line']}" if location else ""


def make_manual_section(result: CarryResult) -> Section:
    lang = result.request.lang
    rows = [[item.risk, line, item.message_in(lang), item.rule] for line, item in result.sides.manual_findings]
    unanalysed = result.sides.unanalysed_count
    text = "Lines that the rules cannot decide from the text of the script; the riskiest first."
    if not rows:
        text = "The rules found no line that needs a review."
        if unanalysed:
            text = f"{text[:-1]} in the files that were analysed; {plural(unanalysed, 'file')} could not be analysed."
    return Section("Manual review", text, [Table(["risk", "line", "what to do", "rule"], rows)] if rows else [])


def make_changes_section(result: CarryResult) -> Section:
    files = [comment_rows(result, file) for file in result.sides.make_diffs(result.request.lang)]
    unchanged = (
        "The rules changed nothing." if result.sides.migration else "No script that both sides have was changed."
    )
    text = "Line by line: − the original, + the migrated script." if files else unchanged
    return Section("Changes", text, [DiffView(files)] if files else [])


def comment_rows(result: CarryResult, file: DiffFile) -> DiffFile:
    """Return the diff with a comment on each suspected line and each edit that was never executed."""
    edits = [edit for edit in result.edits if edit.file == file.name and not edit.is_executed]
    unexecuted, removed = ({edit.line for edit in edits if edit.side == side} for side in ("migrated", "original"))
    reasons = {suspect.line: suspect.why for suspect in result.suspects if suspect.file == file.name}
    rows: list[DiffRow | int] = []  # an integer is the number of unchanged lines that are left out
    for row in file.rows:
        if isinstance(row, DiffRow) and row.kind != "same" and row.new in reasons:
            comment = Comment(f"suspected: {reasons[row.new]}", "carry", "suspected", "bad")
            row = replace(row, comments=[*row.comments, comment])
        if isinstance(row, DiffRow) and (
            (row.new in unexecuted and row.kind != "same") or (not row.new and row.old in removed)
        ):
            comment = Comment("this edit was never executed", "carry", "not proved", "warn")
            row = replace(row, comments=[*row.comments, comment])
        rows.append(row)
    return replace(file, rows=rows)


def make_commands_section(result: CarryResult) -> Section:
    lines = list_commands(result.request, result.sides, result.framework)
    text = "The commands have the arguments of this carry; change them to those of the real data."
    return Section("On the real machine", text, [Code(line, name) for name, line in lines])


def make_baseline_sections(result: CarryResult) -> list[Section]:
    """Return the table of accuracy and speed: figures measured here, and empty cells for figures of the devices."""
    if result.migrated is None or not result.migrated.is_finished:
        return []
    measured = describe_speed(result)
    text = (
        f"{measured[1] if measured else 'A run took too few steps to measure a speed.'} Speeds are medians over the "
        f"intervals between steps, and not part of the verdict. {BASELINE_FILE} has this table for a spreadsheet: "
        "enter the figures of the original on its own device, and of the migrated script on the card."
    )
    rows: list[list[object]] = [[*row, "", ""] for row in list_figures(result)]
    return [Section("Accuracy and speed", text, [Table(name_columns(result), rows, "The baseline")])]


def make_method_section(result: CarryResult) -> Section:
    request = result.request
    facts = {
        "original": str(result.sides.original_script),
        "migrated": str(result.sides.migrated_script),
        "arguments": " ".join(request.arguments) or "none",
        "seed": request.seed,
        "steps": request.steps,
        "ranks": request.ranks,
        "limits": request.limits,
        "versions": ", ".join(f"{name} {number}" for name, number in result.original.summary.versions.items()),
    }
    parts: list[Part] = [Facts(facts), Code(request.command, "The command")]
    if result.device_tests:
        rows = [[test.place, test.text] for test in result.device_tests]
        parts.append(Table(["original line", "text"], rows, "Lines that test the device"))
    if result.agreement is None:
        return Section("How it was run", "Nothing was compared, since a script failed. docs/carry.md says more.", parts)
    text = (
        "Both scripts were started twice with the same seed, each run in its own process and its own copy of the "
        "working folder. The same kernels of the CPU computed both, so equal values are expected. "
    )
    if result.finished_perturbed is not None:
        text += (
            "Rounding was measured by a run of the original whose weights were moved by one unit in the last place. "
        )
    return Section("How it was compared", f"{text}docs/carry.md says more.", parts)
