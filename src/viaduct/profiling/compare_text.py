"""Terminal output of a comparison of two profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from viaduct.terminal import align_columns

from .compare import MIN_STEPS, NOISE_FLOOR, FigureDifference, OperatorDifference, ProfileDifference
from .measures import measure_throughput

MAX_OPERATORS = 15  # in the table; if there are more, MAX_FASTER of them are those that gained most time
MAX_FASTER = 5


def format_difference(difference: ProfileDifference) -> str:
    names = name_sides(difference)  # of the two profiles, in the heads of columns
    steps = format_figures("per step", [difference.iteration, *difference.phases], names)
    blocks = [[format_headline(difference)], steps]
    if not difference.is_identical:
        blocks += [
            format_figures("parts of a step", difference.step_parts, names),
            format_figures("kernels by kind, per step", difference.kernels, names),
            format_operators(difference.operators, names),
            format_memory(difference),
        ]
    blocks.append(format_facts(difference, names))
    if not difference.is_identical:
        blocks.append(list_remarks(difference))
    return "\n\n".join("\n".join(block) for block in blocks if block)


def name_sides(difference: ProfileDifference) -> tuple[str, str]:
    """Return a name for each profile: the last part of their paths that differs, else "before" and "after"."""
    left, right = (list(PurePath(profile.facts.source).parts) for profile in (difference.before, difference.after))
    while len(left) > 1 and len(right) > 1 and left[-1] == right[-1]:
        left.pop()
        right.pop()
    if not left or not right or left[-1] == right[-1]:
        return "before", "after"
    return left[-1], right[-1]


def format_headline(difference: ProfileDifference) -> str:
    """Return the result of the comparison in one sentence."""
    before, after = name_sides(difference)
    iteration = difference.iteration
    if difference.is_identical and iteration.before_us is not None:
        return "The two profiles have the same steps, operators, kernels, memory, samples and tables."
    if iteration.before_us is None or iteration.after_us is None:
        missing = before if iteration.before_us is None else after
        return f"The iterations cannot be compared: {missing} has no uninterrupted step that follows another one."
    times = f"{format_us(iteration.after_us)} instead of {format_us(iteration.before_us)}"
    if not difference.can_be_judged:
        return f"Too few steps to judge: an iteration takes {times}, but {MIN_STEPS} steps of each are needed."
    if iteration.exceeds_noise:
        return f"{after} is {describe_change(iteration)}, compared with {before}{name_phase(difference)}."
    changed = [phase.name for phase in difference.phases if phase.exceeds_noise]
    if changed:
        verb = "does" if len(changed) == 1 else "do"
        names = " and ".join(changed)
        return f"The iteration does not differ beyond the noise of the steps ({times}), but {names} {verb}."
    noise = format_us(iteration.noise_us or 0.0)
    limit = f"differences below {noise} cannot be seen"
    return f"No difference beyond the noise of the steps: an iteration takes {times}; {limit}."


def describe_change(iteration: FigureDifference) -> str:
    """Return how much slower or faster the iteration is, by the mean if the median does not show it."""
    by_median = abs(iteration.change_us or 0.0) > (iteration.noise_us or 0.0)
    before, after = (
        (iteration.before_us, iteration.after_us) if by_median else (iteration.before_mean_us, iteration.after_mean_us)
    )
    factor = (after or 0.0) / before if before else 1.0
    change = f"{abs(factor - 1) * 100:.1f} % {'slower' if factor > 1 else 'faster'}{'' if by_median else ' on average'}"
    return f"{change} ({format_us(after)} an iteration instead of {format_us(before)})"


def name_phase(difference: ProfileDifference) -> str:
    """Return a clause about the phase that changed most; "" if no phase exceeds the noise."""
    changed = [phase for phase in difference.phases if phase.exceeds_noise and phase.change_us]
    if not changed:
        return ""
    largest = max(changed, key=lambda phase: abs(phase.change_us or 0.0))
    return f"; the largest change is in {largest.name} ({format_change(largest.change_us)})"


def format_figures(title: str, figures: Sequence[FigureDifference], names: tuple[str, str]) -> list[str]:
    """Return a table of times; its last column is the judgement of each difference."""
    if not any(figure.before_us is not None or figure.after_us is not None for figure in figures):
        return []
    has_noise = any(figure.noise_us is not None for figure in figures)
    rows = [[title, *names, "change", "ratio", *(["beyond the noise"] if has_noise else [])]]
    for figure in figures:
        cells = [figure.name, format_us(figure.before_us), format_us(figure.after_us), format_change(figure.change_us)]
        rows.append([*cells, format_ratio(figure.ratio), *([format_judgement(figure)] if has_noise else [])])
    return align_columns(rows)


def format_judgement(figure: FigureDifference) -> str:
    if figure.noise_us is None:
        return "–"
    return "yes" if figure.exceeds_noise else f"no (noise {format_us(figure.noise_us)})"


def format_operators(operators: Sequence[OperatorDifference], names: tuple[str, str]) -> list[str]:
    """Return the operators with the largest slowdowns, then those with the largest speedups."""
    changed = [operator for operator in operators if operator.change_us]
    if not changed:
        return []
    shown = changed
    if len(changed) > MAX_OPERATORS:
        shown = changed[: MAX_OPERATORS - MAX_FASTER] + changed[-MAX_FASTER:]
    rows = [["operator, per step", *names, "lost", "ratio", "calls"]]
    for operator in shown:
        calls = f"{format_count(operator.before_calls)} → {format_count(operator.after_calls)}"
        module = f"in {operator.module}" if operator.module else ""
        label = " ".join(filter(None, [operator.name, operator.shapes, module]))
        times = [format_us(operator.before_us), format_us(operator.after_us), format_change(operator.change_us)]
        rows.append([label, *times, format_ratio(operator.ratio), calls])
    left_out = len(changed) - len(shown)
    remark = [f"{left_out:,} operators in between are not shown; the page has more."] if left_out else []
    return [*align_columns(rows), *remark]


def format_memory(difference: ProfileDifference) -> list[str]:
    before, after = difference.memory
    if before is None or after is None:
        return []
    return [f"Memory at the peak: {format_bytes(before)} → {format_bytes(after)}"]


def format_facts(difference: ProfileDifference, names: tuple[str, str]) -> list[str]:
    if not difference.facts:
        return []
    return align_columns([["what differs", *names], *(list(fact) for fact in difference.facts)])


def list_remarks(difference: ProfileDifference) -> list[str]:
    """Return remarks that limit the conclusions: batches, phases, profilers and noise."""
    remarks = []
    batches = difference.before.facts.batch, difference.after.facts.batch
    if None not in batches and batches[0] != batches[1]:
        rates = [measure_throughput(profile) for profile in (difference.before, difference.after)]
        before, after = ("–" if rate is None else f"{rate:,.1f}" for rate in rates)
        remarks.append(f"The batches differ ({batches[0]} and {batches[1]}): {before} and {after} samples/s.")
    if not difference.phases and None not in (difference.iteration.before_us, difference.iteration.after_us):
        remarks.append("Phases are not known for all steps of both profiles: the iteration is compared without them.")
    kinds = {profile.facts.kind for profile in (difference.before, difference.after)}
    if len(kinds) > 1 and kinds & {"kineto", "torch_npu"}:
        remarks.append("At least one profile was measured while its profiler was on, which makes steps longer.")
    if difference.can_be_judged and not difference.is_identical:
        remarks.append(
            f"The noise is the spread of the steps within each run, at least {NOISE_FLOOR:.0%} of the iteration; "
            "how much two runs of the same program differ was not measured."
        )
    return remarks


# Figures


def format_us(time: float | None) -> str:
    if time is None:
        return "–"
    if abs(time) >= 1e6:
        return f"{time / 1e6:,.2f} s"
    return f"{time / 1e3:,.2f} ms" if abs(time) >= 1e3 else f"{time:,.1f} µs"


def format_change(time: float | None) -> str:
    return "–" if time is None else f"{'+' if time > 0 else '-' if time < 0 else ''}{format_us(abs(time))}"


def format_ratio(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}"


def format_count(count: float | None) -> str:
    return "–" if count is None else f"{count:g}"


def format_bytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
