"""Terminal summary of a profile: the run, its phases, operators, advice and notes.

    print(format_summary(profile, width=100))

Prose wraps at the width. An operator whose name is too long for the line of its figures gets two lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len  # columns of a text; a Chinese character takes two

from viaduct.profiling.measures import (
    PHASE_NAMES,
    PHASES_UNKNOWN,
    SHORT_PHASE_NAMES,
    RankFigures,
    choose_headline,
    concerns_only_accelerators,
    count_steps,
    describe_left_out,
    describe_uneven,
    explain_missing_iterations,
    find_roofline_share,
    list_conditions,
    list_first_rank_operators,
    make_closing_sentence,
    measure_ranks,
    measure_throughput,
)
from viaduct.profiling.record import Advice, Facts, Operator, Profile
from viaduct.terminal import escape_controls

# Widths in characters: of a narrower terminal, of the bar of a complete iteration, of a line of prose.
MIN_WIDTH, MAX_BAR_WIDTH, MAX_PROSE_WIDTH = 40, 30, 110
MAX_OPERATORS = 8
DEVICES = {"cpu": "CPU", "cuda": "CUDA", "npu": "NPU", "mlu": "MLU"}
BARS = ("░", "█", "▒")
"""Shades of a rank's bar: data tail, forward + backward, update tail (measures.py defines these phases)."""


def format_summary(profile: Profile, width: int = 100) -> str:
    """Return the summary as plain text, for a terminal of this width."""
    width = max(width, MIN_WIDTH)
    blocks = [
        wrap(describe_run(profile.facts), width),
        format_phases(profile, width),
        format_operators(profile, width),
        format_advice(profile, width),
        *format_notes(profile.facts, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def describe_run(facts: Facts) -> str:
    """Return source, device, conditions and number of steps in one sentence."""
    device = DEVICES.get(facts.device, facts.device)
    conditions = [f"{device}: {facts.description}" if facts.description else device, *list_conditions(facts)]
    return f"{facts.source} on {', '.join(conditions)}; {describe_steps(facts)}"


def describe_steps(facts: Facts) -> str:
    """Return the numbers of timed, warm-up and recorded steps."""
    if not facts.timed_steps and not facts.recorded_steps and not facts.warmup_steps:
        return "no steps were found"
    if not facts.timed_steps and facts.recorded_steps:
        return f"{count_steps(facts.recorded_steps)}, all of them under the operator profiler"
    warmup = f" after {facts.warmup_steps:,} of warm-up" if facts.warmup_steps else ""
    recorded = f", operators of {facts.recorded_steps:,}" if facts.recorded_steps else ", no operators recorded"
    return f"{count_steps(facts.timed_steps)} timed{warmup}{recorded}"


# Phases


def format_phases(profile: Profile, width: int) -> list[str]:
    """Return a line for the iteration and each phase of one rank, or a line for each of several ranks."""
    ranks = measure_ranks(profile)
    if not ranks:
        return wrap(f"The times of an iteration are not known: {explain_missing_iterations(profile)}.", width)
    lines = format_one_rank(ranks[0], width) if len(ranks) == 1 else format_several_ranks(ranks, width)
    if not profile.facts.phases_measured:
        lines += wrap(PHASES_UNKNOWN, width)
    throughput = measure_throughput(profile)
    if throughput is not None:
        lines.append(f"{format_rate(throughput)} images/s")
    left_out = [step for step in profile.steps if step.interrupted_by and not step.is_recorded]
    for sentence in (*describe_uneven(ranks), *describe_left_out(left_out)):
        lines += wrap(sentence, width)
    return lines


def format_one_rank(figures: RankFigures, width: int) -> list[str]:
    """Return a line with a bar for the iteration and each phase of one rank; the bars show shares."""
    rows = [figures.iteration, *figures.phases]
    names = ["iteration", *(PHASE_NAMES if width >= 80 else SHORT_PHASE_NAMES)][: len(rows)]
    name_width = max(map(len, names))
    times = format_ms_column([row.median_us for row in rows])
    time_width = max(len("median ms"), *map(len, times))
    lines = [f"{'':{name_width}}  {'median ms':>{time_width}}  {'share':>7}"]
    bar_width = max(0, min(MAX_BAR_WIDTH, width - len(lines[0]) - 2))  # 2: the gap before the bar
    for name, row, time in zip(names, rows, times, strict=True):
        figures_text = f"{time:>{time_width}}  {format_percent(row.share):>7}"
        lines.append(f"{name:{name_width}}  {figures_text}  {'█' * round(row.share * bar_width)}".rstrip())
    return lines


def format_several_ranks(ranks: Sequence[RankFigures], width: int) -> list[str]:
    """Return a line for each rank: its medians in ms, and a bar of its phases' means; all bars have one scale."""
    heads = ["rank", "iteration", "data", "fwd+bwd", "update"][: 2 + len(ranks[0].phases)]
    figures_by_column = [[figures.iteration.median_us for figures in ranks]]
    figures_by_column += [[figures.phases[index].median_us for figures in ranks] for index in range(len(heads) - 2)]
    cells = [[str(figures.rank) for figures in ranks], *map(format_ms_column, figures_by_column)]
    rows = list(zip(*cells, strict=True))
    widths = [max(len(row[index]) for row in (heads, *rows)) for index in range(len(heads))]
    bar_width = max(0, min(MAX_BAR_WIDTH, width - sum(widths) - 2 * len(widths)))
    scale = bar_width / (max(figures.iteration.mean_us for figures in ranks) or 1.0)
    lines = ["  ".join(head.rjust(length) for head, length in zip(heads, widths, strict=True)) + "  (medians in ms)"]
    for figures, row in zip(ranks, rows, strict=True):
        line = "  ".join(cell.rjust(length) for cell, length in zip(row, widths, strict=True))
        lines.append(f"{line}  {draw_phases(figures, scale)}".rstrip())
    if bar_width and ranks[0].phases:
        lines += wrap("bars (means): ░ data tail, █ forward + backward, ▒ gradient aggregation and update tail", width)
    return lines


def draw_phases(figures: RankFigures, scale: float) -> str:
    """Return a bar of three shades, or of one if the phases are not known; `scale`: characters for a microsecond.

    Each shade ends at the rounded sum of the phases so far, so that rounding errors do not add up.
    """
    bar, end, drawn = "", 0.0, 0
    shades = BARS if figures.phases else BARS[1:2]
    for shade, phase in zip(shades, figures.phases or (figures.iteration,), strict=True):
        end += phase.mean_us * scale
        bar += shade * max(0, round(end) - drawn)
        drawn = len(bar)
    return bar


# Operators


def format_operators(profile: Profile, width: int) -> list[str]:
    operators = list_first_rank_operators(profile)
    total = sum(operator.device_or_self_us for operator in operators)
    if not operators or total <= 0:
        return []
    rank = f" of rank {operators[0].rank}" if profile.facts.ranks > 1 else ""
    # On the device, the time of an operator's kernels; on the host, its time without the operators that it calls.
    measured_on = "on the device" if any(operator.device_us is not None for operator in operators) else "on the host"
    recorded_us = profile.facts.recorded_step_us
    recording = (
        "" if recorded_us is None else f", in steps that took {format_ms(recorded_us)} ms while they were recorded"
    )
    title = f"Operators{rank}: {format_ms(total)} ms a step {measured_on}{recording}"
    shown = operators[:MAX_OPERATORS]
    lines = [*wrap(title, width), *format_operator_lines(shown, total, profile, width)]
    if others := operators[len(shown) :]:
        share = format_percent(sum(operator.device_or_self_us for operator in others) / total)
        lines += wrap(f"and {len(others):,} more: {share}", width, "  ", "  ")
    return lines


def format_operator_lines(operators: Sequence[Operator], total: float, profile: Profile, width: int) -> Iterator[str]:
    """Yield a heading and a line for each operator, or two lines if its name is long."""
    times = format_ms_column([operator.device_or_self_us for operator in operators])
    names = [name_operator(operator) for operator in operators]
    time_width = max(len("ms"), *map(len, times))
    name_width = min(max(map(cell_len, names)), width - time_width - 22)  # 22: indent, gaps, share and roofline
    yield f"{'':{name_width}}    {'ms':>{time_width}}  {'share':>6}  {'roofline':>8}"
    for operator, name, time in zip(operators, names, times, strict=True):
        reached = find_roofline_share(operator, profile.ceilings)
        roofline = "–" if reached is None else f"{100 * reached:.0f} %"
        figures = f"  {time:>{time_width}}  {format_percent(operator.device_or_self_us / total):>6}  {roofline:>8}"
        if cell_len(name) <= name_width:
            yield f"  {name}{' ' * (name_width - cell_len(name))}{figures}"
        else:
            yield f"  {name}"
            yield f"  {'':{name_width}}{figures}"


def name_operator(operator: Operator) -> str:
    """Return the operator's name with its module, or with its line in the script if the module is not known."""
    location = operator.module or operator.location
    return escape_controls(f"{operator.name}  {location}" if location else operator.name)


# Advice


def format_advice(profile: Profile, width: int) -> list[str]:
    """Return numbered advice; if there is none, the headline, which says why."""
    if not profile.advice:
        return wrap(f"{choose_headline(profile).text}.", width)
    lines: list[str] = []
    for number, advice in enumerate(profile.advice, 1):
        lines += ["", *format_one_advice(number, advice, profile, width)]
    closing_sentence = make_closing_sentence(profile)
    return [*lines[1:], *(["", *wrap(f"{closing_sentence}.", width)] if closing_sentence else [])]


def format_one_advice(number: int, advice: Advice, profile: Profile, width: int) -> list[str]:
    head = f"{number}. "
    indent = " " * len(head)
    lines = wrap(advice.title, width, head, indent)
    lines += wrap(advice.action, width, indent, indent)
    for sentence in advice.evidence:
        lines += wrap(sentence, width, f"{indent}- ", f"{indent}  ")
    if advice.locations:
        lines += wrap(f"at {', '.join(advice.locations)}", width, indent, indent)
    return [*lines, *wrap(describe_gain(advice, profile), width, indent, indent)]


def describe_gain(advice: Advice, profile: Profile) -> str:
    """Return the expected gain of an advice and its basis."""
    if concerns_only_accelerators(advice, profile):
        return f"Expected gain: {advice.gain_basis}"  # "none on this CPU, …"
    basis = f" ({advice.gain_basis})" if advice.gain_basis else ""
    if advice.gain_us is None:
        return f"Expected gain: not measured{basis}"
    iteration = profile.iteration_us
    share = f", {format_percent(advice.gain_us / iteration)} of the iteration" if iteration else ""
    return f"Expected gain: {format_ms(advice.gain_us)} ms a step{share}{basis}"


# Notes


def format_notes(facts: Facts, width: int) -> Iterator[list[str]]:
    """Yield how the time points of a step were found, the notes, and the reason of an early end."""
    lists = {"How the time points were found:": facts.phases_found_by, "Notes:": facts.notes}
    for title, sentences in lists.items():
        if sentences:
            yield [title, *(line for sentence in sentences for line in wrap(sentence, width, "  ", "    "))]
    if facts.ended:
        yield wrap(f"Ended early: {facts.ended}", width)


# Texts and figures


def wrap(text: str, width: int, first: str = "", following: str = "") -> list[str]:
    """Break prose into lines between words; control characters in it are escaped."""
    return textwrap.wrap(
        escape_controls(" ".join(text.split())),
        min(width, MAX_PROSE_WIDTH),
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )


def format_ms(time_us: float) -> str:
    """Return microseconds as milliseconds: without decimals from 1000 ms, with one from 10 ms, else with three."""
    milliseconds = time_us / 1000
    size = abs(milliseconds)
    return f"{milliseconds:,.0f}" if size >= 1000 else f"{milliseconds:.1f}" if size >= 10 else f"{milliseconds:.3f}"


def format_ms_column(times_us: Sequence[float]) -> list[str]:
    """Return a column of microseconds as milliseconds with the same number of decimals."""
    largest = max(map(abs, times_us), default=0.0) / 1000
    decimals = 1 if largest >= 100 else 2 if largest >= 10 else 3
    return [f"{time / 1000:,.{decimals}f}" for time in times_us]


def format_percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
