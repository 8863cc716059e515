"""Pairs of tensors by name, step and rank; no tensor is lost."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from comparison.foreign_dumps import (
    fused_network,
    msprobe,
    numbers,
    tensor_entry,
)
from comparison.sample_dumps import names, nothing_lost, side, tensor, world
from viaduct.comparison.align import align
from viaduct.comparison.readers import read
from viaduct.comparison.records import StoredDump, StoredTensor

# By name.


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("layer1.0.conv1", "layer1.0.conv1"),
        ("module.layer1.0.conv1", "layer1.0.conv1"),
        ("_orig_mod.layer1.0.conv1", "module.layer1.0.conv1"),
        ("layer1._orig_mod.0.conv1", "layer1.0.conv1"),
        ("conv1_BiasAdd", "conv1/BiasAdd"),
        ("block1/unit_1/conv", "block1.unit_1.conv"),
    ],
)
def test_names_are_matched_without_wrappers_and_separators(left: str, right: str) -> None:
    others = ["stem", "head"]
    ours = side(tensor(op, order=n) for n, op in enumerate([*others, left]))
    theirs = side(tensor(op, order=n) for n, op in enumerate([right, *others]))
    alignment = align(ours, theirs)
    assert (left, right) in names(alignment)
    assert {p.matched_by for p in alignment.pairs} == {"name"}


def test_too_many_operators_to_pair_by_structure_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = side(tensor(f"left{n}", order=n) for n in range(3))
    theirs = side(tensor(f"right{n}", order=n) for n in range(3))
    assert not align(ours, theirs).notes
    monkeypatch.setattr("viaduct.comparison.structure.MAX_CELLS", 8)
    alignment = align(ours, theirs)
    assert {pair.matched_by for pair in alignment.pairs} == {"none"}
    assert "too many to pair them by structure" in alignment.notes[0]


def test_a_prefix_of_all_names_of_a_side_is_ignored() -> None:
    ours = side(tensor(f"resnet_v1/{op}", order=n) for n, op in enumerate(["stem", "block", "head"]))
    theirs = side(tensor(op, order=n) for n, op in enumerate(["stem", "block", "head"]))
    assert {p.matched_by for p in align(ours, theirs).pairs} == {"name"}


def test_names_that_are_equal_without_separators_are_ambiguous() -> None:
    ours = side([tensor("a/b_c", shape=(4,)), tensor("a_b/c", order=1, shape=(5,)), tensor("d", order=2)])
    theirs = side([tensor("a_b_c", shape=(6,)), tensor("d", order=1)], "tfdbg")
    alignment = align(ours, theirs)
    assert names(alignment).count(("d", "d")) == 1
    assert any("ambiguous" in note and "a/b_c" in note for note in alignment.notes)
    nothing_lost(ours, theirs, alignment)


def test_inputs_outputs_calls_and_parameters_are_kept_apart() -> None:
    held = [tensor("f", "input"), tensor("f", "input", 1), tensor("f"), tensor("f", call=1, order=1)]
    held += [tensor("f", "parameter", parameter="weight"), tensor("f", "parameter", 1, parameter="bias")]
    swapped = [held[0], held[1], held[3], held[2], replace(held[5], index=0), replace(held[4], index=1)]
    for p in align(side(held), side(swapped)).pairs:
        assert p.left is not None
        assert p.right is not None
        assert (p.left.role, p.left.call, p.left.parameter) == (p.right.role, p.right.call, p.right.parameter)


def test_tensors_without_a_partner_are_listed_in_order() -> None:
    ours = side(tensor(op, order=n, shape=(n + 1,)) for n, op in enumerate(["a", "b", "only_left", "d"]))
    theirs = side(tensor(op, order=n, shape=(n + 9,)) for n, op in enumerate(["a", "only_right", "b", "d"]))
    alignment = align(ours, theirs)
    assert names(alignment) == [("a", "a"), (None, "only_right"), ("b", "b"), ("only_left", None), ("d", "d")]
    assert [p.group for p in alignment.pairs] == [0, 1, 2, 3, 4]
    assert all(p.reason for p in alignment.pairs if not p.left or not p.right)


def test_inputs_without_a_graph_are_explained(tmp_path: Path) -> None:
    ops, truth = fused_network()
    left, right, _ = world(tmp_path, ops, truth)
    alignment = align(left, right)
    nothing_lost(left, right, alignment)
    assert ("Softmax", "Softmax") in names(alignment)
    reason = next(p.reason for p in alignment.pairs if p.left and p.left.role == "input" and not p.right)
    assert "it has no inputs, and a graph (--graph)" in reason


@pytest.mark.parametrize("theirs", [[], [tensor("b", "parameter", shape=(9,))], [tensor("b", "input", shape=(9,))]])
def test_a_graph_is_advised_only_if_the_right_side_has_outputs_alone(theirs: list[StoredTensor]) -> None:
    [pair] = [p for p in align(side([tensor("a", "input")]), side(theirs)).pairs if p.left]
    assert pair.reason == "no counterpart was found on the right side"


def test_an_msprobe_dump_is_aligned_with_a_viaduct_dump(tmp_path: Path) -> None:
    data = {
        "Module.module.layer1.0.conv1.Conv2d.forward.0": {
            "input_args": [tensor_entry(numbers(2, 3), None)],
            "parameters": {"weight": tensor_entry(numbers(4, 3), None)},
            "output": [tensor_entry(numbers(2, 4), None)],
        },
        "Module.module.layer1.0.conv1.Conv2d.backward.0": {
            "input": [tensor_entry(numbers(2, 4), None)], "output": [tensor_entry(numbers(2, 3), None)],
        },
        "Module.module.layer1.0.conv1.Conv2d.parameters_grad": {"weight": [tensor_entry(numbers(4, 3), None)]},
    }  # fmt: skip
    theirs = read(msprobe(tmp_path / "step0" / "rank0", data))
    held = [("input", (2, 3), ""), ("parameter", (4, 3), "weight"), ("output", (2, 4), "")]
    held += [("grad_output", (2, 4), ""), ("grad_input", (2, 3), ""), ("gradient", (4, 3), "weight")]
    ours = side(tensor("layer1.0.conv1", role, shape=shape, parameter=name) for role, shape, name in held)  # type: ignore[arg-type]
    alignment = align(ours, theirs)
    assert [p.matched_by for p in alignment.pairs] == ["name"] * 6
    assert all(p.left and p.right and p.left.shape == p.right.shape for p in alignment.pairs)


# Steps and ranks.


def test_single_steps_of_other_numbers_are_paired_with_a_note() -> None:
    alignment = align(side([tensor("a", step=5)]), side([tensor("a", step=0)]))
    assert names(alignment) == [("a", "a")]
    assert alignment.notes == ("step 5 of the left was compared with step 0 of the right",)


def test_steps_that_only_one_side_has_are_listed_and_named() -> None:
    ours = side(tensor("a", step=step) for step in (0, 5, 10))
    theirs = side(tensor("a", step=step) for step in (0, 6))
    alignment = align(ours, theirs)
    assert [(p.left and p.left.step, p.right and p.right.step) for p in alignment.pairs] == [
        (0, 0), (5, None), (10, None), (None, 6),
    ]  # fmt: skip
    assert "only the left has step 5, 10" in alignment.notes[0]
    assert "only the right has step 6" in alignment.notes[1]
    assert len({p.group for p in alignment.pairs}) == 4


def test_ranks_are_paired_by_number() -> None:
    ours = side(tensor("a", rank=rank) for rank in (0, 1))
    alignment = align(ours, side(tensor("a", rank=rank) for rank in (1, 0)))
    assert all(p.left and p.right and p.left.rank == p.right.rank for p in alignment.pairs)


# Speed.


def test_five_thousand_tensors_are_aligned_within_seconds() -> None:
    def many(prefix: str, kind: str = "viaduct") -> StoredDump:
        made = []
        for n in range(1250):
            made += [
                tensor(f"{prefix}{n}", role, order=n, op_type=f"T{n % 7}", shape=(n % 13 + 1, 8))
                for role in ("input", "output")
            ]
            made += [tensor(f"{prefix}{n}", "parameter", i, n, shape=(8,), parameter=key) for i, key in enumerate("wb")]
        return side(made, kind)

    left, same, other = many("a"), many("a"), many("b")
    assert len(left.tensors) == 5000
    by_name, by_structure = min(time_alignment(left, same) for _ in range(2)), time_alignment(left, other)
    assert by_name < 1.0, f"{by_name:.2f} s by name"
    assert by_structure < 4.0, f"{by_structure:.2f} s by structure"


def time_alignment(left: StoredDump, right: StoredDump) -> float:
    begin = time.process_time()
    align(left, right)
    return time.process_time() - begin
