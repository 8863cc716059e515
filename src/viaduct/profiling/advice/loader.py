"""Steps wait for their batch: the number of workers that would keep up.

A loader without workers prepares the data of each step while nothing is computed. With w workers that do not keep up,
one worker takes at most w iterations for the data of a step. More workers hide this time as far as there are cores for
them; on the CPU the network computes on the same cores. The figures are those of the rank that waits longest. With
gradient accumulation the data of a step are several batches. A script without a DataLoader may prepare its batches in
the part of the time before the forward pass in which no operator runs; with a DataLoader, the rule `host_time` reports
that part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from viaduct.profiling.figures import NOTABLE_SHARE, WORTHWHILE_SHARE, Figures, list_locations, show_time
from viaduct.profiling.record import Advice

CERTAINTY = 0.8  # from 0 to 1; of two equal gains, the more certain one is listed first
FULL_LOAD = 0.8  # least load of the cores at which more workers slow down the network
HANDOVER_US = 1000.0
"""Assumed cost of taking a batch from a worker; measured on two busy cores: 1.3 ms for 64 kB, 3.6 ms for 19 MB."""


@dataclass(frozen=True)
class Loading:
    """Times of preparing the data of a step, and the effect of more workers."""

    wait_us: float  # of a step for its data
    compute_us: float  # of a step, without the wait
    workers: int  # at present; 0: the main process prepares the batches
    cores: int | None  # per rank
    shares_cores: bool  # the network computes on the CPU, too, and hardly leaves a core idle
    is_recipe: bool = False

    @property
    def batch_us(self) -> float:
        """Time in which one worker prepares the data of a step; an upper limit if there are workers already."""
        return self.wait_us if self.workers == 0 else self.workers * (self.compute_us + self.wait_us)

    @property
    def workers_needed(self) -> int:
        """Workers with which no step would wait."""
        return max(1, ceil(self.batch_us / max(self.compute_us, 1.0)))

    @property
    def workers_advised(self) -> int:
        """Workers needed, but at most as many as there are cores for a rank."""
        return min(self.workers_needed, self.cores or self.workers_needed)

    @property
    def gain_if_io_bound_us(self) -> float:
        """Gain if preparing a batch is mostly waiting for a disk or server; this is the largest possible gain."""
        remaining = max(self.compute_us, self.batch_us / self.workers_advised) - self.compute_us
        return max(0.0, self.wait_us - remaining - HANDOVER_US)

    @property
    def gain_if_cpu_bound_us(self) -> float:
        """Gain if preparing a batch needs cores that the neural network may also need; this gain is certain."""
        if not self.shares_cores or not self.cores:
            return self.gain_if_io_bound_us
        remaining = self.batch_us / self.cores
        return max(0.0, min(self.gain_if_io_bound_us, self.wait_us - remaining - HANDOVER_US))

    @property
    def is_gain_sure(self) -> bool:
        """True if even the certain gain is worthwhile."""
        return self.gain_if_cpu_bound_us >= WORTHWHILE_SHARE * (self.compute_us + self.wait_us)

    @property
    def gain_us(self) -> float:
        """The certain gain if it is worthwhile, else the largest possible gain."""
        return self.gain_if_cpu_bound_us if self.is_gain_sure else self.gain_if_io_bound_us


def find(figures: Figures) -> Advice | None:
    """Return advice if steps wait for data, in a DataLoader or without one."""
    return find_loader_wait(figures) or find_batches_without_loader(figures)


def find_loader_wait(figures: Figures) -> Advice | None:
    """Return advice if steps wait for a DataLoader."""
    wait, rank = find_longest_wait(figures)
    if wait is None or wait <= WORTHWHILE_SHARE * figures.mean_iteration_us:
        return None
    loading = measure_loading(figures, wait, figures.mean_iteration_us)
    # A worker's batch must be handed over in any case; the rest of the wait must be notable.
    if loading.workers and wait - HANDOVER_US < NOTABLE_SHARE * (loading.compute_us + wait):
        return None
    needs_workers = loading.workers_advised > loading.workers
    gain = loading.gain_us if needs_workers else wait - HANDOVER_US
    least_share = WORTHWHILE_SHARE if loading.is_gain_sure else NOTABLE_SHARE  # an uncertain gain must be larger
    if gain < least_share * figures.mean_iteration_us:
        return None
    on_rank = figures.name_rank(rank)
    data_operators = sorted(
        (row for row in figures.operators if row.phase == "data" and row.location), key=lambda row: -row.self_us
    )
    return Advice(
        title=f"The loader is too slow: {wait / figures.mean_iteration_us:.0%} of each step{on_rank} waits for data",
        action=suggest_workers(loading) if needs_workers else suggest_cheaper_batches(loading),
        evidence=describe_loading(loading, needs_workers, on_rank),
        gain_us=gain,
        gain_basis=explain_gain(loading, needs_workers),
        locations=list_locations(data_operators[:3]),
        changes={"data.workers": str(loading.workers_advised)} if needs_workers and loading.is_recipe else {},
    )


def find_longest_wait(figures: Figures) -> tuple[float | None, int]:
    """Return the longest mean wait of a step and its rank; None and 0 if no wait was measured."""
    # msprof's "Data Aug Bound" before the forward pass is the device's wait for its batch.
    waits = figures.loader_waits or (figures.data_tails if figures.facts.kind == "msprof" else {})
    rank = max(waits, key=lambda number: waits[number], default=None)
    return (None, 0) if rank is None else (waits[rank], rank)


def find_batches_without_loader(figures: Figures) -> Advice | None:
    """Return advice if there is no DataLoader and batches may be prepared between the steps."""
    time, rank = figures.host_time_between_steps
    step = figures.iteration_us
    loading = replace(measure_loading(figures, time, step), workers=0)
    if (
        figures.loader_waits
        or not figures.operators
        or time < NOTABLE_SHARE * step
        or loading.gain_us < WORTHWHILE_SHARE * step
    ):
        return None
    on_rank = figures.name_rank(rank)
    return Advice(
        title=f"{time / step:.0%} of each step{on_rank} passes before the forward pass, outside operators",
        action=(
            f"If batches are prepared there, let a DataLoader with num_workers={loading.workers_advised} do it; "
            "log and write less often."
        ),
        evidence=(
            f"Between the update and the next forward pass, the host spends {show_time(time)}{on_rank} outside torch's "
            f"operators; the step takes {show_time(step)}. No DataLoader was seen.",
        ),
        gain_us=loading.gain_us,
        gain_basis="at most the time before the forward pass, if it is spent on preparing data",
    )


def measure_loading(figures: Figures, wait_us: float, step_us: float) -> Loading:
    """Return the times and workers of the present loading.

    A recipe that names no number of workers has one for each core; a script without a DataLoader has none.
    """
    facts = figures.facts
    is_recipe = facts.kind == "recipe"
    default_workers = (facts.cores or 1) if is_recipe else 0
    workers = default_workers if facts.workers is None else facts.workers
    cores = None if facts.cores is None else max(1, facts.cores // max(1, facts.ranks))  # per rank
    load = figures.processor_load
    shares_cores = not figures.on_accelerator and (load is None or load > FULL_LOAD)
    return Loading(wait_us, max(0.0, step_us - wait_us), workers, cores, shares_cores, is_recipe)


def suggest_workers(loading: Loading) -> str:
    """Suggest a number of workers, and cheaper batches if there are too few cores."""
    needed, advised = loading.workers_needed, loading.workers_advised
    text = f"Give the DataLoader num_workers={advised} (now {loading.workers}), with persistent_workers=True."
    if loading.is_recipe:
        text = f"Set data.workers={advised} (now {loading.workers})."
    if advised < needed:
        text += f" {needed} would hide all of the wait, but there are {loading.cores} cores for it: also prepare less "
        text += "in each step (decode to a smaller size, store what was decoded)."
    return text


def suggest_cheaper_batches(loading: Loading) -> str:
    """Suggest cheaper batches, for a loader with at least one worker per core."""
    return (
        f"{loading.workers} workers already use the {loading.cores} cores, {loading.workers_needed} would be needed: "
        "make a batch cheaper (decode to a smaller size, store what was decoded, augment on the device)."
    )


def describe_loading(loading: Loading, needs_workers: bool, on_rank: str) -> tuple[str, ...]:
    """Return sentences with the figures behind the number of workers."""
    at_most = "at most " if loading.workers else ""
    rows = [
        f"A step{on_rank} waits {show_time(loading.wait_us)} for its data and takes {show_time(loading.compute_us)} "
        "otherwise.",
        f"One worker prepares the data of a step in {at_most}{show_time(loading.batch_us)}: {loading.workers_needed} "
        f"of them would keep up with the model; there are {loading.workers} now.",
    ]
    if needs_workers and loading.gain_if_io_bound_us > 1.05 * loading.gain_if_cpu_bound_us and loading.shares_cores:
        rows.append(
            f"If preparing a batch mostly waits for a disk or server, {show_time(loading.gain_if_io_bound_us)} would "
            f"be won; if it is work of the processor, {show_time(loading.gain_if_cpu_bound_us)}, because the model "
            f"computes on the same {loading.cores} cores."
        )
    return tuple(rows)


def explain_gain(loading: Loading, needs_workers: bool) -> str:
    if not needs_workers:
        return "the measured wait, which would nearly vanish if batches were ready in time"
    if not loading.is_gain_sure:
        return "at most the measured wait; hardly any of it would vanish if preparing a batch is work of the processor"
    workers = f"{loading.workers_advised} worker{'s' * (loading.workers_advised != 1)}"
    limit = f" on {loading.cores} cores" if loading.cores else ""
    return f"the measured wait that {workers}{limit} would hide"
