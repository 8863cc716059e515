from __future__ import annotations

import ast

import pytest

from viaduct.migration import predicates
from viaduct.migration.source import Source


def parse_expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize("text", ["0", "''", "False", "name"])
def test_only_the_literal_none_is_none(text: str) -> None:
    assert not predicates.is_none(parse_expression(text))
    assert not predicates.is_none(None)
    assert predicates.is_none(parse_expression("None"))
    assert predicates.is_none_or_absent(None)


def test_true_is_not_the_constant_1() -> None:
    assert not predicates.is_constant(parse_expression("1"), True)
    assert predicates.is_constant(parse_expression("True"), True)


def test_a_text_is_compared_with_each_given_one() -> None:
    assert predicates.is_literal_in(parse_expression("'nccl'"), "gloo", "nccl")
    assert not predicates.is_literal_in(parse_expression("f'nccl'"), "nccl")
    assert not predicates.is_literal_in(None, "nccl")


def test_an_f_string_is_no_string_literal() -> None:
    assert predicates.is_string(parse_expression("'a'"))
    assert not predicates.is_string(parse_expression("f'a{b}'"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: int = Scaler()", False),
        ("x = Scaler", False),
        ("x: Optional[Scaler] = None", True),
        ("def f() -> Scaler: ...", True),
    ],
)
def test_a_value_beside_an_annotation_is_not_in_it(text: str, expected: bool) -> None:
    source = Source(text)
    name = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == "Scaler")
    assert predicates.is_in_annotation(source, name) is expected
