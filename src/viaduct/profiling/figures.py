"""Figures that advice rests on, computed from a profile, and the thresholds that several rules share.

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
"""Least gain of an advice, as a share of an iteration: two runs of the same program may differ by as much as 5 %."""

NOTABLE_SHARE = 0.10
"""Least share of an iteration at which idle time and some other figures are reported, as in the Ascend advisor."""

CALLED_EVERY_STEP = 0.9
"""Least number of calls per recorded step of an operator that counts as called in every step."""

LOW_PRECISION = ("bfloat16", "float16")

# Names of operators, in lower case except for _UPDATES.
_PRODUCTS = re.compile(r"(?:::|^)_?(mm|addmm|bmm|baddbmm|linear|mkldnn_linear\w*|addmm_activation)$|matmul|gemm")
_CONVOLUTIONS = re.compile(r"conv(?!ert)")
_UPDATES = re.compile(r"::_foreach|::_fused_(sgd|adam)|::(add|mul|addcdiv|addcmul|lerp|copy)_$")
_CORE = re.compile(r"cpu \d+ %$")  # a figure of record.Sample
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
    """Measurements on this machine for an advice (microbenchmarks.py); None if one cannot be made."""

    def time_layouts(self, convolution: Convolution) -> tuple[float, float] | None:
        """Return microseconds of a forward and backward pass: contiguous, channels_last."""

    def time_dtypes(self, work: Convolution | MatrixProduct, dtype: str) -> tuple[float, float] | None:
        """Return microseconds of a forward and backward pass: in float32, and in `dtype` with both casts."""

    def time_updates(self, kind: str, sizes: Sequence[int]) -> tuple[float, float] | None:
        """Return microseconds of one update of parameters of these sizes: as torch does by default, fused."""


class Figures:
    """Figures of a profile that several rules use."""

    def __init__(self, profile: Profile, microbenchmarks: Microbenchmarks | None = None) -> None:
        self.profile = profile
        self.facts = profile.facts
        self.microbenchmarks = microbenchmarks

    @cached_property
    def steps(self) -> list[Step]:
        return self.profile.regular_steps

    @cached_property
    def iteration_us(self) -> float:
        """Median iteration; 0 if there is no regular step."""
        return self.profile.iteration_us or 0.0

    @cached_property
    def mean_iteration_us(self) -> float:
        """Mean iteration without the longest of five or more: unlike the median, it includes repeated long waits."""
        return mean_without_largest(step.iteration_us for step in self.steps)

    @cached_property
    def steps_by_rank(self) -> dict[int, list[Step]]:
        return {rank: self.profile.regular_steps_of(rank) for rank in self.profile.ranks}

    @cached_property
    def data_tails(self) -> dict[int, float]:
        """Mean time of each rank from the end of a step to the next forward pass (mean_without_largest)."""
        tails = {rank: [step.data_tail_us or 0.0 for step in steps] for rank, steps in self.steps_by_rank.items()}
        return {rank: mean_without_largest(max(0.0, time) for time in times) for rank, times in tails.items()}

    @cached_property
    def host_time_between_steps(self) -> tuple[float, int]:
        """Time between a step and the next forward pass that neither the loader nor operators took, and its rank.

        The time is a median over steps, for the rank with the longest. Operators are those of data and other phases.
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
        """Mean wait of each rank for its data (mean_without_largest); ranks without a measured wait are left out."""
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
        """Return a time as a share of the median iteration; 0 if no iteration was measured."""
        return time_us / self.iteration_us if self.iteration_us else 0.0

    def is_worth(self, time_us: float) -> bool:
        """Return True if a gain of this time is at least WORTHWHILE_SHARE of the iteration."""
        return self.share_of_step(time_us) >= WORTHWHILE_SHARE

    @cached_property
    def communicating_steps(self) -> dict[int, list[Step]]:
        """Steps of each rank with collectives: regular steps, else uninterrupted recorded ones (viaduct's profiles)."""
        steps = [step for step in self.steps if step.collectives]
        if not steps:
            recorded = [step for step in self.profile.steps if step.interrupted_by == RECORDING]
            steps = [step for step in recorded if step.previous_end_us is not None and step.collectives]
        return {rank: [step for step in steps if step.rank == rank] for rank in sorted({step.rank for step in steps})}

    @cached_property
    def exposed_shares(self) -> dict[int, float]:
        """Median share of a step of each rank in which collectives ran and nothing was computed (sum_exposed_us)."""
        return {
            rank: median(sum_exposed_us(step.collectives) / max(step.iteration_us, 1e-3) for step in steps)
            for rank, steps in self.communicating_steps.items()
        }

    @cached_property
    def communication_us(self) -> float:
        """Exposed time of collectives per step, of the rank with the least: the others also wait for slower ranks."""
        return min(self.exposed_shares.values(), default=0.0) * self.iteration_us

    @cached_property
    def processor_load(self) -> float | None:
        """Mean load of the processor's cores while the profile was taken, from 0 to 1; None if not sampled."""
        cores = [[load for name, load in row.values.items() if _CORE.match(name)] for row in self.profile.samples]
        loads = [mean(percentages) for percentages in cores if percentages]
        return mean(loads) / 100 if loads else None

    def read_column(self, table: str, column: str) -> list[float]:
        """Return the numbers in a column of one of the profile's tables; none if it has no such column."""
        content = self.profile.tables.get(table)
        names = content.get("columns", []) if isinstance(content, dict) else []
        if not isinstance(content, dict) or column not in names:
            return []
        numbers = []
        for row in content["rows"]:
            with suppress(TypeError, ValueError):  # a cell that is no number
                numbers.append(float(row[names.index(column)]))
        return numbers

    @cached_property
    def optimizer_locations(self) -> frozenset[str]:
        """Lines of the script that call an optimizer's step, inside which torch chooses the operators."""
        rows = (row for row in self.operators if row.phase == "update" and row.location)
        return frozenset(row.location for row in rows if _UPDATES.search(row.name))

    @cached_property
    def heavy_operators(self) -> list[Operator]:
        """Convolutions and matrix products with counted arithmetic, which only the innermost of nested ones have.

        If none was counted, all convolutions and products.
        """
        rows = [row for row in self.operators if (is_convolution(row) or is_matrix_product(row)) and row.cost_us > 0]
        return [row for row in rows if row.flops] or rows

    @cached_property
    def backward_us(self) -> float:
        """The backward part of forward + backward, split by the operators' time; two thirds if a pass has none."""
        forward, backward = (
            sum(row.self_us for row in self.operators if row.phase == phase) for phase in ("forward", "backward")
        )
        return self.forward_backward_us * (backward / (forward + backward) if forward and backward else 2 / 3)


def sum_exposed_us(collectives: Iterable[Collective]) -> float:
    """Return the exposed time of collectives; one whose exposed time is not known counts in full."""
    return sum(row.duration_us if row.exposed_us is None else row.exposed_us for row in collectives)


def mean_without_largest(values: Iterable[float]) -> float:
    """Return the mean of all values except the largest; of all if fewer than five, 0 if there are none."""
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
    """Return the product of an operator's first two matrices, the second possibly transposed; None if unknown."""
    shapes = [shape for shape in parse_shapes(operator.shapes) if len(shape) >= 2]
    if len(shapes) < 2:
        return None
    left, right = shapes[0], shapes[1]
    rows, dtype = prod(left[:-1]), find_float_dtype(operator)
    if left[-1] == right[-2]:
        return MatrixProduct(rows, left[-1], right[-1], dtype)
    return MatrixProduct(rows, left[-1], right[-2], dtype) if left[-1] == right[-1] else None  # a linear layer's weight


def parse_convolution(operator: Operator) -> Convolution | None:
    """Return the forward convolution that an operator computes; None if unknown.

    A trace does not have stride and padding; the number of floating-point operations gives them.
    """
    shapes = parse_shapes(operator.shapes)
    if "backward" in operator.name or len(shapes) < 2 or len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return None
    image, weight = shapes[0], shapes[1]
    if image[1] % weight[1] or not operator.flops or not operator.calls:
        return None
    pixels = operator.flops / operator.calls / (2 * image[0] * prod(weight))  # of one output image
    found = _find_stride_and_padding(image, weight, pixels)
    if found is None:
        return None
    stride, padding = found
    return Convolution(image, weight, stride, padding, image[1] // weight[1], find_float_dtype(operator))


def _find_stride_and_padding(image: Sequence[int], weight: Sequence[int], pixels: float) -> tuple[int, int] | None:
    """Return stride and padding for which an output image has `pixels` pixels; the usual padding is tried first."""
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
