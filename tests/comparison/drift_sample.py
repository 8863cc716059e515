"""A comparison with everything a page meets: two steps, an origin and what follows, NaN, a refused and a new row."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import numpy as np

from viaduct.comparison.drift import Drift, Options
from viaduct.comparison.measures import Measures, measure
from viaduct.comparison.records import (
    Cause,
    Explanation,
    Neighbour,
    Origin,
    Pair,
    Result,
    Role,
    Row,
    StoredDump,
    StoredTensor,
)

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ORIGIN = "layer3.0.bn2"
PARTS = ("conv1", "bn1", "relu", "conv2", "bn2", "relu2", "conv3", "bn3", "add")
BLOCKS = (3, 4, 6, 3)


def operators() -> list[str]:
    inner = [
        f"layer{stage + 1}.{block}.{part}"
        for stage, blocks in enumerate(BLOCKS)
        for block in range(blocks)
        for part in PARTS
    ]
    return ["conv1", "bn1", "maxpool", *inner, "avgpool", "fc"]


@functools.cache
def measure_kind(kind: str, seed: int) -> Measures:
    """Real measures of small tensors that differ as the kind says."""
    random = np.random.default_rng(seed)
    right = random.normal(0.1, 1.3, (2, 8, 4, 4)).astype(np.float32)
    size = {"good": 1e-6, "flag": 1e-6, "bad": 0.2, "nan": 0.0, "equal": 0.0}[kind] * 10 ** random.uniform(-0.4, 0.4)
    left = right + (size * random.normal(0, 1, right.shape)).astype(np.float32)
    if kind in ("nan", "flag"):
        left[0, 3, 1, 2] = np.nan
        left[1, 7, 3, 3] = np.inf
    if kind == "flag":
        right = np.where(np.isfinite(left), right, left)
    return measure(left.astype(np.float32), right)


def make_stored(op: str, order: int, step: int, role: Role = "output") -> StoredTensor:
    return StoredTensor(op, op_type(op), role, 0, order, step, 0, "float32", (2, 8, 4, 4), None)


def op_type(op: str) -> str:
    kinds = {"conv": "Conv2d", "bn": "BatchNorm2d", "relu": "ReLU", "add": "Add", "fc": "Linear"}
    return next((kind for start, kind in kinds.items() if op.rsplit(".", 1)[-1].startswith(start)), "Module")


def sample_rows(steps: int = 2, most: int | None = None, variety: int = 40) -> list[Row]:
    names = operators()
    rows: list[Row] = []
    for step in range(steps):
        for order, op in enumerate(names):
            for role in ("input", "output", "grad_output"):
                rows.append(sample_row(len(rows), op, order, step, role, names.index(ORIGIN), variety))
    rows = rows if most is None else rows[:most]
    return [*rows, *odd_rows(2 * len(names) + 1)]


def sample_row(number: int, op: str, order: int, step: int, role: Role, origin: int, variety: int) -> Row:
    bad = order > origin or (order == origin and role == "output")
    kind = "bad" if bad else "equal" if number % 17 == 0 else "good"
    backward = 2 * len(operators()) - order  # gradients come the other way round
    left = make_stored(op, backward if role == "grad_output" else order, step, role)
    follows = ORIGIN if bad and order > origin else ""
    result: Result = "bad" if bad else "good"
    reason = "RelativeEuclideanDistance 0.2 is above 0.001" if bad else ""
    pair = Pair(order + 1, left, left, op, op, "name")
    return Row(pair, measure_kind(kind, number % variety), result, reason, follows)


def odd_rows(order: int) -> list[Row]:
    """NaN on one side, NaN on both, a file that is missing, an operator the compiler inserted, a hostile name."""
    nan, flag, gone, new, hostile = (
        make_stored(name, order + n, 0)
        for n, name in enumerate(("head.nan", "head.flag", "head.gone", "TransData_1", HOSTILE))
    )
    return [
        Row(Pair(900, nan, nan, nan.op, nan.op, "name"), measure_kind("nan", 1), "bad", "NaN on the left only", ORIGIN),
        Row(Pair(901, flag, flag, flag.op, flag.op, "name"), measure_kind("flag", 1), "flag", "NaN in the same places"),
        Row(Pair(902, None, gone, "*", gone.op, "none"), None, "refused", "the left side has no such tensor"),
        Row(Pair(903, new, None, new.op, "*", "graph"), None, "new", "inserted by the compiler"),
        Row(
            Pair(904, hostile, hostile, HOSTILE, HOSTILE, "structure", 0.83),
            measure_kind("bad", 2),
            "bad",
            HOSTILE,
            HOSTILE,
        ),
    ]


def sample_sides(rows: list[Row]) -> tuple[StoredDump, StoredDump]:
    left = tuple(row.pair.left for row in rows if row.pair.left)
    right = tuple(row.pair.right for row in rows if row.pair.right)
    facts = {"precision": "fp32", "mode": "eager", "deterministic": "yes", "seed": "1"}
    return (
        StoredDump(Path("runs/npu/dump"), "viaduct", left, settings={"device": "Ascend 910B", **facts}),
        StoredDump(
            Path("runs/gpu/dump"),
            "viaduct",
            right,
            notes=("2 files were left out.",),
            settings={"device": "H200", **facts},
        ),
    )


def sample_explanation(rows: list[Row]) -> Explanation:
    index = next(n for n, row in enumerate(rows) if row.op == ORIGIN and row.result == "bad")
    around = [("relu", -2, "good"), ("conv2", -1, "good"), ("bn2", 0, "bad"), ("relu2", 1, "bad"), ("conv3", 2, "bad")]
    names = {part: f"layer3.0.{part}" for part, _, _ in around}
    neighbours = [
        Neighbour(
            names[part], op_type(names[part]), hops, result, 0.2 if result == "bad" else 1e-6, row_of(rows, names[part])
        )
        for part, hops, result in around
    ]
    shortcut = Neighbour("layer2.3.add", "Add", -2, "good", 2e-6, row_of(rows, "layer2.3.add"))
    joined = Neighbour("layer3.0.add", "Add", 2, "bad", 0.3, row_of(rows, "layer3.0.add"))
    chain = list(names.values())
    edges = [*itertools.pairwise(chain), ("layer2.3.add", names["relu"]), ("layer2.3.add", "layer3.0.add")]
    return Explanation(
        f"The two sides part at {ORIGIN}, step 0: its epsilon is another one.",
        Origin(ORIGIN, "operator", 0, 0, index, "its output is off by 0.2 while its input still agrees to 10⁻⁶"),
        causes=(
            Cause(
                "wrong BN epsilon",
                "left = 0.81 · right per channel, as 1e-3 for 1e-5 would give",
                "Set eps=1e-5.",
                confidence=0.92,
            ),
            Cause("stale weight", "the scale differs too", "Load both from the same checkpoint.", confidence=0.2),
        ),
        neighbours=(shortcut, *neighbours, joined),
        edges=(*edges, (names["conv3"], "layer3.0.add")),
    )


def sample_drift(rows: list[Row], explanation: Explanation) -> Drift:
    return Drift(*sample_sides(rows), tuple(rows), explanation, Options())


def row_of(rows: list[Row], op: str) -> int | None:
    return next((n for n, row in enumerate(rows) if row.op == op and row.tensor.role == "output"), None)
