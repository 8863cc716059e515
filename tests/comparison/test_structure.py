"""Alignment by type, shapes and values, where names do not match."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.foreign_dumps import (
    numbers,
)
from comparison.sample_dumps import names, nothing_lost, side, tensor
from viaduct.comparison.align import align
from viaduct.comparison.readers import read
from viaduct.comparison.records import Role, StoredDump, StoredTensor
from viaduct.models import build


def network_dump(name: str, seed: int = 0, drift: float = 0.0) -> StoredDump:
    """Module by module what a forward pass of a real network leaves behind, as statistics."""
    torch.manual_seed(0)
    network = build(name, classes=10).eval()
    held: list[StoredTensor] = []

    def record(path: str) -> Any:
        def hook(module: torch.nn.Module, given: tuple[Any, ...], made: Any) -> None:
            order = len({stored.order for stored in held})
            for role, value in (("input", given[0]), ("output", made)):
                held.append(stored_of(path, type(module).__name__, role, value, order, drift))  # type: ignore[arg-type]
            for number, (key, value) in enumerate(module.named_parameters(recurse=False)):
                held.append(stored_of(path, type(module).__name__, "parameter", value, order, 0, key, number))

        return hook

    leaves = [(path, module) for path, module in network.named_modules() if not list(module.children())]
    for path, module in leaves:
        module.register_forward_hook(record(path))
    with torch.no_grad():
        network(torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(seed)))
    return side(held)


def stored_of(
    op: str, kind: str, role: Role, value: Any, order: int, drift: float, parameter: str = "", index: int = 0
) -> StoredTensor:  # fmt: skip
    value = value.detach().double()
    value = value * (1 + drift)
    statistics = {
        "min": float(value.min()),
        "max": float(value.max()),
        "mean": float(value.mean()),
        "norm": float(value.norm()),
    }
    return tensor(
        op, role, index, order, op_type=kind, shape=tuple(value.shape), statistics=statistics, parameter=parameter
    )


@pytest.fixture(scope="module")
def resnet() -> StoredDump:
    return network_dump("resnet50_v1")


@pytest.fixture(scope="module")
def drifted() -> StoredDump:
    return network_dump("resnet50_v1", drift=0.3)


def rename_operators(
    dump: StoredDump, forget_types: bool = False, without: float = 0.0, seed: int = 0
) -> tuple[StoredDump, dict[str, str]]:
    """Every operator under a name that says nothing; some operators gone."""
    rng = random.Random(seed)
    ops = list(dict.fromkeys(stored.op for stored in dump.tensors))
    gone = {op for op in ops if rng.random() < without}
    numbers_of = {op: f"node_{rng.randrange(10**9)}" for op in ops}
    kept = [
        replace(
            stored, op=numbers_of[stored.op], op_type="" if forget_types else stored.op_type, parameter=stored.parameter
        )
        for stored in dump.tensors
        if stored.op not in gone
    ]
    return replace(dump, tensors=tuple(kept)), numbers_of


def precision(ours: StoredDump, theirs: StoredDump, truth: dict[str, str]) -> tuple[float, float]:
    """Return precision and recall of the pairs."""
    alignment = align(ours, theirs)
    nothing_lost(ours, theirs, alignment)
    pairs = [p for p in alignment.pairs if p.left and p.right]
    right = sum(truth[p.left.op] == p.right.op and p.left.role == p.right.role for p in pairs if p.left and p.right)
    possible = sum(truth[stored.op] in {other.op for other in theirs.tensors} for stored in ours.tensors)
    assert all(p.matched_by == "structure" and 0 < p.confidence < 1 for p in pairs)
    return right / len(pairs), right / possible


@pytest.mark.parametrize("forget_types", [False, True])
@pytest.mark.parametrize("without", [0.0, 0.1])
@pytest.mark.parametrize("drift", [False, True])
def test_a_renamed_resnet_is_recognised(
    resnet: StoredDump, drifted: StoredDump, forget_types: bool, without: float, drift: bool
) -> None:
    theirs, truth = rename_operators(resnet, forget_types, without)
    exact, found = precision(drifted if drift else resnet, theirs, truth)
    assert exact >= 0.95, f"{exact:.3f} of the pairs are right"
    assert found >= 0.95, f"{found:.3f} of the pairs were found"


def test_matched_names_help_to_match_the_others_by_structure(resnet: StoredDump) -> None:
    theirs, truth = rename_operators(resnet, forget_types=True)
    back = {new: old for old, new in truth.items() if old.startswith(("layer1", "layer2", "stem"))}
    half = replace(theirs, tensors=tuple(replace(t, op=back.get(t.op, t.op)) for t in theirs.tensors))
    alignment = align(resnet, half)
    right = [p.right.op in (p.left.op, truth[p.left.op]) for p in alignment.pairs if p.left and p.right]
    assert sum(right) >= 0.95 * len(resnet.tensors)


def test_different_networks_are_not_matched(resnet: StoredDump) -> None:
    """A wrong pair is worse than none: what agrees in nothing but a shape by chance must not meet."""
    other = side([tensor(f"x{n}", order=n, shape=(7, 11, n + 1), op_type="Weird") for n in range(20)])
    assert not any(p.left and p.right for p in align(resnet, other).pairs)


@pytest.mark.parametrize("seed", range(5))
def test_files_without_order_are_matched_by_content(tmp_path: Path, seed: int) -> None:
    values = {f"w{n}": numbers(40, 3, seed=100 * seed + n) for n in range(12)}
    shuffled = random.Random(seed).sample(sorted(values), len(values))
    np.savez(tmp_path / "left.npz", **values)
    np.savez(tmp_path / "right.npz", **{f"x{index}": values[name] for index, name in enumerate(shuffled)})
    alignment = align(read(tmp_path / "left.npz"), read(tmp_path / "right.npz"))
    assert {(p.left.op, p.right.op) for p in alignment.pairs if p.left and p.right} == {
        (name, f"x{index}") for index, name in enumerate(shuffled)
    }


def test_two_single_files_are_matched_whatever_their_names(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", numbers(3, 4))
    np.save(tmp_path / "yours.npy", numbers(3, 4, seed=1))
    assert names(align(read(tmp_path / "mine.npy"), read(tmp_path / "yours.npy"))) == [("mine", "yours")]
