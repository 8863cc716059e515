"""The page of a profile: the best advice first, then iterations, modules, operators, kernels, memory and the system.

    write_report(profile, Path("prof/report.html"))

report_charts.py makes the charts, report_tables.py the tables. A section without data is left out, or says what is
missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import quantiles

from viaduct.profiling.measures import (
    PHASE_NAMES,
    PHASES_UNKNOWN,
    RankFigures,
    choose_headline,
    concerns_only_accelerators,
    count_steps,
    describe_left_out,
    describe_uneven,
    explain_missing_iterations,
    list_conditions,
    make_closing_sentence,
    measure_ranks,
    measure_throughput,
)
from viaduct.profiling.record import Advice, Facts, Profile
from viaduct.profiling.report_charts import (
    draw_iterations,
    draw_kinds,
    draw_memory,
    draw_modules,
    draw_owners,
    draw_ranks,
    draw_roofline,
    draw_system,
    format_bandwidth,
    format_speed,
)
from viaduct.profiling.report_tables import list_further_tables, list_kernels, list_operators, list_phases, list_ranks
from viaduct.profiling.summary import DEVICES, describe_gain, format_ms, format_percent, format_rate
from viaduct.reporting import Callout, Page, Part, Remark, Section, Tile, Tone, write_page
from viaduct.reporting import Facts as FactList

MISSING = "–"
TOOLS = {"msprof": "msprof's files", "torch_npu": "torch_npu's files", "kineto": "a Kineto trace"}


def write_report(profile: Profile, path: Path) -> None:
    write_page(build_page(profile), path)


def build_page(profile: Profile) -> Page:
    ranks = measure_ranks(profile)
    further_advice = [make_callout(advice, profile) for advice in profile.advice[1:]]
    memory = draw_memory(profile) if profile.memory else None
    owners = draw_owners(profile) if profile.memory_owners else None
    samples = f"{len(profile.samples):,} samples of the whole machine, other processes included."
    tables = list_further_tables(profile)
    sections = [
        *make_section("Further advice", "The most valuable first; gains do not add up.", further_advice),
        describe_iterations(profile, ranks),
        *describe_ranks(ranks),
        *make_section("Modules", "One recorded step by phase, module and operator.", [draw_modules(profile)]),
        describe_operators(profile),
        describe_kernels(profile),
        *make_section("Memory", "", [memory, owners]),
        *make_section("System", samples, draw_system(profile)),
        *make_section("Further tables", "Written by the profiler, or computed from its events.", tables),
        describe_measurement(profile),
    ]
    return Page(
        title=profile.facts.source,
        subtitle=describe_setting(profile.facts),
        tiles=[
            make_iteration_tile(profile),
            make_throughput_tile(profile),
            make_data_tile(ranks),
            make_memory_tile(profile),
        ],
        sections=sections,
        lead=make_lead(profile),
        verb="profile",
        kind="profile",
    )


def describe_setting(facts: Facts) -> str:
    """Return the device, conditions and number of steps of a profile, the tool that wrote it, and the date."""
    device = DEVICES.get(facts.device, facts.device)
    steps = count_steps(facts.timed_steps or facts.recorded_steps)
    tool = [f"read from {TOOLS[facts.kind]}"] if facts.kind in TOOLS else []
    conditions = [device, *filter(None, [facts.description]), *list_conditions(facts), steps, *tool]
    return "; ".join([", ".join(conditions), *filter(None, [format_date(facts.date)])])


def format_date(date: str) -> str:
    """Convert "2026-11-18T10:00:00+00:00" to "2026-11-18 10:00:00 UTC"."""
    return date.replace("T", " ").removesuffix("+00:00") + (" UTC" if date.endswith("+00:00") else "")


# The lead


def make_lead(profile: Profile) -> list[Part]:
    """Return the best advice with the closing sentence, or the reason why there is no advice.

    If the run ended early, that comes first.
    """
    ended: list[Part] = [Callout("bad", f"Ended early: {profile.facts.ended}")] if profile.facts.ended else []
    headline = choose_headline(profile)
    if profile.advice:
        closing_sentence = make_closing_sentence(profile)
        closing = [Callout("muted", closing_sentence)] if closing_sentence else []
        return [*ended, make_callout(profile.advice[0], profile), *closing]
    counts = {"operators": len(profile.operators), "kernels": len(profile.kernels)}
    judged = [
        count_steps(len(profile.regular_steps)),
        *(f"{count:,} {name}" for name, count in counts.items() if count),
    ]
    basis = f"{', '.join(judged)}; no rule found a change with a worthwhile gain."
    remarks = [Remark("Judged", basis)] if headline.tone == "good" else []
    return [*ended, Callout(headline.tone, headline.text, remarks)]


def make_callout(advice: Advice, profile: Profile) -> Callout:
    """Return one advice with its evidence; its tone is muted if it concerns only accelerators and this is a CPU."""
    remarks = [Remark("What to change", advice.action)] if advice.action else []
    remarks += [Remark("Evidence", sentence) for sentence in advice.evidence]
    remarks += [Remark("Where", location) for location in advice.locations]
    gain = describe_gain(advice, profile).removeprefix("Expected gain: ")
    tone: Tone = "muted" if concerns_only_accelerators(advice, profile) else "warn"
    return Callout(tone, advice.title, [*remarks, Remark("Expected gain", gain)])


def make_iteration_tile(profile: Profile) -> Tile:
    times = sorted(step.iteration_us for step in profile.regular_steps)
    if profile.iteration_us is None:
        return Tile("iteration", MISSING, explain_missing_iterations(profile))
    note = f"median of {len(times):,}"
    if len(times) >= 20:
        note += f"; 95 % within {format_ms(quantiles(times, n=20)[-1])} ms"
    elif len(times) > 1:
        note += f"; {format_ms(times[0])} to {format_ms(times[-1])} ms"
    return Tile("iteration", f"{format_ms(profile.iteration_us)} ms", note)


def make_throughput_tile(profile: Profile) -> Tile:
    rate = measure_throughput(profile)
    if rate is None:
        return Tile("images/s", MISSING, "the batch is not known" if profile.facts.batch is None else "no iteration")
    return Tile("images/s", format_rate(rate), "all ranks together" if profile.facts.ranks > 1 else "")


def make_data_tile(ranks: Sequence[RankFigures]) -> Tile:
    with_phases = [figures for figures in ranks if figures.phases]
    if not with_phases:
        return Tile("data tail", MISSING, "phases are not known for all steps" if ranks else "no iteration")
    worst = max(with_phases, key=lambda figures: figures.phases[0].share)
    note = f"median {format_ms(worst.phases[0].median_us)} ms a step"
    rank = f"rank {worst.rank}, " if len(with_phases) > 1 else ""
    return Tile("data tail", format_percent(worst.phases[0].share), rank + note)


def make_memory_tile(profile: Profile) -> Tile:
    if not profile.memory:
        return Tile("peak memory", MISSING, "not recorded")
    peak = max(profile.memory, key=lambda point: point.allocated)
    rank = f"rank {peak.rank}, " if profile.facts.ranks > 1 else ""
    return Tile("peak memory", format_bytes(peak.allocated), f"{rank}in live tensors")


def format_bytes(count: float) -> str:
    """Return a number of bytes with its unit."""
    return f"{count / 2**30:,.2f} GiB" if count >= 2**30 else f"{count / 2**20:,.1f} MiB"


# Sections


def make_section(title: str, text: str, parts: Iterable[Part | None]) -> list[Section]:
    """Return a section with the parts that are not None; no section without parts."""
    present = [part for part in parts if part is not None]
    return [Section(title, text, present)] if present else []


def describe_iterations(profile: Profile, ranks: Sequence[RankFigures]) -> Section:
    if not ranks:
        missing = f"The times of an iteration are not known: {explain_missing_iterations(profile)}."
        return Section("Iterations", missing)
    parts: list[Part] = [draw_iterations(profile)]
    if len(ranks) == 1:
        parts.append(list_phases(ranks[0]))
    definition = "From the end of one step to the end of the next." if profile.facts.phases_measured else PHASES_UNKNOWN
    left_out = describe_left_out(step for step in profile.steps if step.interrupted_by)
    return Section("Iterations", " ".join([definition, *left_out, *describe_uneven(ranks)]), parts)


def describe_ranks(ranks: Sequence[RankFigures]) -> list[Section]:
    """Return the ranks side by side, with the range of each phase's mean; no section for a single rank."""
    if len(ranks) < 2:
        return []
    spreads = []
    for index, name in enumerate(PHASE_NAMES):
        means = sorted((figures.phases[index].mean_us, figures.rank) for figures in ranks if figures.phases)
        if means:
            (least, fastest), (most, slowest) = means[0], means[-1]
            spreads.append(f"{name} {format_ms(least)} ms (rank {fastest}) to {format_ms(most)} ms (rank {slowest})")
    text = f"Means from the shortest to the longest: {'; '.join(spreads)}." if spreads else ""
    return [Section("Ranks", text, [draw_ranks(ranks), list_ranks(ranks)])]


def describe_operators(profile: Profile) -> Section:
    if not profile.operators:
        return Section("Operators", "None were recorded.")
    roofline = draw_roofline(profile)
    text = describe_averages(profile.facts)
    if profile.ceilings is None:
        text += " No roofline: the device's peak rates were not measured."
    elif roofline is None:
        text += " No roofline: time, floating-point operations, bytes or the bandwidth are missing."
    parts = [list_operators(profile)]
    return Section("Operators", text, [roofline, *parts] if roofline is not None else parts)


def describe_averages(facts: Facts) -> str:
    if facts.kind in ("msprof", "torch_npu"):
        return "Counts and times are means over the recorded steps."
    return "Counts are means over the recorded steps, times are those of a typical one."


def describe_kernels(profile: Profile) -> Section:
    if not profile.kernels:
        return Section("Kernels", "No kernels were recorded." if profile.operators else "Operators were not recorded.")
    text = describe_averages(profile.facts)
    if profile.facts.device == "cpu":
        text += " The CPU has no kernels: these are operators, without the time of operators that they call."
    return Section("Kernels", text, [draw_kinds(profile), list_kernels(profile)])


def describe_measurement(profile: Profile) -> Section:
    facts = profile.facts
    parts: list[Part] = [FactList(collect_facts(profile))]
    remarks = [Remark("Time points", sentence) for sentence in facts.phases_found_by]
    remarks += [Remark("Notes", sentence) for sentence in facts.notes]
    if remarks:
        parts.append(Callout("muted", "How this was measured", remarks))
    return Section("What was profiled", "", parts)


def collect_facts(profile: Profile) -> dict[str, object]:
    facts = profile.facts
    all_facts: dict[str, object] = {
        "source": facts.source,
        "command": facts.command,
        "device": f"{facts.device}: {facts.description}" if facts.description else facts.device,
        "ranks": facts.ranks,
        "batch of a rank": facts.batch,
        "precision": facts.precision,
        "mode": facts.mode,
        "loader's workers": facts.workers,
        "cores": facts.cores,
        "warm-up steps": facts.warmup_steps,
        "timed steps": facts.timed_steps,
        "recorded steps": facts.recorded_steps,
        "iteration while recorded": format_recorded_iteration(profile),
        "measured peak rates": format_ceilings(profile),
        "date": format_date(facts.date),
        **facts.versions,
    }
    return {name: value for name, value in all_facts.items() if value not in (None, "")}


def format_recorded_iteration(profile: Profile) -> str:
    """Return the iteration time with and without the recording of operators; "" if the first is unknown."""
    recorded = profile.facts.recorded_step_us
    if recorded is None:
        return ""
    without = f", {format_ms(profile.iteration_us)} ms without" if profile.iteration_us is not None else ""
    return f"{format_ms(recorded)} ms{without}"


def format_ceilings(profile: Profile) -> str:
    ceilings = profile.ceilings
    if ceilings is None:
        return ""
    peaks = [f"{name} {format_speed(flops)}" for name, flops in ceilings.flops.items()]
    return ", ".join([format_bandwidth(ceilings.bandwidth), *peaks])
