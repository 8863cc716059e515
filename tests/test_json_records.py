"""Records as JSON: what is wrong is named, what is default is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import pytest
from annotated_types import Ge

from viaduct.json_records import Damaged, decode_record, encode_record


@dataclass(frozen=True)
class Leaf:
    name: str
    kind: Literal["a", "b"] = "a"
    size: float | None = None


@dataclass(frozen=True)
class Tree:
    title: str
    leaves: Sequence[Leaf] = ()
    pair: tuple[int, ...] = ()
    best: Leaf | None = None
    counts: dict[str, int] = field(default_factory=dict)
    is_green: bool = False


class Point:
    """A class that converts itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def decode_json(cls, value: object) -> Point:
        if not isinstance(value, str):
            raise Damaged("a point is no text")
        return cls(value)


@dataclass(frozen=True)
class Measurement:
    at: Point
    seconds: Annotated[float, Ge(0)]
    values: Mapping[str, int | str] = field(default_factory=dict)


FULL = Tree("oak", [Leaf("x"), Leaf("y", "b", 0.5)], (1, 2), Leaf("z"), {"rings": 7}, True)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "it is "),
        ({}, "title is missing"),
        ({"title": 3}, "title is 3; it must be a text"),
        ({"title": "oak", "leaves": [{"name": "x"}, {"kind": "a"}]}, r"leaves\[1\].name is missing"),
        ({"title": "oak", "leaves": {"name": "x"}}, "leaves is "),
        ({"title": "oak", "leaves": [{"name": "x", "kind": "c"}]}, r"leaves\[0\].kind is 'c'"),
        ({"title": "oak", "best": {"name": "x", "size": "large"}}, "best.size is 'large'"),
        ({"title": "oak", "counts": {"rings": 0.5}}, "counts.rings is 0.5"),
        ({"title": "oak", "pair": [1, "2"]}, r"pair\[1\] is '2'"),
        ({"title": "oak", "is_green": 1}, "is_green is 1; it must be true or false"),
    ],
)
def test_the_first_wrong_field_is_named_with_its_path(record: object, message: str) -> None:
    with pytest.raises(Damaged, match=message):
        decode_record(Tree, record)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": -1}, r"seconds is -1; it must be 0 or more"),
        ({"at": 3}, "a point is no text"),
        ({"values": {"x": 0.5}}, r"values\.x is 0\.5"),
    ],
)
def test_bounds_mappings_and_classes_that_convert_themselves_are_checked(
    change: dict[str, object], message: str
) -> None:
    record = {"at": "here", "seconds": 0, "values": {"x": 1, "y": "two"}}
    read = decode_record(Measurement, record)
    assert (read.at.text, read.seconds, read.values) == ("here", 0, {"x": 1, "y": "two"})
    with pytest.raises(Damaged, match=message):
        decode_record(Measurement, record | change)


def test_every_field_is_read_back() -> None:
    assert decode_record(Tree, encode_record(FULL)) == FULL
    assert isinstance(decode_record(Tree, encode_record(FULL)).pair, tuple)


def test_defaults_are_left_out_but_a_value_of_another_type_is_not() -> None:
    assert encode_record(Tree("oak", [], is_green=False)) == {"title": "oak"}
    assert encode_record(Tree("oak", is_green=0)) == {"title": "oak", "is_green": 0}  # type: ignore[arg-type]


def test_a_field_of_a_newer_version_is_skipped() -> None:
    assert decode_record(Tree, {"title": "oak", "weather": "fine"}) == Tree("oak")


def test_scalars_of_numpy_become_numbers() -> None:
    encoded = encode_record(Leaf("x", size=np.float32(0.5)))  # type: ignore[arg-type]
    assert type(encoded["size"]) is float
