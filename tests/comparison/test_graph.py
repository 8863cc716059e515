"""GE graphs in text and JSON form, and files that are no graphs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from comparison.foreign_dumps import GeOp, as_json, as_text, fused_network
from viaduct.comparison.graph import Output, read_graph
from viaduct.errors import BadData


def write_graph(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# What must not be read.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("  \n ", "empty"),
        ('name: "x"\n', "no operators"),
        ("graph {\n op {\n name: \"a\"\n", "line 4: the file ends within a message"),
        ("graph {\n op {\n name: \"a\n} }", "line 3"),
        ("graph {\n op {\n unknown {\n", "cut short"),
        ("graph { op @ }", "line 1"),
        ("\x00\x01\x02\x93NUMPY", "line 1"),
        ("graph {" * 100, "are nested more than"),
        ("graph { op: ] }", "value was expected"),
        ('graph { op { name: "a" } } } graph { op { name: "b" } }', "a bracket is closed that was not opened"),
        ("graph " + "[" * 100_000, "are nested more than"),
        (" " * 5000 + "@", "line 1"),
        ("# # # # # # # # # # # # # # # # # # # # # # # # # # # # # #\n@", "line"),
        ("{", "not complete JSON"),
        ("[1, 2]", "not a graph"),
        ('{"graph": 3}', "no operators"),
        ('{"graph": [{"op": [7, null, "x"]}]}', "no operators"),
        ("[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_files_that_are_not_graphs_are_refused(tmp_path: Path, text: str, words: str) -> None:
    begin = time.process_time()
    with pytest.raises(BadData, match=words):
        read_graph(write_graph(tmp_path / "graph.txt", text))
    assert time.process_time() - begin < 5


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"none\.txt"):
        read_graph(tmp_path / "none.txt")


def test_a_skipped_message_may_have_any_depth(tmp_path: Path) -> None:
    deep = "unknown " + "{ a " * 20_000 + "{" + "}" * 20_001
    graph = read_graph(write_graph(tmp_path / "g.txt", 'graph { op { name: "a" type: "Relu" ' + deep + " } }"))
    assert list(graph.nodes) == ["a"]


# What must be.


def test_text_and_json_say_the_same(tmp_path: Path) -> None:
    ops, _ = fused_network()
    text = read_graph(write_graph(tmp_path / "g.txt", as_text(ops)))
    structured = read_graph(write_graph(tmp_path / "g.json", json.dumps(as_json(ops))))
    assert text.nodes == structured.nodes
    assert text.name == structured.name == "ge_default"
    assert list(text.nodes) == [op.name for op in ops]


def test_all_fields_that_the_comparison_needs_are_read(tmp_path: Path) -> None:
    ops, _ = fused_network()
    nodes = read_graph(write_graph(tmp_path / "g.txt", as_text(ops))).nodes
    conv = nodes["conv1/Conv2Dconv1/bnconv1/relu"]
    assert conv.originals == ("conv1/Conv2D", "conv1/bn", "conv1/relu")
    assert conv.outputs == (Output("NC1HWC0", (), "conv1/relu", 0, "NHWC", (2, 8, 8, 6)),)
    assert conv.inputs == (("trans_TransData_1", 0), ("weight", 0))
    assert nodes["trans_TransData_1"].inputs == (("IteratorV2", 0),), "a control edge feeds nothing"
    assert nodes["trans_TransData_1"].is_inserted
    assert nodes["Softmax"].originals is None
    assert not nodes["Softmax"].is_inserted
    assert nodes["split_part1"].is_split_part


def test_operators_come_in_order_of_execution(tmp_path: Path) -> None:
    text = 'graph { op { name: "b" type: "X" id: 7 } op { name: "a" type: "X" id: 3 } }'
    assert list(read_graph(write_graph(tmp_path / "g.txt", text)).nodes) == ["a", "b"]


def test_other_spellings_of_a_message_are_read(tmp_path: Path) -> None:
    text = r"""
    graph: <  # angle brackets, colons, lists, quotes of both kinds, strings in pieces
      op: < name: 'a' "/b\n\103\"" , type: "Relu"; input: ["x:0", "y:1", ":-1", "z:-1"], [some.extension]: { a: 1 } >
    >
    """
    nodes = read_graph(write_graph(tmp_path / "g.txt", text)).nodes
    assert nodes['a/b\nC"'].inputs == (("x", 0), ("y", 1))


def test_a_digit_that_is_not_octal_stands_for_itself_after_a_backslash(tmp_path: Path) -> None:
    assert list(read_graph(write_graph(tmp_path / "g.txt", r'graph { op { name: "a\8" } }')).nodes) == ["a8"]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbfgraph { op { name: "a" } }'
    assert list(read_graph(write_graph(tmp_path / "g.txt", text)).nodes) == ["a"]


def test_an_input_with_a_number_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    text = 'graph { op { name: "a" input: "x:0" input: "y:' + "9" * 5000 + '" } }'
    assert read_graph(write_graph(tmp_path / "g.txt", text)).nodes["a"].inputs == (("x", 0),)


def test_a_name_of_two_operators_is_noted(tmp_path: Path) -> None:
    graph = read_graph(write_graph(tmp_path / "g.txt", 'graph { op { name: "a" } op { name: "a" } }'))
    assert "1 operators with the name of an earlier one" in graph.notes[0]


def test_a_large_graph_is_read_within_seconds(tmp_path: Path) -> None:
    ops = [
        GeOp(f"layer{n}", "Conv2D", [f"layer{n - 1}:0"], [f"o{n}"], [{"origin": f"o{n}", "origin_shape": (1, 2, 3, 4)}])
        for n in range(1000)
    ]
    path = write_graph(tmp_path / "g.txt", as_text(ops))
    begin = time.process_time()
    assert len(read_graph(path).nodes) == 1000
    assert time.process_time() - begin < 10
