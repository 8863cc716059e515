"""Alignment of fused operators with their originals, through the compiled graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from comparison.foreign_dumps import (
    GeOp,
    as_text,
    fused_network,
    npu,
    numbers,
    to_nc1hwc0,
)
from comparison.sample_dumps import nothing_lost, values_agree, world
from viaduct.comparison.align import align
from viaduct.comparison.drift import choose_missing_result
from viaduct.comparison.readers import read


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
    assert all(p.matched_by == "graph" for p in alignment.pairs if p.left and p.right)


def test_groups_and_names_are_shown_as_in_the_vendors_document(tmp_path: Path) -> None:
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


def test_missing_files_on_either_side_are_reported(tmp_path: Path) -> None:
    ops, truth = fused_network()
    del truth["pool/Mean:0"]
    ops[-1].dump = {}
    left, right, graph = world(tmp_path, ops, truth)
    alignment = align(left, right, graph=graph)
    nothing_lost(left, right, alignment)
    reasons = {p.left.tensor_index: p.reason for p in alignment.pairs if p.left and not p.right}
    assert reasons["pool/PartialMean:output:0"] == "no output pool/Mean:0 was found on the right side"
    assert (
        next(p for p in alignment.pairs if p.right and p.right.op == "Softmax").reason
        == "Softmax was not dumped on the left"
    )


def test_a_named_output_that_is_missing_is_refused(tmp_path: Path) -> None:
    value = numbers(2, 4)
    ops = [
        GeOp("f", "Conv2D", [], ["conv", "relu"], [{"origin": "relu"}], dump={"input:0": value}),
        GeOp("g", "Conv2D", [], ["conv2", "relu2"], [{"origin": "relu2"}]),
    ]
    left, right, graph = world(tmp_path, ops, {f"{op}:0": value for op in ("conv", "relu", "conv2", "relu2")})
    alone = {p.right.op: p for p in align(left, right, graph=graph).pairs if p.right and not p.left}
    results = {op: choose_missing_result(pair) for op, pair in alone.items()}
    assert results == {"conv": "new", "relu": "refused", "conv2": "new", "relu2": "refused"}
    assert alone["relu"].reason == "no dumped tensor of f was paired with it"
    assert alone["relu2"].reason == "g was not dumped on the left"


def test_only_the_last_dump_of_an_operator_is_compared(tmp_path: Path) -> None:
    value = numbers(2, 4)
    ops = [GeOp("a", "Relu", [], ["a"], [{"origin": "a"}], dump={"output:0": value})]
    left, right, graph = world(tmp_path, ops, {"a:0": value})
    again = replace(left.tensors[0], call=1, order=9)
    first, last = align(replace(left, tensors=(*left.tensors, again)), right, graph=graph).pairs
    assert (choose_missing_result(first), last.right) == ("refused", right.tensors[0])
    assert "only its last dump is compared" in first.reason


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
    first, second = numbers(2, 4), numbers(2, 4, seed=1)
    ops = [
        GeOp("fused", "Fused", [], ["a", "b"], [{"origin": "b", "index": 1}, {"origin": "a", "index": 0}],
             dump={"output:0": second, "output:1": first}),
    ]  # fmt: skip
    left, right, graph = world(tmp_path, ops, {"a:0": first, "b:1": second, "b:0": numbers(2, 4, seed=9)})
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


def test_the_shape_in_the_file_overrides_the_layout_in_the_graph(tmp_path: Path) -> None:
    nchw = numbers(2, 6, 5, 4)
    output = {"layout": "NC1HWC0", "origin": "a", "format": "NHWC", "origin_shape": (2, 5, 4, 6)}
    ops = [GeOp("a", "Conv2D", [], ["a"], [output], dump={"output:0": to_nc1hwc0(nchw)})]
    for truth in (nchw, nchw.transpose(0, 2, 3, 1).copy()):
        left, right, graph = world(tmp_path, ops, {"a:0": truth})
        [pair] = align(left, right, graph=graph).pairs
        assert values_agree(pair)


def test_axes_are_transposed_even_if_shapes_are_equal(tmp_path: Path) -> None:
    nchw = numbers(2, 4, 4, 4)
    output = {"layout": "NCHW", "origin": "a", "format": "NHWC", "origin_shape": (2, 4, 4, 4)}
    ops = [GeOp("a", "Conv2D", [], ["a"], [output], dump={"output:0": nchw})]
    left, right, graph = world(tmp_path, ops, {"a:0": nchw.transpose(0, 2, 3, 1).copy()})
    assert values_agree(align(left, right, graph=graph).pairs[0])


def test_a_cycle_of_casts_ends(tmp_path: Path) -> None:
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
