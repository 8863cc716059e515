"""The index of one dumped step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from viaduct.comparison.index import INDEX_FILE, Entry, Index, Statistics, read_index, write_index
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.errors import BadData

TENSOR = {"op": "fc", "type": "Linear", "role": "output", "index": 0, "order": 0}


def test_strange_names_survive_the_index(tmp_path: Path) -> None:
    names = ['a"b', "line\nbreak", "</script>", "\u2028", "ü" * 300]
    entries = [
        Entry(name, "", "output", 0, order, dtype="float32", shape=(1,), statistics=Statistics(min=float("inf")))
        for order, name in enumerate(names)
    ]
    write_index(tmp_path, Index(7, 0, 1, {"device": "cpu"}, {names[0]: (names[1],)}, entries))
    side = read(tmp_path)
    assert [tensor.op for tensor in side.tensors] == names
    assert side.edges == {names[0]: (names[1],)}
    assert side.tensors[0].statistics == {"min": float("inf")}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "other"}, "not the index of a dump"),
        ({"version": 2}, "has version 2"),
        ({"step": -1}, "step is -1"),
        ({"rank": True}, "rank is True"),
        ({"tensors": None}, "tensors is None; it must be"),
        ({"tensors": [7]}, r"tensors\[0\] is 7; it must be an object"),
        ({"tensors": [{}]}, r"tensors\[0\]\.op is missing"),
        ({"tensors": [{**TENSOR, "shape": [2.5]}]}, r"tensors\[0\]\.shape\[0\] is 2\.5; it must be a whole number"),
        ({"tensors": [{**TENSOR, "shape": [-1]}]}, r"tensors\[0\]\.shape is \[-1\]; it must be 0 or more"),
        ({"tensors": [{**TENSOR, "statistics": {"min": "low"}}]}, "statistics is {'min': 'low'}; it must hold numbers"),
        ({"tensors": [{**TENSOR, "file": 3}]}, r"tensors\[0\]\.file is 3"),
    ],
)
def test_a_damaged_index_is_refused_by_the_field(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    write_index(tmp_path, Index(0, 0, 1, {}, {}, []))
    record = json.loads((tmp_path / INDEX_FILE).read_text())
    (tmp_path / INDEX_FILE).write_text(json.dumps({**record, **change}))
    with pytest.raises(BadData, match=reason):
        read_index(tmp_path / INDEX_FILE)


def test_an_index_comes_back_as_it_was_written(tmp_path: Path) -> None:
    statistics = Statistics(min=float("-inf"), max=2.0)
    entries = [
        Entry("conv", "Conv2d", "output", 1, 3, 2, "", "float32", (2, 3), "conv.npy", 128, 7, statistics),
        Entry("fc", "Linear", "gradient", 0, 4, parameter="weight", fault="it is sparse"),
    ]
    index = Index(7, 1, 2, {"device": "cpu"}, {"fc": ("conv",)}, entries)
    write_index(tmp_path, index)
    assert read_index(tmp_path / INDEX_FILE) == index
