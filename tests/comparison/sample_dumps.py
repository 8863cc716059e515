"""Sides and alignments for tests: tensors without files, and dumps of a fused network with its graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comparison.foreign_dumps import (
    GeOp,
    as_json,
    as_text,
    npu,
    tfdbg,
)
from viaduct.comparison.align import Alignment
from viaduct.comparison.layouts import convert_layout
from viaduct.comparison.readers import read
from viaduct.comparison.records import Pair, Role, StoredDump, StoredTensor
from viaduct.comparison.storage import open_tensor


def tensor(op: str, role: Role = "output", index: int = 0, order: int = 0, **more: Any) -> StoredTensor:
    fields: dict[str, Any] = {"op_type": "", "step": 0, "rank": 0, "dtype": "float32", "shape": (2, 3), "path": None}
    fields |= {"statistics": {"min": -1.0, "max": 1.0, "mean": 0.0, "norm": 1.0}}
    return StoredTensor(op=op, role=role, index=index, order=order, **{**fields, **more})


def side(tensors: Iterable[StoredTensor], kind: str = "viaduct", **more: Any) -> StoredDump:
    return StoredDump(Path("dump"), kind, tuple(tensors), **more)


def names(alignment: Alignment) -> list[tuple[str | None, str | None]]:
    return [(p.left and p.left.op, p.right and p.right.op) for p in alignment.pairs]


def values_agree(pair: Pair) -> bool:
    """Opened and converted as measuring does it."""
    assert pair.left is not None
    assert pair.right is not None
    left, right = open_tensor(pair.left), open_tensor(pair.right)
    left = convert_layout(left, pair.layout) if pair.layout else left
    return left.shape == right.shape and np.allclose(left, right, atol=2e-3)


def nothing_lost(left: StoredDump, right: StoredDump, alignment: Alignment) -> None:
    ours = {
        (p.left.tensor_index, p.left.call, p.left.step, p.left.rank, p.left.parameter)
        for p in alignment.pairs
        if p.left
    }
    theirs = {id(p.right) for p in alignment.pairs if p.right}
    assert len(ours) == len(left.tensors)
    assert theirs == {id(stored) for stored in right.tensors}


def world(
    tmp_path: Path, ops: Sequence[GeOp], truth: dict[str, Any], form: str = "text"
) -> tuple[StoredDump, StoredDump, Path]:
    graph = tmp_path / "ge_proto_00292_Build.txt"
    graph.write_text(as_text(ops) if form == "text" else json.dumps(as_json(ops)))
    return read(npu(tmp_path / "npu", ops)), read(tfdbg(tmp_path / "gpu", truth)), graph
