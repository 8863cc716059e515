"""A carrying as one page: the answer, then its evidence, then what is left to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from viaduct.carrying.agreement import Kind, Pair
from viaduct.carrying.carry import Carried, Verdict
from viaduct.carrying.causes import shown_value
from viaduct.carrying.commands import commands
from viaduct.carrying.running import Run
from viaduct.carrying.words import headline, remarks, shown
from viaduct.migration.summary import plural
from viaduct.reporting import (
    Callout,
    Code,
    Comment,
    DiffFile,
    DiffRow,
    DiffView,
    Facts,
    LineChart,
    Page,
    Part,
    Remark,
    Section,
    Series,
    Table,
    Tile,
    Tone,
    write_page,
)

TONES: dict[Verdict, Tone] = {
    "agrees": "good", "differs": "bad", "unsure": "warn", "limits": "bad", "failed": "bad", "no original": "bad",
}  # fmt: skip
WORDS: dict[Verdict, str] = {
    "agrees": "agrees", "differs": "differs", "unsure": "not proved", "limits": "refused", "failed": "fails",
    "no original": "no original",
}  # fmt: skip
OTHERS = 40  # rows of things that were made with other numbers
EXECUTES = "Both scripts were executed on this machine; no accelerator took part. The numbers are the CPU's."


def write(carried: Carried, path: Path) -> None:
    write_page(page(carried), path)


def page(carried: Carried) -> Page:
    asked = carried.asked
    lead = [Callout(TONES[carried.verdict], headline(carried), [Remark(*pair) for pair in remarks(carried)])]
    sections = [
        *places(carried),
        *losses(carried),
        *drift(carried),
        *limits(carried),
        left(carried),
        changes(carried),
        machine(carried),
        method(carried),
    ]
    return Page(
        f"{carried.sides.entry} carried to {asked.to.upper()}", EXECUTES, tiles(carried), sections, lead, verb="carry"
    )


def tiles(carried: Carried) -> list[Tile]:
    good = True if carried.verdict == "agrees" else None if carried.verdict == "unsure" else False
    steps = carried.migrated.summary.steps if carried.migrated else 0
    manual = len(carried.sides.manual)
    met = len(carried.limits)
    return [
        Tile("verdict", WORDS[carried.verdict], bits(carried), good),
        Tile("steps", f"{steps} of {carried.original.summary.steps}", plural(carried.asked.ranks, "rank")),
        *(tile(carried, kind) for kind in ("loss", "gradient", "weight") if carried.agreement),
        Tile("limits met", str(met), good=not met),
        Tile("left for a person", str(manual), good=None if manual else True),
    ]


def bits(carried: Carried) -> str:
    if carried.agreement is None:
        return ""
    return {"same": "in every bit", "rounding": "within rounding"}.get(carried.agreement.verdict, "")


def tile(carried: Carried, kind: Kind) -> Tile:
    assert carried.agreement is not None
    pairs = carried.agreement.of(kind)
    bad = sum(pair.bad for pair in pairs)
    names = {"loss": "losses", "gradient": "gradients", "weight": "weights"}
    return Tile(f"{names[kind]} that agree", f"{len(pairs) - bad} of {len(pairs)}", good=not bad if pairs else None)


# ---- where they part


def places(carried: Carried) -> list[Section]:
    found = carried.explanation
    if found is None:
        return output_of_failure(carried)
    parts: list[Part] = []
    if carried.suspects:
        rows = [[one.place, one.why, one.old, one.new] for one in carried.suspects]
        parts.append(
            Table(
                ["migrated line", "why it is suspected", "before", "after"], rows, "Changed lines, the likeliest first"
            )
        )
    if found.others:
        columns = ["what", "", "original", "migrated", "line"]
        others = [
            [
                o.name,
                o.what,
                shown_value(o.left),
                shown_value(o.right),
                f"{shown(carried, o.right_at[0])}:{o.right_at[1]}" if o.right_at else "",
            ]
            for o in found.others[:OTHERS]
        ]
        parts.append(Table(columns, others, "Made with other numbers"))
    return [Section("Where they part", " ".join(found.remarks), parts)]


def output_of_failure(carried: Carried) -> list[Section]:
    run = {"no original": carried.original, "failed": carried.migrated}.get(carried.verdict)
    if run is None:
        return []
    return [Section("What it said", "The last lines.", [Code(run.last_words, f"runs/{run.side}/output.txt")])]


# ---- the numbers


def losses(carried: Carried) -> list[Section]:
    sides = [run for run in (carried.base, carried.migrated) if run is not None and run.observed.ranks]
    if not sides:
        return []
    charts: list[Part] = [LineChart("Loss", "step", "loss", [curve(run, rank) for run in sides for rank in ranks(run)])]
    if carried.agreement is not None and not all(pair.same for pair in carried.agreement.of("loss")):
        pairs = [pair for pair in carried.agreement.of("loss") if pair.name == "loss" and pair.rank == 0]
        steps = [pair.step for pair in pairs]
        series = [Series("difference", steps, [pair.error for pair in pairs])]
        if any(pair.noise for pair in pairs):
            series.append(Series("allowed", steps, [pair.allowed for pair in pairs]))
        charts.append(LineChart("Relative difference", "step", "of the loss", series, log_y=True))
    return [Section("Losses", loss_words(carried), charts)]


def loss_words(carried: Carried) -> str:
    if carried.agreement is None:
        return ""
    if all(pair.same for pair in carried.agreement.of("loss")):
        return "Equal in every bit, step by step: the two lines are one."
    return "Of the original, and of the migrated script on the stand-in."


def ranks(run: Run) -> range:
    return range(min(2, len(run.observed.ranks)))


def curve(run: Run, rank: int) -> Series:
    values = [step[0] if step else None for step in run.observed.ranks[rank].losses]
    name = {"original": "original", "migrated": "migrated", "reference": "original, with what was meant"}[run.side]
    return Series(name + (f", rank {rank}" if len(run.observed.ranks) > 1 else ""), list(range(len(values))), values)


def drift(carried: Carried) -> list[Section]:
    if carried.agreement is None:
        return []
    layers = by_layer(carried)
    if not layers:
        return []
    places = list(range(len(layers)))
    series = [
        Series(name, places, [error(found.get(kind)) for _, found in layers])
        for kind, name in (("gradient", "gradient of the first step"), ("weight", "weight at the end"))
    ]
    words = "In the order in which the script makes its layers, which is mostly that of the forward pass."
    parts: list[Part] = [layer_table(layers)]
    if not all(pair.same for pair in carried.agreement.pairs):
        parts.insert(0, LineChart("Relative difference by layer", "layer", "of its size", series, log_y=True))
    return [Section("Drift by layer", words, parts)]


def by_layer(carried: Carried) -> list[tuple[str, dict[str, Pair]]]:
    """Of rank 0; what is trained comes first and in order, the optimizer's own variables behind it."""
    assert carried.agreement is not None
    pairs = [pair for pair in carried.agreement.pairs if pair.kind != "loss" and pair.rank == 0]
    found: dict[str, dict[str, Pair]] = {}
    for pair in sorted(pairs, key=lambda pair: pair.kind != "gradient"):
        found.setdefault(pair.name, {})[pair.kind] = pair
    return list(found.items())


def error(pair: Pair | None) -> float | None:
    return pair.error if pair is not None and math.isfinite(pair.error) else None


def layer_table(layers: Sequence[tuple[str, dict[str, Pair]]]) -> Table:
    columns = ["", "name", "gradient, relative difference", "weight, relative difference", "allowed", "verdict"]
    rows = [[place, name, *layer_row(found)] for place, (name, found) in enumerate(layers)]
    return Table(columns, rows)


def layer_row(found: dict[str, Pair]) -> list[object]:
    both = [found.get(kind) for kind in ("gradient", "weight")]
    bad = [pair for pair in both if pair is not None and pair.bad]
    known = [pair for pair in both if pair is not None]
    verdict = next((pair.why for pair in bad if pair.why), "differs") if bad else ""
    if not bad:
        verdict = "equal" if all(pair.same for pair in known) else "rounding"
    allowed = max((pair.allowed for pair in known), default=0.0)
    return [*(written(pair) for pair in both), f"{allowed:.1e}" if allowed else "", verdict]


def written(pair: Pair | None) -> str | None:
    if pair is None:
        return None
    return "0" if pair.same else f"{pair.error:.1e}" if math.isfinite(pair.error) else "∞"


# ---- what is left


def limits(carried: Carried) -> list[Section]:
    if carried.migrated is None:
        return []
    rows = [
        [hit["name"], place(carried, hit["place"]), hit["mode"], hit["what"], hit["card"], hit["change"]]
        for hit in carried.limits
    ]
    columns = ["limit", "line", "mode", "what the script does", "what the card would do", "what to change"]
    words = "docs/rehearse.md has them all." if rows else "None of the card's documented limits was met."
    return [Section("Limits", words, [Table(columns, rows)] if rows else [])]


def place(carried: Carried, at: dict[str, object] | None) -> str:
    return f"{shown(carried, str(at['file']))}:{at['line']}" if at else ""


def left(carried: Carried) -> Section:
    rows = [[one.risk, at, one.text(carried.asked.lang), one.rule] for at, one in carried.sides.manual]
    words = "What the text of the script does not decide; the riskiest first." if rows else "Nothing was found."
    return Section("Left for a person", words, [Table(["risk", "line", "what to do", "rule"], rows)] if rows else [])


def changes(carried: Carried) -> Section:
    files = [marked(carried, file) for file in carried.sides.diffs(carried.asked.lang)]
    words = "The original on the left, the migrated script on the right." if files else "Nothing was changed."
    return Section("Changes", words, [DiffView(files)] if files else [])


def marked(carried: Carried, file: DiffFile) -> DiffFile:
    """Suspected lines bear a remark."""
    why = {one.line: one.why for one in carried.suspects if one.file == file.name}
    rows: list[DiffRow | int] = []
    for row in file.rows:
        if isinstance(row, DiffRow) and row.kind != "same" and row.new in why:
            said = Comment(f"suspected: {why[row.new]}", "carry", "suspected", "bad")
            row = replace(row, comments=[*row.comments, said])
        rows.append(row)
    return replace(file, rows=rows)


def machine(carried: Carried) -> Section:
    lines = commands(carried.asked, carried.sides, carried.stage)
    words = "With the arguments of this carrying; give it the real data."
    return Section("On the real machine", words, [Code(line, name) for name, line in lines])


def method(carried: Carried) -> Section:
    asked = carried.asked
    facts = {
        "original": str(carried.sides.original),
        "migrated": str(carried.sides.migrated),
        "arguments": " ".join(asked.arguments) or "none",
        "seed": asked.seed,
        "steps": asked.steps,
        "ranks": asked.ranks,
        "limits": asked.limits,
        "versions": ", ".join(f"{name} {number}" for name, number in carried.original.summary.versions.items()),
    }
    parts: list[Part] = [Facts(facts), Code(asked.command, "The command")]
    if carried.branches:
        rows = [[branch.place, branch.text] for branch in carried.branches]
        parts.append(Table(["original line", "text"], rows, "Where the script asks which device it has"))
    words = (
        "Both scripts ran with the same seed and data, each in a process and a copy of the working folder of its own. "
        "The same kernels of the CPU computed both, so equal bits are expected; what a rewrite rounds differently is "
        "measured against a run of the original whose weights were moved by one unit in the last place. Evaluations "
        "and files that the scripts write are not compared. docs/carry.md says more."
    )
    return Section("How it was compared", words, parts)
