"""Charts on the page of a profile: iterations, ranks, modules, the roofline, memory, the system."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from viaduct.profiling.measures import (
    PHASE_NAMES,
    PHASE_TIMES,
    RankFigures,
    find_roofline_share,
    list_first_rank_operators,
)
from viaduct.profiling.record import Ceilings, MemoryPoint, Operator, Profile, Sample, Step
from viaduct.profiling.report_tables import FEW_ROWS
from viaduct.reporting import (
    BarChart,
    BarGroup,
    FlameGraph,
    FlameNode,
    LineChart,
    Part,
    Point,
    Roof,
    ScatterChart,
    Series,
    StackedBars,
    Tone,
)

MAX_LINES = 6  # largest number of lines of a chart; for more figures their maximum, mean and minimum are drawn
MAX_OWNERS = 20  # largest number of owners of memory that have a bar each
MAX_POINTS = 2000  # largest number of operators in the roofline chart
PHASES = ("forward", "backward", "update", "data", "other")
LARGE = 0.05  # least share of the operators' time at which an operator far below the roofline is marked
SMALL = 0.002  # share of the operators' time below which an operator is drawn muted
FAR = 0.25  # share of the roofline below which an operator counts as far below it
NUMBERED_FIGURE = re.compile(r"(?P<kind>\D+?) (?P<number>\d+) (?P<rest>.+)")


# Iterations


def draw_iterations(profile: Profile) -> StackedBars:
    ranks = sorted({step.rank for step in profile.regular_steps})
    measured = profile.facts.phases_measured
    return StackedBars(
        "Iterations by phase" if measured else "Iterations",
        "step",
        "time",
        PHASE_NAMES if measured else ("iteration",),
        [make_step_group(rank, profile.regular_steps_of(rank), measured) for rank in ranks],
        unit="ms",
        group_label="rank",
    )


def make_step_group(rank: int, steps: Sequence[Step], measured: bool) -> BarGroup:
    times = PHASE_TIMES if measured else (lambda step: step.iteration_us,)
    layers = [[None if (time := read(step)) is None else time / 1000 for step in steps] for read in times]
    return BarGroup(f"rank {rank}", [str(step.number) for step in steps], layers)


def draw_ranks(ranks: Sequence[RankFigures]) -> StackedBars:
    """Return a bar for each rank: the means of its phases."""
    measured = all(figures.phases for figures in ranks)
    columns = [figures.phases if measured else (figures.iteration,) for figures in ranks]
    layers = [[phase.mean_us / 1000 for phase in layer] for layer in zip(*columns, strict=True)]
    names = PHASE_NAMES if measured else ("iteration",)
    group = BarGroup("", [str(figures.rank) for figures in ranks], layers)
    return StackedBars("Mean iteration of each rank", "rank", "time", names, [group], unit="ms")


# Modules


@dataclass
class ModuleTimes:
    """Time of a module or operator, including its children."""

    time_us: float = 0.0
    calls: float = 0.0
    children: dict[str, ModuleTimes] = field(default_factory=dict)

    def add(self, path: Sequence[str], time_us: float, calls: float) -> None:
        """Add the time of one operator to every level of its path."""
        level = self
        level.time_us += time_us
        for name in path:
            level = level.children.setdefault(name, ModuleTimes())
            level.time_us += time_us
        level.calls += calls

    def make_node(self, name: str, colour: int | None = None) -> FlameNode:
        note = f"{self.calls:,.4g} calls" if self.calls else ""
        children = [self.children[child].make_node(child) for child in sorted(self.children, key=split_digits)]
        return FlameNode(name, self.time_us / 1000, children, colour, note)


def split_digits(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts layer10 after layer9."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", name)]


def draw_modules(profile: Profile) -> FlameGraph | None:
    """Return the operators of the first recorded rank by phase and module; None without operators."""
    operators = [operator for operator in list_first_rank_operators(profile) if operator.device_or_self_us > 0]
    if not operators:
        return None
    root = ModuleTimes()
    for operator in operators:
        path = [operator.phase, *filter(None, re.split(r"[./]", operator.module)), operator.name]
        root.add(path, operator.device_or_self_us, operator.calls)
    present = [phase for phase in PHASES if phase in root.children]
    node = FlameNode(
        "one step",
        root.time_us / 1000,
        [root.children[phase].make_node(phase, PHASES.index(phase)) for phase in present],
        colour=len(PHASES),
    )
    legend = [(PHASES.index(phase), phase) for phase in present]
    return FlameGraph("Time by module", node, "ms", legend, describe_times(profile, operators))


def describe_times(profile: Profile, operators: Sequence[Operator]) -> str:
    """Return a sentence: what the times are, of which rank, and the share of them with a known module."""
    source = "Kernels on the device" if any(operator.device_us is not None for operator in operators) else "Host time"
    rank = f" of rank {operators[0].rank}" if profile.facts.ranks > 1 else ""
    in_modules = sum(operator.device_or_self_us for operator in operators if operator.module)
    share = in_modules / sum(operator.device_or_self_us for operator in operators)
    return f"{source}{rank}; the module is known for {100 * share:.0f} % of the time."


# The roofline


def draw_roofline(profile: Profile) -> ScatterChart | None:
    """Return the operators under the roofs of the device; None without roofs or points."""
    ceilings = profile.ceilings
    if ceilings is None or ceilings.bandwidth <= 0:
        return None
    total = sum(operator.device_or_self_us for operator in list_first_rank_operators(profile))
    rank = min((operator.rank for operator in profile.operators), default=0)
    is_linked = len(profile.operators) > FEW_ROWS  # report_tables.py: a table of few rows has no addresses of rows
    points = [
        point
        for row, operator in enumerate(profile.operators)
        if operator.rank == rank and (point := make_point(row if is_linked else None, operator, total, ceilings))
    ]
    if not points:
        return None
    # The last points are drawn on top, and the first ones are cut.
    points = sorted(points, key=lambda point: point.tone == "bad")[-MAX_POINTS:]
    return ScatterChart(
        "Roofline",
        "arithmetic intensity (FLOP/byte)",
        "speed (FLOP/s)",
        points,
        names=LEGEND,
        roofs=draw_roofs(ceilings, points),
        log_x=True,
    )


LEGEND: list[tuple[Tone, str]] = [
    ("bad", f"at least {100 * LARGE:.0f} % of the time, under {100 * FAR:.0f} % of the roof"),
    ("good", "operators"),
    ("muted", f"under {100 * SMALL:.1f} % of the time"),
]


def make_point(row: int | None, operator: Operator, total: float, ceilings: Ceilings) -> Point | None:
    """Return the point of an operator, with a link to its row in the table; None without counted work or time."""
    time = operator.device_or_self_us
    if not operator.flops or not operator.bytes or time <= 0 or total <= 0:
        return None
    attained = find_roofline_share(operator, ceilings)
    share = time / total
    tone: Tone = "good"
    if share < SMALL:
        tone = "muted"
    elif share >= LARGE and attained is not None and attained < FAR:
        tone = "bad"
    roof = f", {100 * attained:.0f} % of the roof" if attained is not None else ""
    module = f" in {operator.module}" if operator.module else ""
    intensity = operator.flops / operator.bytes
    return Point(
        intensity,
        operator.flops * 1e6 / time,
        tone,
        f"{operator.name}{module}: {intensity:.3g} FLOP/byte, {100 * share:.1f} % of the time{roof}",
        "" if row is None else f"#operators-{row}",
        format_speed(operator.flops * 1e6 / time),
    )


def draw_roofs(ceilings: Ceilings, points: Sequence[Point]) -> list[Roof]:
    """Return the slope of the bandwidth and a level for each dtype, over the range of the points."""
    peaks = {name: flops for name, flops in ceilings.flops.items() if flops > 0}
    ridges = [flops / ceilings.bandwidth for flops in peaks.values()]
    low = min([point.x for point in points] + ridges) / 2
    high = max([point.x for point in points] + ridges) * 4
    top = max(peaks.values(), default=high * ceilings.bandwidth)
    slope = [(low, low * ceilings.bandwidth), (top / ceilings.bandwidth, top)]
    roofs = [Roof(f"memory {format_bandwidth(ceilings.bandwidth)}", slope, labelled_at_end=False)]
    for name, flops in join_close_peaks(peaks):
        roofs.append(Roof(f"{name} {format_speed(flops)}", [(flops / ceilings.bandwidth, flops), (high, flops)]))
    return roofs


def join_close_peaks(peaks: dict[str, float]) -> list[tuple[str, float]]:
    """Join peaks within 15 % of each other, whose labels would overlap; the higher level is drawn."""
    joined: list[tuple[str, float]] = []
    for name, flops in sorted(peaks.items(), key=lambda item: -item[1]):
        if joined and joined[-1][1] < 1.15 * flops:
            joined[-1] = (f"{joined[-1][0]}, {name}", joined[-1][1])
        else:
            joined.append((name, flops))
    return joined


def format_speed(flops: float) -> str:
    """Return operations per second with three digits."""
    for size, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if flops >= size:
            return f"{format_digits(flops / size)} {unit}"
    return f"{format_digits(flops)} FLOP/s"


def format_bandwidth(bytes_per_second: float) -> str:
    """Return bytes per second with three digits."""
    size, unit = (1e12, "TB/s") if bytes_per_second >= 1e12 else (1e9, "GB/s")
    return f"{format_digits(bytes_per_second / size)} {unit}"


def format_digits(value: float) -> str:
    """Return a number with three digits, without an exponent."""
    return f"{float(f'{value:.3g}'):,.10g}"


# Kernels, memory, system


def draw_kinds(profile: Profile) -> BarChart:
    rank = min(kernel.rank for kernel in profile.kernels)
    sums: dict[str, float] = {}
    for kernel in profile.kernels:
        if kernel.rank == rank:
            sums[kernel.kind] = sums.get(kernel.kind, 0.0) + kernel.time_us
    kinds = sorted(sums, key=lambda kind: -sums[kind])
    suffix = f", rank {rank}" if profile.facts.ranks > 1 else ""
    return BarChart(f"Time by kind (µs a step{suffix})", kinds, [round(sums[kind]) for kind in kinds])


def draw_memory(profile: Profile) -> LineChart:
    by_rank: dict[int, list[MemoryPoint]] = {}
    for point in profile.memory:
        by_rank.setdefault(point.rank, []).append(point)
    start = min(point.time_us for point in profile.memory)
    peaks = {rank: max(point.allocated for point in points) for rank, points in by_rank.items()}
    shown = sorted(peaks, key=lambda rank: -peaks[rank])[: MAX_LINES // 2]  # two lines a rank
    series = [line for rank in sorted(shown) for line in draw_rank_memory(rank, by_rank[rank], start, len(by_rank) > 1)]
    left_out = len(by_rank) - len(shown)
    title = "Memory" if not left_out else f"Memory of the {len(shown)} ranks with the highest peaks"
    return LineChart(title, "time (ms)", "memory", series, log_y=False, unit="MiB", includes=(0,))


def draw_rank_memory(rank: int, points: Sequence[MemoryPoint], start: float, several: bool) -> list[Series]:
    ordered = sorted(points, key=lambda point: point.time_us)
    times = [(point.time_us - start) / 1000 for point in ordered]
    name = f"rank {rank}, " if several else ""
    series = [Series(f"{name}live tensors", times, [point.allocated / 2**20 for point in ordered])]
    reserved = [None if point.reserved is None else point.reserved / 2**20 for point in ordered]
    if any(value is not None for value in reserved):
        series.append(Series(f"{name}held by the allocator", times, reserved))
    return series


def draw_owners(profile: Profile) -> BarChart:
    """Return the owners of the bytes at the peak, for the rank with the most bytes."""
    sums: dict[int, int] = {}
    for owner in profile.memory_owners:
        sums[owner.rank] = sums.get(owner.rank, 0) + owner.bytes
    rank = max(sums, key=lambda number: sums[number])
    owners = sorted((owner for owner in profile.memory_owners if owner.rank == rank), key=lambda owner: -owner.bytes)
    size, unit = (2**20, "MiB") if sums[rank] >= 2**30 else (2**10, "KiB")
    shown = [owner for owner in owners[:MAX_OWNERS] if owner.bytes >= size]
    labels = [owner.name for owner in shown]
    counts = [round(owner.bytes / size) for owner in shown]
    if len(owners) > len(shown):
        labels.append(f"{len(owners) - len(shown):,} others")
        counts.append(round(sum(owner.bytes for owner in owners[len(shown) :]) / size))
    suffix = f", rank {rank}" if profile.facts.ranks > 1 else ""
    return BarChart(f"Owners at the peak ({unit}{suffix})", labels, counts)


def draw_system(profile: Profile) -> list[Part]:
    """Return a chart for each group of figures with one unit: cores, memory, disk, network, GPUs."""
    if len(profile.samples) < 2:
        return []
    groups: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(name for sample in profile.samples for name in sample.values):
        groups.setdefault(parse_figure(name), []).append(name)
    return [draw_samples(title, unit, names, profile.samples) for (title, unit), names in groups.items()]


def parse_figure(name: str) -> tuple[str, str]:
    """Return title and unit of the chart of a figure, such as `cpu` and `%` for `cpu 3 %`."""
    subject, *words = name.split()
    unit = words[-1] if words else ""
    numbered = NUMBERED_FIGURE.fullmatch(name)
    if numbered:  # gpu 0 memory MiB: "gpu memory" in MiB
        return " ".join([numbered["kind"], *numbered["rest"].split()[:-1]]), unit
    return subject, unit


def draw_samples(title: str, unit: str, names: Sequence[str], samples: Sequence[Sample]) -> LineChart:
    """Return the chart of one group; for many figures only their maximum, mean and minimum."""
    start = samples[0].time_us
    present = [sample for sample in samples if any(name in sample.values for name in names)]
    heading = title[:1].upper() + title[1:]
    heading = re.sub(r"^(Cpu|Gpu|Npu|Mlu)\b", lambda match: match[0].upper(), heading)
    if len(names) > MAX_LINES:
        times = [(sample.time_us - start) / 1e6 for sample in present]
        values = [[sample.values[name] for name in names if name in sample.values] for sample in present]
        reduced: dict[str, Callable[[list[float]], float]] = {"highest": max, "mean": fmean, "lowest": min}
        series = [Series(label, times, [reduce(row) for row in values]) for label, reduce in reduced.items()]
        heading += f" ({len(names)})"
    else:
        series = []
        for name in names:  # some figures are read every few samples only
            pairs = [(sample.time_us, sample.values[name]) for sample in present if name in sample.values]
            label = name.removesuffix(unit).strip() or name
            series.append(Series(label, [(time - start) / 1e6 for time, _ in pairs], [value for _, value in pairs]))
    limits = (0, 100) if unit == "%" else (0,)
    return LineChart(heading, "time (s)", title, series, log_y=False, unit=unit, includes=limits)
