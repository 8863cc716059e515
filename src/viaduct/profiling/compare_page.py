"""The page of a comparison of two profiles: the headline, then phases, kernels, operators and what else differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from viaduct.reporting import BarGroup, Callout, Page, Remark, Section, StackedBars, Table, Tile, Tone, write_page
from viaduct.reporting import Facts as FactList

from .compare import NOISE_FLOOR, STANDARD_ERRORS, FigureDifference, ProfileDifference
from .compare_text import (
    format_bytes,
    format_change,
    format_count,
    format_headline,
    format_judgement,
    format_us,
    list_remarks,
    name_sides,
)
from .record import Profile

MAX_OPERATORS = 300  # in the table; operators that changed less are left out


def write_difference_page(difference: ProfileDifference, path: Path) -> None:
    names = name_sides(difference)
    sections = [
        *list_steps(difference, names),
        *list_kernels(difference, names),
        *list_operators(difference, names),
        Section("The two profiles", "", describe_sides(difference, names)),
    ]
    remarks = [Remark("Note", text) for text in list_remarks(difference)]
    page = Page(
        " and ".join(names),
        f"{difference.before.facts.source} against {difference.after.facts.source}",
        list_tiles(difference),
        sections,
        [Callout(choose_tone(difference), format_headline(difference), remarks)],
        verb="profile compare",
        kind="comparison of profiles",
    )
    write_page(page, path)


def choose_tone(difference: ProfileDifference) -> Tone:
    """Return "good" for no difference or a faster iteration, "bad" for a slower iteration, otherwise "warn"."""
    iteration = difference.iteration
    if difference.exit_code == 2 or (difference.differs and not iteration.exceeds_noise):
        return "warn"
    return "bad" if iteration.is_slower else "good"


def list_tiles(difference: ProfileDifference) -> list[Tile]:
    figures = [difference.iteration, *difference.phases]
    tiles = []
    for figure in figures:
        if figure.before_us is None or figure.after_us is None:
            continue
        is_faster = None if figure.is_slower is None else not figure.is_slower
        value = f"{format_us(figure.before_us)} → {format_us(figure.after_us)}"
        note = f"{format_change(figure.change_us)}; beyond the noise: {format_judgement(figure)}"
        tiles.append(Tile(figure.name, value, note, is_faster))
    before, after = difference.memory
    if before is not None and after is not None:
        tiles.append(Tile("memory at the peak", f"{format_bytes(before)} → {format_bytes(after)}"))
    return tiles


def list_steps(difference: ProfileDifference, names: tuple[str, str]) -> list[Section]:
    parts: list[StackedBars | Table] = []
    if difference.phases:
        parts.append(draw_bars("Phases of an iteration", difference.phases, names))
    if difference.step_parts:
        parts.append(draw_bars("Parts of a step", difference.step_parts[1:], names))  # the first one is their sum
    figures = [difference.iteration, *difference.phases, *difference.step_parts]
    rows = [make_row(figure) for figure in figures if figure.before_us is not None or figure.after_us is not None]
    if rows:
        times = (f"{name}, µs" for name in names)
        columns = ["per step", *times, "change, µs", "ratio", "noise, µs", "beyond the noise"]
        parts.append(Table(columns, rows, "Medians of the steps"))
    text = (
        "A difference of the medians counts where it exceeds the spread of the steps, one of the means where it "
        f"exceeds {STANDARD_ERRORS:g} standard errors; both must exceed {NOISE_FLOOR:.0%} of the iteration."
    )
    return [Section("Where the time goes", text, parts)] if parts else []


def draw_bars(title: str, figures: Sequence[FigureDifference], names: tuple[str, str]) -> StackedBars:
    times = [(figure.before_us, figure.after_us) for figure in figures]
    layers = [[None if time is None else time / 1000 for time in pair] for pair in times]
    groups = [BarGroup("both", list(names), layers)]
    return StackedBars(title, "profile", "time", [figure.name for figure in figures], groups, "ms")


def make_row(figure: FigureDifference) -> list[object]:
    verdict = "–" if figure.noise_us is None else "yes" if figure.exceeds_noise else "no"
    return [figure.name, figure.before_us, figure.after_us, figure.change_us, figure.ratio, figure.noise_us, verdict]


def list_kernels(difference: ProfileDifference, names: tuple[str, str]) -> list[Section]:
    if not difference.kernels:
        return []
    columns = ["kind", *(f"{name}, µs" for name in names), "change, µs", "ratio"]
    rows = [[row.name, row.before_us, row.after_us, row.change_us, row.ratio] for row in difference.kernels]
    return [Section("Kernels by kind", "Time per recorded step, mean over the ranks.", [Table(columns, rows)])]


def list_operators(difference: ProfileDifference, names: tuple[str, str]) -> list[Section]:
    """Return the operators that changed most, at most MAX_OPERATORS, sorted by the time lost."""
    if not difference.operators:
        return []
    times = [*(f"{name}, µs" for name in names), "lost, µs", "ratio"]
    columns = ["operator", "shapes", "module", *times, "calls", "matched by"]
    rows = []
    changed = sorted(difference.operators, key=lambda row: -abs(row.change_us))[:MAX_OPERATORS]
    for row in sorted(changed, key=lambda row: -row.change_us):
        calls = f"{format_count(row.before_calls)} → {format_count(row.after_calls)}"
        figures = [row.before_us, row.after_us, row.change_us, row.ratio]
        rows.append([row.name, row.shapes, row.module, *figures, calls, row.matched_by or "only one profile has it"])
    hidden = len(difference.operators) - len(rows)
    text = "Time per recorded step, mean over the ranks; most time lost first; a ratio above 1 is slower."
    text += f" {hidden:,} operators that changed less are left out." if hidden > 0 else ""
    return [Section("Operators", text, [Table(columns, rows)])]


def describe_sides(difference: ProfileDifference, names: tuple[str, str]) -> list[FactList | Table]:
    sides = zip(names, (difference.before, difference.after), strict=True)
    parts: list[FactList | Table] = [FactList(describe_profile(profile), name) for name, profile in sides]
    if difference.facts:
        parts.insert(0, Table(["what differs", *names], [list(fact) for fact in difference.facts]))
    return parts


def describe_profile(profile: Profile) -> dict[str, object]:
    facts = profile.facts
    return {
        "source": facts.source,
        "device": " ".join(filter(None, [facts.device, facts.description])),
        "ranks": facts.ranks,
        "batch": facts.batch,
        "precision": facts.precision or None,
        "steps": len(profile.regular_steps),
        **{f"note {number}": note for number, note in enumerate(facts.notes, 1)},
    }
