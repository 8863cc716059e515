"""Figures of a profile that the rules of advice use, and the thresholds that several rules share.

figures = Figures(profile, microbenchmarks)
figures.share_of_step(figures.loader_waits[0])      0.61
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from statistics import mean, median
from typing import Protocol

from viaduct.profiling.kinds import COMMUNICATION
from viaduct.profiling.record import RECORDING, Collective, Kernel, Operator, Profile, Step

WORTHWHILE_SHARE = 0.05
"""Least gain of an advice, as a share of an iteration: runs of the same program are assumed to differ by up to 5 %."""

NOTABLE_SHARE = 0.10
"""Least share of an iteration at which idle time and some other figures are reported, as in the Ascend advisor."""

# Patterns of operators' names in lower case.
_PRODUCTS = re.compile(r"(?:::|^)_?(mm|addmm|bmm|baddbmm|linear|mkldnn_linear\w*|addmm_activation)$|matmul|gemm")
_CONVOLUTIONS = re.compile(r"conv(?!ert)")
_CORE = re.compile(r"cpu \d+ %$")  # the load of a core among the figures of a record.Sample
_BRACKETS = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class Convolution:
    """One two-dimensional convolution, found from its operator's shapes and number of floating-point operations."""

    input: tuple[int, int, int, int]  # N, C, H, W
    weight: tuple[int, int, int, int]  # output channels, channels of one group, height, width
    stride: int
    padding: int
    groups: int
    dtype: str

    def __str__(self) -> str:
        return f"{list(self.input)} with {list(self.weight)}, stride {self.stride}"


@dataclass(frozen=True)
class MatrixProduct:
    """One matrix product of rows x inner with inner x columns."""

    rows: int
    inner: int
    columns: int
    dtype: str


class Microbenchmarks(Protocol):
    """Measurements on this machine (microbenchmarks.py); a method returns None if it cannot measure here."""

    failures: list[str]  # reasons for results that are None

    def time_layouts(self, convolution: Convolution) -> tuple[float, float] | None:
        """Return microseconds of a forward and backward pass: contiguous, and channels_last."""

    def time_dtypes(self, work: Convolution | MatrixProduct, dtype: str) -> tuple[float, float] | None:
        """Return microseconds of a forward and backward pass: in float32, and in `dtype` with both casts."""

    def time_updates(self, class_name: str, sizes: Sequence[int]) -> tuple[float, float] | None:
        """Return microseconds of an optimizer's update of parameters of these sizes: by torch's default, and fused."""


class Figures:
    """Figures of a profile; times are taken from regular steps, unless stated otherwise.

    A regular step directly follows another one, without an interruption.
    """

    def __init__(self, profile: Profile, microbenchmarks: Microbenchmarks | None = None) -> None:
        self.profile = profile
        self.facts = profile.facts
        self.microbenchmarks = microbenchmarks
        self.unmeasured: list[str] = []  # what rules did not judge, because it could not be measured

    @cached_property
    def steps(self) -> list[Step]:
        return self.profile.regular_steps

    @cached_property
    def iteration_us(self) -> float:
        """Median time of an iteration; 0 if there is no regular step."""
        return self.profile.iteration_us or 0.0

    @cached_property
    def mean_iteration_us(self) -> float:
        """Mean time of an iteration, without the longest of five or more.

        Unlike the median, it includes long waits that occur in fewer than half of the steps.
        """
        return mean_without_largest(step.iteration_us for step in self.steps)

    @cached_property
    def steps_by_rank(self) -> dict[int, list[Step]]:
        return {rank: self.profile.regular_steps_of(rank) for rank in self.profile.ranks}

    @cached_property
    def data_tails(self) -> dict[int, float]:
        """Time of each rank from the end of a step to the next forward pass, by `mean_without_largest`."""
        return {
            rank: mean_without_largest(max(0.0, step.data_tail_us or 0.0) for step in steps)
            for rank, steps in self.steps_by_rank.items()
        }

    @cached_property
    def host_time_between_steps(self) -> tuple[float, int]:
        """Time from a step to the next forward pass outside the DataLoader and outside operators, and its rank.

        The rank is the one with the largest median. The operators in this time have the phase "data" or "other"; they
        are those of `recorded_rank`, which may be another rank.
        """
        operators = sum(row.self_us for row in self.operators if row.phase in ("data", "other"))
        times = {
            rank: median((step.data_tail_us or 0.0) - (step.loader_wait_us or 0.0) for step in steps)
            for rank, steps in self.steps_by_rank.items()
            if steps
        }
        slowest = max(times, key=lambda rank: times[rank], default=0)
        return max(0.0, times.get(slowest, 0.0) - operators), slowest

    @cached_property
    def loader_waits(self) -> dict[int, float]:
        """Wait of each rank for the data of a step, by `mean_without_largest`; only ranks with a measured wait."""
        by_rank = {
            rank: [step.loader_wait_us for step in steps if step.loader_wait_us is not None]
            for rank, steps in self.steps_by_rank.items()
        }
        return {rank: mean_without_largest(waits) for rank, waits in by_rank.items() if waits}

    def name_rank(self, rank: int) -> str:
        """Return " on rank 3" if there are several ranks, else "", for a sentence."""
        return f" on rank {rank}" if len(self.profile.ranks) > 1 else ""

    @cached_property
    def forward_backward_us(self) -> float:
        return median(step.forward_backward_us for step in self.steps) if self.steps else 0.0

    @cached_property
    def update_tail_us(self) -> float:
        """Median time from the end of the backward pass to the end of the step."""
        return median(step.update_tail_us for step in self.steps) if self.steps else 0.0

    @cached_property
    def recorded_rank(self) -> int:
        """The first rank that has operators or kernels."""
        rows: list[Operator | Kernel] = [*self.profile.operators, *self.profile.kernels]
        return min((row.rank for row in rows), default=0)

    @cached_property
    def operators(self) -> list[Operator]:
        """Operators of `recorded_rank`."""
        return [operator for operator in self.profile.operators if operator.rank == self.recorded_rank]

    @cached_property
    def kernels(self) -> list[Kernel]:
        """Kernels of `recorded_rank`, without communication."""
        kernels = [row for row in self.profile.kernels if row.rank == self.recorded_rank]
        return [row for row in kernels if row.kind != COMMUNICATION]

    @property
    def on_accelerator(self) -> bool:
        """True if operators return before their kernels have run."""
        return self.facts.device != "cpu"

    def share_of_step(self, time_us: float) -> float:
        """Return a time as a share of the median iteration, from 0 to 1; 0 if no iteration was measured."""
        return time_us / self.iteration_us if self.iteration_us else 0.0

    def is_worthwhile(self, time_us: float) -> bool:
        """Return True if a gain of this time is at least WORTHWHILE_SHARE of the iteration."""
        return self.share_of_step(time_us) >= WORTHWHILE_SHARE

    @cached_property
    def communicating_steps(self) -> dict[int, list[Step]]:
        """Steps with collectives, by rank: regular steps, or recorded ones if no regular step has collectives.

        In viaduct's own profiles only recorded steps have them.
        """
        steps = [step for step in self.steps if step.collectives]
        if not steps:
            recorded = [step for step in self.profile.steps if step.interrupted_by == RECORDING]
            steps = [step for step in recorded if step.previous_end_us is not None and step.collectives]
        return {rank: [step for step in steps if step.rank == rank] for rank in sorted({step.rank for step in steps})}

    @cached_property
    def exposed_shares(self) -> dict[int, float]:
        """Median share of a step, by rank, in which collectives ran and nothing was computed."""
        return {
            rank: median(sum_exposed_us(step.collectives) / max(step.iteration_us, 1e-3) for step in steps)
            for rank, steps in self.communicating_steps.items()
        }

    @cached_property
    def communication_us(self) -> float:
        """Time per step in which collectives ran and nothing was computed, of the rank with the least.

        The other ranks also wait for slower ranks in their collectives.
        """
        return min(self.exposed_shares.values(), default=0.0) * self.iteration_us

    @cached_property
    def processor_load(self) -> float | None:
        """Mean load of the CPU's cores while the profile was taken, from 0 to 1; None if it was not sampled."""
        cores = [[load for name, load in row.values.items() if _CORE.match(name)] for row in self.profile.samples]
        loads = [mean(percentages) for percentages in cores if percentages]
        return mean(loads) / 100 if loads else None

    def read_column(self, table: str, column: str) -> list[float]:
        """Return the numbers in a column of one of the profile's tables; [] if it has no such table or column."""
        content = self.profile.tables.get(table, {"columns": []})
        if column not in content["columns"]:
            return []
        position = content["columns"].index(column)
        numbers = []
        for row in content["rows"]:
            with suppress(TypeError, ValueError):  # a cell that is no number
                numbers.append(float(row[position]))
        return numbers

    @cached_property
    def heavy_operators(self) -> list[Operator]:
        """Convolutions and matrix products.

        Of operators that call each other, only the innermost has a number of floating-point operations. So operators
        without that number are left out, unless no operator has it.
        """
        rows = [
            row
            for row in self.operators
            if (is_convolution(row) or is_matrix_product(row)) and row.device_or_self_us > 0
        ]
        return [row for row in rows if row.flops] or rows

    @cached_property
    def backward_us(self) -> float:
        """Time of the backward pass: a part of forward + backward, in proportion to the operators' times.

        If one of the passes has no operators, two thirds are assumed.
        """
        forward, backward = (
            sum(row.self_us for row in self.operators if row.phase == phase) for phase in ("forward", "backward")
        )
        return self.forward_backward_us * (backward / (forward + backward) if forward and backward else 2 / 3)


def sum_exposed_us(collectives: Iterable[Collective]) -> float:
    """Return the time of collectives in which their rank computes nothing; if it is unknown, the complete time."""
    return sum(row.duration_us if row.exposed_us is None else row.exposed_us for row in collectives)


def mean_without_largest(values: Iterable[float]) -> float:
    """Return the mean of all values except the largest; of fewer than five values the mean of all; 0 without values."""
    ordered = sorted(values)
    return mean(ordered[:-1] if len(ordered) >= 5 else ordered) if ordered else 0.0


def is_matrix_product(operator: Operator) -> bool:
    return bool(_PRODUCTS.search(operator.name.lower()))


def is_convolution(operator: Operator) -> bool:
    """Return True if the operator is a convolution or its backward pass."""
    return bool(_CONVOLUTIONS.search(operator.name.lower()))


def find_float_dtype(operator: Operator) -> str:
    """Return the first floating-point type among the inputs; empty if none is known."""
    return next((dtype.strip() for dtype in operator.dtypes.split(",") if "float" in dtype), "")


def list_locations(operators: Iterable[Operator]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.location for row in operators if row.location))


def parse_shapes(text: str) -> list[tuple[int, ...]]:
    """Return the shapes in "[32, 64], [64]"; brackets with anything other than numbers are left out."""
    rows = ([number for number in part.replace(" ", "").split(",") if number] for part in _BRACKETS.findall(text))
    return [tuple(map(int, row)) for row in rows if all(number.isdigit() for number in row)]


def parse_matrix_product(operator: Operator) -> MatrixProduct | None:
    """Return the product of an operator's first two matrices; None if their shapes do not fit.

    The second matrix may be the weight of a linear layer, which is transposed.
    """
    shapes = [shape for shape in parse_shapes(operator.shapes) if len(shape) >= 2]
    if len(shapes) < 2:
        return None
    left, right = shapes[0], shapes[1]
    rows, dtype = prod(left[:-1]), find_float_dtype(operator)
    if left[-1] == right[-2]:
        return MatrixProduct(rows, left[-1], right[-1], dtype)
    return MatrixProduct(rows, left[-1], right[-2], dtype) if left[-1] == right[-1] else None


def parse_convolution(operator: Operator) -> Convolution | None:
    """Return the forward convolution that an operator computes; None if unknown.

    An operator in a profile does not have stride and padding. They follow from its number of floating-point operations,
    if both are the same in height and width and there is no dilation.
    """
    shapes = parse_shapes(operator.shapes)
    if "backward" in operator.name or len(shapes) < 2 or len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return None
    image, weight = shapes[0], shapes[1]
    if image[1] % weight[1] or not operator.flops or not operator.calls:
        return None
    pixels = operator.flops / operator.calls / (2 * image[0] * prod(weight))  # of one output image
    stride_and_padding = _find_stride_and_padding(image, weight, pixels)
    if stride_and_padding is None:
        return None
    stride, padding = stride_and_padding
    return Convolution(image, weight, stride, padding, image[1] // weight[1], find_float_dtype(operator))


def _find_stride_and_padding(image: Sequence[int], weight: Sequence[int], pixels: float) -> tuple[int, int] | None:
    """Return stride and padding for which an output image has `pixels` pixels.

    For each stride, the padding that keeps the image's size is tried first.
    """
    paddings = sorted(range(weight[2] // 2 + 1), reverse=True)
    for stride in range(1, max(weight[2], 2) + 1):
        for padding in paddings:
            sides = [
                (side + 2 * padding - kernel) // stride + 1 for side, kernel in zip(image[2:], weight[2:], strict=True)
            ]
            if abs(sides[0] * sides[1] - pixels) < 0.5:
                return stride, padding
    return None


def sum_by_owner(rows: Iterable[Operator], value: Callable[[Operator], float]) -> dict[str, float]:
    """Return the sums of a value by module, or by location or name if no module is known, largest first."""
    sums: dict[str, float] = {}
    for row in rows:
        owner = row.module or row.location or row.name
        sums[owner] = sums.get(owner, 0.0) + value(row)
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def show_time(time_us: float) -> str:
    """Return a time with a unit that fits it: "61.3 ms", "420 µs"."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    return f"{time_us / 1e3:.3g} ms" if time_us >= 1e3 else f"{time_us:.3g} µs"


def show_names(names: Iterable[str]) -> str:
    """Return the first three names as "a, b, c and 2 more"; empty names are left out."""
    present = [name for name in names if name]
    others = f" and {len(present) - 3} more" if len(present) > 3 else ""
    return ", ".join(present[:3]) + others
