"""Comparisons built in memory: a few tensors with names, roles and an order, judged as the command judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from viaduct.comparison.causes import find_causes
from viaduct.comparison.divergence import Divergence
from viaduct.comparison.drift import make_row
from viaduct.comparison.explain import explain
from viaduct.comparison.judge import Judgement, judge
from viaduct.comparison.measures import Unmeasurable, measure
from viaduct.comparison.measuring import Refusal
from viaduct.comparison.records import Cause, Explanation, Origin, Pair, Role, Row, StoredTensor

Array = np.ndarray[Any, Any]

# The causes that a compiler brings in.
FUSION, FOLDING, INT8, AMPLIFYING = "operator fusion", "constant folding", "int8 quantisation", "amplifying structure"

COMPILER_CAUSES = (FUSION, FOLDING, INT8, AMPLIFYING)


@dataclass
class ComparisonBuilder:
    """Pairs of tensors, added one by one and judged as the command judges them; `draw`: a random generator."""

    rows: list[Row] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def normal(self, *shape: int) -> Array:
        return self.draw.standard_normal(shape).astype(np.float32)

    def add(
        self,
        op: str,
        left: Array | None,
        right: Array | None,
        role: Role = "output",
        *,
        index: int = 0,
        order: int | None = None,
        step: int = 0,
        rank: int = 0,
        op_type: str = "",
        parameter: str = "",
        dtypes: tuple[str, str] = ("", ""),
    ) -> Row:
        """Add a pair; None: that side has no such tensor."""
        position = len(self.rows) if order is None else order
        sides = [
            None
            if array is None
            else self._store(array, dtype, op, op_type, role, index, position, step, rank, parameter)
            for array, dtype in ((left, dtypes[0]), (right, dtypes[1]))
        ]
        pair = Pair(position, sides[0], sides[1], op, op, "name")
        answer: object
        try:
            answer = Refusal("missing") if left is None or right is None else measure(left, right, *dtypes)
        except Unmeasurable as error:
            answer = Refusal(str(error))
        self.rows.append(make_row(pair, answer, None))
        return self.rows[-1]

    def _store(
        self, array: Array, dtype: str, op: str, op_type: str, role: Role, index: int, *numbers: Any
    ) -> StoredTensor:
        order, step, rank, parameter = numbers
        member = str(len(self.arrays))
        self.arrays[member] = array
        kind, shape = dtype or str(array.dtype), array.shape
        key = order, step, rank, kind, shape, Path("memory"), member
        return StoredTensor(op, op_type, role, index, *key, parameter=parameter)

    def open(self, stored: StoredTensor) -> Array:
        return self.arrays[stored.member]

    def judge(self, edges: Mapping[str, Sequence[str]] | None = None) -> Judgement:
        return judge(self.rows, {op: tuple(producers) for op, producers in (edges or {}).items()})

    def explain(self, edges: Mapping[str, Sequence[str]] | None = None) -> Explanation:
        return explain(self.judge(edges), dict(edges or {}), self.open)

    def causes(self, place: int = -1, kind: str = "operator") -> tuple[Cause, ...]:
        """Return the causes suspected of one row, by default the last."""
        place %= len(self.rows)
        stored = self.rows[place].tensor
        origin = Origin(stored.op, kind, stored.step, stored.rank, place, "")  # type: ignore[arg-type]
        divergence = Divergence(self.rows, origin, self.open)
        found = find_causes(divergence)
        assert not divergence.failures, divergence.failures
        return found

    def cause(self, place: int = -1, kind: str = "operator") -> str | None:
        found = self.causes(place, kind)
        return found[0].name if found else None


def add_noise(values: Array, relative_size: float = 0.3) -> Array:
    noise = np.random.default_rng(9).standard_normal(values.shape)
    return (values + relative_size * np.std(values) * noise).astype(values.dtype)


def add_chain(builder: ComparisonBuilder, *errors: float, inputs: bool = True) -> list[str]:
    """Add operators in a row, each with the error of its output; the input of each is the output before it."""
    names = [f"op{number}" for number in range(len(errors))]
    values = [builder.normal(4, 8, 6, 6) for _ in range(len(errors) + 1)]
    before = 0.0
    for number, (name, error) in enumerate(zip(names, errors, strict=True)):
        if inputs:
            given = values[number]
            builder.add(name, add_noise(given, before) if before else given, given, "input", order=number)
        made = values[number + 1]
        builder.add(name, add_noise(made, error) if error else made, made, order=number)
        before = error
    return names


def convolve(x_NCHW: Array, weight: Array, stride: int = 1, pad: tuple[int, int] = (1, 1)) -> Array:
    """The plainest convolution there is: `pad` cells before, as many as needed after."""
    kernel = weight.shape[2]
    extent = -(-x_NCHW.shape[2] // stride)
    x = np.pad(x_NCHW.astype(np.float64), ((0, 0), (0, 0), (pad[0], kernel), (pad[1], kernel)))
    out = np.zeros((len(x), len(weight), extent, extent))
    for row in range(kernel):
        for column in range(kernel):
            seen = x[:, :, row : row + stride * extent : stride, column : column + stride * extent : stride]
            out += np.einsum("nchw,oc->nohw", seen, weight[:, :, row, column].astype(np.float64))
    return out.astype(np.float32)


class Layer:
    """A comparison with the input and weight of a convolution; a test adds the output."""

    def __init__(self, stride: int = 1) -> None:
        self.builder = ComparisonBuilder()
        self.x, self.weight = self.builder.normal(3, 8, 12, 12), self.builder.normal(16, 8, 3, 3)
        self.stride = stride
        self.builder.add("conv", self.weight, self.weight, "parameter", parameter="weight", op_type="Conv2d")
        self.builder.add("conv", self.x, self.x, "input", op_type="Conv2d")

    def right(self) -> Array:
        return convolve(self.x, self.weight, self.stride)

    def find_cause_of(self, left: Array) -> str | None:
        self.builder.add("conv", left, self.right(), op_type="Conv2d")
        return self.builder.cause()


def name_cause_of_output(left: Array, right: Array) -> str | None:
    builder = ComparisonBuilder()
    builder.add("op", left, right)
    return builder.cause()


def build_norm_comparison(left_epsilon: float, right_epsilon: float, gammas: bool = True) -> ComparisonBuilder:
    builder = ComparisonBuilder()
    x = (builder.normal(4, 16, 6, 6) * np.linspace(0.05, 2, 16)[:, None, None] + 3).astype(np.float32)
    gamma = builder.normal(16) if gammas else np.ones(16, np.float32)
    beta = builder.normal(16) if gammas else np.zeros(16, np.float32)
    if gammas:
        builder.add("norm", gamma, gamma, "parameter", index=0, parameter="weight", op_type="BatchNorm2d")
        builder.add("norm", beta, beta, "parameter", index=1, parameter="bias", op_type="BatchNorm2d")
    mean, variance = x.mean((0, 2, 3)), x.astype(np.float64).var((0, 2, 3))
    sides = []
    for epsilon in (left_epsilon, right_epsilon):
        slope = gamma / np.sqrt(variance + epsilon)
        sides.append(((x - mean[:, None, None]) * slope[:, None, None] + beta[:, None, None]).astype(np.float32))
    builder.add("norm", x, x, "input", op_type="BatchNorm2d")
    builder.add("norm", *sides, op_type="BatchNorm2d")
    return builder


def round_to_half(values: Array) -> Array:
    return values.astype(np.float16)


def shape_per_channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)
