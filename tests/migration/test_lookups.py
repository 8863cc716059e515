"""Names, arguments and parameters of syntax nodes."""

from __future__ import annotations

import ast
from typing import Any

from viaduct.migration import lookups


def parse_expression(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def test_names_are_those_that_are_written() -> None:
    assert lookups.last_name(parse_expression("torch.cuda.Stream")) == "Stream"
    assert lookups.last_name(parse_expression("make()")) == ""
    assert lookups.plain_name(parse_expression("t.cuda")) == ""
    assert lookups.dotted_name(parse_expression("t.cuda.Stream")) == "t.cuda.Stream"
    assert lookups.dotted_name(parse_expression("make().Stream")) == ""
    assert lookups.method_name(parse_expression("make().to(device)")) == "to"
    assert lookups.method_name(parse_expression("make(device)")) == ""


def test_what_is_no_string_has_no_text() -> None:
    assert lookups.literal_text(parse_expression("'cuda'")) == "cuda"
    assert lookups.literal_text(parse_expression("b'cuda'")) == ""
    assert lookups.literal_text(None) == ""


def test_arguments_behind_a_star_are_not_bound() -> None:
    bound = lookups.bind_arguments(parse_expression("f(1, *rest, 2, c=3, **more)"), ["a", "b"])
    assert {name: ast.unparse(value) for name, value in bound.items()} == {"a": "1", "c": "3"}


def test_defaults_belong_to_the_last_positional_parameters() -> None:
    function = parse_expression("lambda a, b=1, *, c=2, d: a")
    assert lookups.positional_parameters(function) == ["a", "b"]
    defaults = [lookups.parameter_default(function, name) for name in "abcd"]
    assert [default and ast.unparse(default) for default in defaults] == [None, "1", "2", None]


def test_a_relative_import_has_no_qualified_names() -> None:
    absolute, relative = ast.parse("from torch_npu.contrib import transfer_to_npu\nfrom .torch_npu import x").body
    assert isinstance(absolute, ast.ImportFrom)
    assert isinstance(relative, ast.ImportFrom)
    assert lookups.imported_names(absolute) == ["torch_npu.contrib.transfer_to_npu"]
    assert lookups.imported_names(relative) == []


def test_defaults_and_decorators_run_with_their_statement_and_bodies_do_not() -> None:
    (statement,) = ast.parse("@decorate()\ndef f(a=first(), *, k=second()):\n    body(lambda x=third(): inner())").body
    names = {node.func.id for node in lookups.walk_executed(statement) if isinstance(node, ast.Call)}  # type: ignore[attr-defined]
    assert names == {"decorate", "first", "second"}
    (call,) = ast.parse("use(lambda x=third(), *, y=fourth(): inner())").body
    names = {node.func.id for node in lookups.walk_executed(call) if isinstance(node, ast.Call)}  # type: ignore[attr-defined]
    assert names == {"use", "third", "fourth"}
