"""Which tensor belongs to which: by graph, by name, by rules, by structure; and that nothing is lost."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comparison.foreign_dumps import (
    GeOp,
    as_json,
    as_text,
    fused_network,
    msprobe,
    npu,
    numbers,
    tensor_entry,
    tfdbg,
    to_nc1hwc0,
)
from viaduct.comparison.align import Alignment, align
from viaduct.comparison.readers import read
from viaduct.comparison.rules import read_rules
from viaduct.comparison.storage import convert_layout, open_tensor
from viaduct.comparison.tensors import Pair, Role, Side, Stored
from viaduct.errors import BadData, BadValue, UnknownName, ViaductError
from viaduct.models import build


def tensor(op: str, role: Role = "output", index: int = 0, order: int = 0, **more: Any) -> Stored:
    fields: dict[str, Any] = {"op_type": "", "step": 0, "rank": 0, "dtype": "float32", "shape": (2, 3), "path": None}
    fields |= {"statistics": {"min": -1.0, "max": 1.0, "mean": 0.0, "norm": 1.0}}
    return Stored(op=op, role=role, index=index, order=order, **{**fields, **more})


def side(tensors: Iterable[Stored], kind: str = "viaduct", **more: Any) -> Side:
    return Side(Path("dump"), kind, tuple(tensors), **more)


def names(alignment: Alignment) -> list[tuple[str | None, str | None]]:
    return [(p.left and p.left.op, p.right and p.right.op) for p in alignment.pairs]


def values_agree(pair: Pair) -> bool:
    """Opened and converted as measuring does it."""
    assert pair.left is not None
    assert pair.right is not None
    left, right = open_tensor(pair.left), open_tensor(pair.right)
    left = convert_layout(left, pair.layout) if pair.layout else left
    return left.shape == right.shape and np.allclose(left, right, atol=2e-3)


def nothing_lost(left: Side, right: Side, alignment: Alignment) -> None:
    ours = {
        (p.left.tensor_index, p.left.call, p.left.step, p.left.rank, p.left.parameter)
        for p in alignment.pairs
        if p.left
    }
    theirs = {id(p.right) for p in alignment.pairs if p.right}
    assert len(ours) == len(left.tensors)
    assert theirs == {id(stored) for stored in right.tensors}


# By graph.


def world(tmp_path: Path, ops: Sequence[GeOp], truth: dict[str, Any], form: str = "text") -> tuple[Side, Side, Path]:
    graph = tmp_path / "ge_proto_00292_Build.txt"
    graph.write_text(as_text(ops) if form == "text" else json.dumps(as_json(ops)))
    return read(npu(tmp_path / "npu", ops)), read(tfdbg(tmp_path / "gpu", truth)), graph


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_fused_network_is_aligned_through_its_graph(tmp_path: Path, form: str) -> None:
    ops, truth = fused_network()
    left, right, graph = world(tmp_path, ops, truth, form)
    alignment = align(left, right, graph=graph)
    nothing_lost(left, right, alignment)
    found = {p.left.tensor_index: p for p in alignment.pairs if p.left}
    partners = {name: p.right and (p.right.op, p.right.index) for name, p in found.items()}
    conv = "conv1/Conv2Dconv1/bnconv1/relu"
    assert partners == {
        "IteratorV2:output:0": ("IteratorV2", 0),
        "trans_TransData_1:input:0": ("IteratorV2", 0),
        "trans_TransData_1:output:0": ("IteratorV2", 0),
        f"{conv}:input:0": ("IteratorV2", 0),
        f"{conv}:output:0": ("conv1_relu", 0),
        "Cast_7:input:0": ("conv1_relu", 0),
        "Cast_7:output:0": ("conv1_relu", 0),
        "pool/PartialMean:input:0": ("conv1_relu", 0),
        "pool/PartialMean:output:0": ("pool_Mean", 0),
        "split_part1:input:0": ("pool_Mean", 0),
        "split_part1:output:0": ("split", 0),
        "split_inner:output:0": None,
        "split_part2:output:0": ("split", 1),
        "dense/MatMul:input:0": ("split", 1),
        "dense/MatMul:output:0": ("dense_BiasAdd", 0),
        "AtomicAddrClean_1:output:0": None,
        "Softmax:input:0": ("dense_BiasAdd", 0),
        "Softmax:output:0": ("Softmax", 0),
    }
    assert all(values_agree(p) for p in alignment.pairs if p.left and p.right)
    assert all(p.matched == "graph" for p in alignment.pairs if p.left and p.right)


def test_groups_and_names_are_shown_as_the_seed_shows_them(tmp_path: Path) -> None:
    ops, truth = fused_network()
    alignment = align(*world(tmp_path, ops, truth)[:2], graph=tmp_path / "ge_proto_00292_Build.txt")
    shown = {p.left.tensor_index: (p.left_op, p.right_op) for p in alignment.pairs if p.left}
    assert shown["conv1/Conv2Dconv1/bnconv1/relu:output:0"][1] == "conv1/Conv2D,conv1/bn,conv1/relu"
    assert shown["dense/MatMul:output:0"] == ("dense/MatMul", "dense/bias,dense/MatMul,dense/BiasAdd")
    assert shown["split_part2:output:0"] == ("split_part1,split_inner,split_part2", "split")
    assert shown["trans_TransData_1:output:0"] == ("trans_TransData_1", "*")
    assert shown["AtomicAddrClean_1:output:0"] == ("AtomicAddrClean_1", "*")
    groups = [p.group for p in alignment.pairs]
    assert groups == sorted(groups)
    split = {p.group for p in alignment.pairs if p.left and p.left.op.startswith("split")}
    assert len(split) == 1, "the parts of a split operator are one group"


def test_originals_that_were_fused_away_are_listed(tmp_path: Path) -> None:
    ops, truth = fused_network()
    alignment = align(*world(tmp_path, ops, truth)[:2], graph=tmp_path / "ge_proto_00292_Build.txt")
    alone = {p.right.op: (p.left_op, p.reason) for p in alignment.pairs if p.right and not p.left}
    assert set(alone) == {"conv1_Conv2D", "conv1_bn", "dense_MatMul"}
    assert alone["conv1_bn"][0] == "*"
    assert "fused into conv1/Conv2Dconv1/bnconv1/relu" in alone["conv1_bn"][1]


def test_missing_files_on_either_side_are_said(tmp_path: Path) -> None:
    ops, truth = fused_network()
    del truth["pool/Mean:0"]
    ops[-1].dump = {}
    left, right, graph = world(tmp_path, ops, truth)
    alignment = align(left, right, graph=graph)
    nothing_lost(left, right, alignment)
    reasons = {p.left.tensor_index: p.reason for p in alignment.pairs if p.left and not p.right}
    assert reasons["pool/PartialMean:output:0"] == "the right side has no tensor pool/Mean:0"
    assert (
        next(p for p in alignment.pairs if p.right and p.right.op == "Softmax").reason
        == "Softmax was not dumped on the left"
    )


def test_edges_lead_from_dumped_operator_to_dumped_operator(tmp_path: Path) -> None:
    ops, truth = fused_network()
    ops[3].dump = {}  # the Cast was not dumped
    left, right, graph = world(tmp_path, ops, truth)
    edges = align(left, right, graph=graph).edges
    assert edges["pool/PartialMean"] == ("conv1/Conv2Dconv1/bnconv1/relu",)
    assert edges["conv1/Conv2Dconv1/bnconv1/relu"] == ("trans_TransData_1",)


def test_of_an_l1_group_the_ends_count(tmp_path: Path) -> None:
    first, middle, last = numbers(2, 4), numbers(2, 4, seed=1), numbers(2, 4, seed=2)
    ops = [
        GeOp("f1", "Conv2D", [], ["a"], [{"origin": "a"}], l1="1", dump={"output:0": first}),
        GeOp("f2", "Conv2D", ["f1:0"], ["b"], [{"origin": "b"}], l1="1", dump={"output:0": middle}),
        GeOp("f3", "Conv2D", ["f2:0"], ["c"], [{"origin": "c"}], l1="1", dump={"output:0": last}),
    ]
    left, right, graph = world(tmp_path, ops, {"a:0": first, "b:0": middle, "c:0": last})
    pairs = {p.left.op: p for p in align(left, right, graph=graph).pairs if p.left}
    assert [bool(pairs[op].right) for op in ("f1", "f2", "f3")] == [True, False, True]
    assert pairs["f2"].right_op == "*"
    assert {p.left_op for p in pairs.values()} == {"f1,f2,f3"}
    assert {p.group for p in pairs.values()} == {0}


def test_the_named_output_counts_not_the_first_original(tmp_path: Path) -> None:
    one, two = numbers(2, 4), numbers(2, 4, seed=1)
    ops = [
        GeOp("fused", "Fused", [], ["a", "b"], [{"origin": "b", "index": 1}, {"origin": "a", "index": 0}],
             dump={"output:0": two, "output:1": one}),
    ]  # fmt: skip
    left, right, graph = world(tmp_path, ops, {"a:0": one, "b:1": two, "b:0": numbers(2, 4, seed=9)})
    pairs = [p for p in align(left, right, graph=graph).pairs if p.left]
    assert [(p.right.op, p.right.index) for p in pairs if p.right] == [("b", 1), ("a", 0)]
    assert all(map(values_agree, pairs))


def test_colliding_file_names_are_reported_not_guessed(tmp_path: Path) -> None:
    value = numbers(2, 4)
    ops = [
        GeOp("x", "Relu", [], ["a/b_c"], [{"origin": "a/b_c", "origin_shape": (2, 4)}], dump={"output:0": value}),
        GeOp("y", "Relu", ["x:0"], ["a_b/c"], [{"origin": "a_b/c", "origin_shape": (2, 4)}], dump={"output:0": value}),
    ]
    left, right, graph = world(tmp_path, ops, {"a/b_c:0": value})
    alignment = align(left, right, graph=graph)
    assert all(p.right is None and p.reason.startswith("ambiguous: a/b_c and a_b/c") for p in alignment.pairs if p.left)
    assert any(note.startswith("ambiguous") for note in alignment.notes)
    nothing_lost(left, right, alignment)


def test_a_collision_is_resolved_where_shapes_tell(tmp_path: Path) -> None:
    value = numbers(2, 4)
    ops = [
        GeOp("x", "Relu", [], ["a/b_c"], [{"origin": "a/b_c", "origin_shape": (2, 4)}], dump={"output:0": value}),
        GeOp(
            "y", "Relu", [], ["a_b/c"], [{"origin": "a_b/c", "origin_shape": (7, 7)}], dump={"output:0": numbers(7, 7)}
        ),
    ]
    left, right, graph = world(tmp_path, ops, {"a/b_c:0": value})
    pairs = {p.left.op: p for p in align(left, right, graph=graph).pairs if p.left}
    assert pairs["x"].right is not None
    assert pairs["y"].right is None
    assert "ambiguous" in pairs["y"].reason


def test_the_file_wins_over_the_graphs_word_on_its_layout(tmp_path: Path) -> None:
    nchw = numbers(2, 6, 5, 4)
    output = {"layout": "NC1HWC0", "origin": "a", "format": "NHWC", "origin_shape": (2, 5, 4, 6)}
    ops = [GeOp("a", "Conv2D", [], ["a"], [output], dump={"output:0": to_nc1hwc0(nchw)})]
    for truth in (nchw, nchw.transpose(0, 2, 3, 1).copy()):
        left, right, graph = world(tmp_path, ops, {"a:0": truth})
        [pair] = align(left, right, graph=graph).pairs
        assert values_agree(pair)


def test_axes_are_turned_even_where_shapes_are_alike(tmp_path: Path) -> None:
    nchw = numbers(2, 4, 4, 4)
    output = {"layout": "NCHW", "origin": "a", "format": "NHWC", "origin_shape": (2, 4, 4, 4)}
    ops = [GeOp("a", "Conv2D", [], ["a"], [output], dump={"output:0": nchw})]
    left, right, graph = world(tmp_path, ops, {"a:0": nchw.transpose(0, 2, 3, 1).copy()})
    assert values_agree(align(left, right, graph=graph).pairs[0])


def test_a_ring_of_casts_ends(tmp_path: Path) -> None:
    ops = [
        GeOp("a", "Cast", ["b:0"], [], [{}], dump={"output:0": numbers(2)}),
        GeOp("b", "Cast", ["a:0"], [], [{}], dump={"output:0": numbers(2)}),
    ]
    left, right, graph = world(tmp_path, ops, {"z:0": numbers(2)})
    assert all(p.right is None for p in align(left, right, graph=graph).pairs if p.left)


def test_two_graphs_translate_through_the_originals(tmp_path: Path) -> None:
    """NPU against NPU, fusion on and off."""
    value, ops_off = numbers(2, 4), []
    ops_on = [GeOp("conv_relu", "Conv2D", [], ["conv", "relu"], [{"origin": "relu"}], dump={"output:0": value})]
    ops_off = [
        GeOp("my_conv", "Conv2D", [], ["conv"], [{"origin": "conv"}], dump={"output:0": numbers(2, 4, seed=1)}),
        GeOp("my_relu", "Relu", ["my_conv:0"], ["relu"], [{"origin": "relu"}], dump={"output:0": value}),
    ]
    for name, ops in (("on", ops_on), ("off", ops_off)):
        npu(tmp_path / name, ops)
        (tmp_path / f"{name}.txt").write_text(as_text(ops))
    left, right = read(tmp_path / "on"), read(tmp_path / "off")
    alignment = align(left, right, graph=tmp_path / "on.txt", graph_right=tmp_path / "off.txt")
    [pair] = [p for p in alignment.pairs if p.left]
    assert pair.right is not None
    assert pair.right.op == "my_relu"
    nothing_lost(left, right, alignment)


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
def test_names_meet_in_spite_of_wrappers_and_separators(left: str, right: str) -> None:
    others = ["stem", "head"]
    ours = side(tensor(op, order=n) for n, op in enumerate([*others, left]))
    theirs = side(tensor(op, order=n) for n, op in enumerate([right, *others]))
    alignment = align(ours, theirs)
    assert (left, right) in names(alignment)
    assert {p.matched for p in alignment.pairs} == {"name"}


def test_a_prefix_that_a_whole_side_has_is_looked_through() -> None:
    ours = side(tensor(f"resnet_v1/{op}", order=n) for n, op in enumerate(["stem", "block", "head"]))
    theirs = side(tensor(op, order=n) for n, op in enumerate(["stem", "block", "head"]))
    assert {p.matched for p in align(ours, theirs).pairs} == {"name"}


def test_names_that_fall_together_are_ambiguous() -> None:
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


def test_what_has_no_partner_is_listed_in_its_place() -> None:
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
    assert "--graph" in reason


def test_an_msprobe_dump_meets_one_of_ours(tmp_path: Path) -> None:
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
    assert [p.matched for p in alignment.pairs] == ["name"] * 6
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


# By rules.


def rules_file(tmp_path: Path, text: object, name: str = "rules.json") -> Path:
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def test_rules_map_ignore_and_shift(tmp_path: Path) -> None:
    rules = {
        "map": {"net/block{n}/conv{m}": "layer{n}.conv{m}", "logits": "fc", "extra": "*", "lost": "nowhere",
                "deep/{x...}": "{x}"},
        "ignore": {"left": ["*/counter"], "right": ["save*"]},
        "step_offset": 1,
    }  # fmt: skip
    ours = ["net/block3/conv2", "logits", "extra", "lost", "deep/a/b", "net/counter"]
    theirs = ["layer3.conv2", "fc", "a/b", "save_1"]
    alignment = align(
        side(tensor(op, order=n, shape=(n + 2,)) for n, op in enumerate(ours)),
        side(tensor(op, order=n, step=1, shape=(n + 20,)) for n, op in enumerate(theirs)),
        rules=rules_file(tmp_path, rules),
    )
    assert names(alignment) == [
        ("net/block3/conv2", "layer3.conv2"), ("logits", "fc"), ("extra", None), ("lost", None), ("deep/a/b", "a/b"),
    ]  # fmt: skip
    assert [p.matched for p in alignment.pairs] == ["rules", "rules", "none", "none", "rules"]
    assert alignment.pairs[2].right_op == "*"
    assert "left out by the rules: 1 tensors of the left, 1 of the right" in alignment.notes


def test_msprobes_own_map_is_read(tmp_path: Path) -> None:
    text = (
        "# mine\nModule.conv1.Conv2d.forward.0.input.0: Module.stem.Conv2d.forward.1.input.0\n"
        "'Functional.relu.2.forward.output.0': \"Functional.gelu.0.forward.output.0\"\nplain: other # why\n"
    )
    rules = read_rules(rules_file(tmp_path, text, "map.yaml"))
    assert rules.find_partner("conv1", 0) == ("stem", 1)
    assert rules.find_partner("Functional.relu.2", 0) == ("Functional.gelu.0", 0)
    assert rules.find_partner("plain", 3) == ("other", 3)
    assert rules.find_partner("unheard", 0) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", BadData), ("[]", BadValue), ('{"maps": {}}', UnknownName), ('{"map": {"a": 1}}', BadValue),
        ('{"map": []}', BadValue), ('{"map": {"a{n}{n}": "b"}}', BadValue), ('{"map": {"a{n}": "b{m}"}}', BadValue),
        ('{"ignore": {"middle": []}}', BadValue), ('{"ignore": [1]}', BadValue), ('{"ignore": "x"}', BadValue),
        ('{"step_offset": "1"}', BadValue), ('{"step_offset": true}', BadValue), ("[" * 100_000, BadData),
    ],
)  # fmt: skip
def test_wrong_rules_are_refused(tmp_path: Path, text: str, error: type[ViaductError]) -> None:
    with pytest.raises(error, match=r"rules\.json"):
        read_rules(rules_file(tmp_path, text))


@pytest.mark.parametrize("entry", [{"{a": "b"}, {"a}": "b"}, {"a": "{b"}, {"a{n}/{": "b{n}"}, {"{1}": "b"}])
def test_a_brace_that_stands_alone_is_refused(tmp_path: Path, entry: dict[str, str]) -> None:
    with pytest.raises(BadValue, match="a brace stands alone"):
        read_rules(rules_file(tmp_path, json.dumps({"map": entry})))


def test_nested_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="line 2"):
        read_rules(rules_file(tmp_path, "a: b\nc:\n  d: e\n", "map.yaml"))
    with pytest.raises(BadData, match="no such file"):
        read_rules(tmp_path / "none.json")


# By structure.


def network_dump(name: str, seed: int = 0, drift: float = 0.0) -> Side:
    """Module by module what a forward pass of a real network leaves behind, as statistics."""
    torch.manual_seed(0)
    network = build(name, classes=10).eval()
    held: list[Stored] = []

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
) -> Stored:  # fmt: skip
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
def resnet() -> Side:
    return network_dump("resnet50_v1")


@pytest.fixture(scope="module")
def drifted() -> Side:
    return network_dump("resnet50_v1", drift=0.3)


def renamed(dump: Side, forget_types: bool = False, without: float = 0.0, seed: int = 0) -> tuple[Side, dict[str, str]]:
    """Every operator under a name that says nothing; some operators gone."""
    chance = random.Random(seed)
    ops = list(dict.fromkeys(stored.op for stored in dump.tensors))
    gone = {op for op in ops if chance.random() < without}
    numbers_of = {op: f"node_{chance.randrange(10**9)}" for op in ops}
    kept = [
        replace(
            stored, op=numbers_of[stored.op], op_type="" if forget_types else stored.op_type, parameter=stored.parameter
        )
        for stored in dump.tensors
        if stored.op not in gone
    ]
    return replace(dump, tensors=tuple(kept)), numbers_of


def precision(ours: Side, theirs: Side, truth: dict[str, str]) -> tuple[float, float]:
    """Of the pairs made the share that is right; of those that could be made the share that was."""
    alignment = align(ours, theirs)
    nothing_lost(ours, theirs, alignment)
    pairs = [p for p in alignment.pairs if p.left and p.right]
    right = sum(truth[p.left.op] == p.right.op and p.left.role == p.right.role for p in pairs if p.left and p.right)
    possible = sum(truth[stored.op] in {other.op for other in theirs.tensors} for stored in ours.tensors)
    assert all(p.matched == "structure" and 0 < p.confidence < 1 for p in pairs)
    return right / len(pairs), right / possible


@pytest.mark.parametrize("forget_types", [False, True])
@pytest.mark.parametrize("without", [0.0, 0.1])
@pytest.mark.parametrize("drift", [False, True])
def test_a_renamed_resnet_is_recognised(
    resnet: Side, drifted: Side, forget_types: bool, without: float, drift: bool
) -> None:
    theirs, truth = renamed(resnet, forget_types, without)
    exact, found = precision(drifted if drift else resnet, theirs, truth)
    assert exact >= 0.95, f"{exact:.3f} of the pairs are right"
    assert found >= 0.95, f"{found:.3f} of the pairs were found"


def test_half_a_network_of_known_names_helps_the_rest(resnet: Side) -> None:
    theirs, truth = renamed(resnet, forget_types=True)
    back = {new: old for old, new in truth.items() if old.startswith(("layer1", "layer2", "stem"))}
    half = replace(theirs, tensors=tuple(replace(t, op=back.get(t.op, t.op)) for t in theirs.tensors))
    alignment = align(resnet, half)
    right = [p.right.op in (p.left.op, truth[p.left.op]) for p in alignment.pairs if p.left and p.right]
    assert sum(right) >= 0.95 * len(resnet.tensors)


def test_other_networks_do_not_become_the_same(resnet: Side) -> None:
    """A wrong pair is worse than none: what agrees in nothing but a shape by chance must not meet."""
    other = side([tensor(f"x{n}", order=n, shape=(7, 11, n + 1), op_type="Weird") for n in range(20)])
    assert not any(p.left and p.right for p in align(resnet, other).pairs)


@pytest.mark.parametrize("seed", range(5))
def test_files_without_order_meet_by_content(tmp_path: Path, seed: int) -> None:
    values = {f"w{n}": numbers(40, 3, seed=100 * seed + n) for n in range(12)}
    shuffled = random.Random(seed).sample(sorted(values), len(values))
    np.savez(tmp_path / "left.npz", **values)
    np.savez(tmp_path / "right.npz", **{f"x{place}": values[name] for place, name in enumerate(shuffled)})
    alignment = align(read(tmp_path / "left.npz"), read(tmp_path / "right.npz"))
    assert {(p.left.op, p.right.op) for p in alignment.pairs if p.left and p.right} == {
        (name, f"x{place}") for place, name in enumerate(shuffled)
    }


def test_two_single_files_meet_whatever_they_are_called(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", numbers(3, 4))
    np.save(tmp_path / "yours.npy", numbers(3, 4, seed=1))
    assert names(align(read(tmp_path / "mine.npy"), read(tmp_path / "yours.npy"))) == [("mine", "yours")]


# Speed.


def test_five_thousand_tensors_take_a_moment() -> None:
    def many(prefix: str, kind: str = "viaduct") -> Side:
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
    by_name, by_structure = min(timed(left, same) for _ in range(2)), timed(left, other)
    assert by_name < 1.0, f"{by_name:.2f} s by name"
    assert by_structure < 4.0, f"{by_structure:.2f} s by structure"


def timed(left: Side, right: Side) -> float:
    begin = time.process_time()
    align(left, right)
    return time.process_time() - begin


def test_the_rules_in_the_documentation_are_rules(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare-inputs.md").read_text()
    rules = read_rules(rules_file(tmp_path, page.split("```json")[1].split("```")[0]))
    assert rules.find_partner("resnet/block3/conv1", 0) == ("layer3.conv1", 0)
    assert rules.find_partner("scope/a/b.c", 0) == ("a/b.c", 0)
    assert rules.find_partner("TransData_1", 0) == ("*", 0)
    assert rules.ignores("bn.num_batches_tracked", left=True)
    assert not rules.ignores("bn.num_batches_tracked", left=False)
    assert rules.step_offset == 1
