"""Strings that name a CUDA device."""

from __future__ import annotations

import ast

import pytest

from viaduct.migration.device_texts import device_literal, device_number_text, is_device_name, rename_cuda
from viaduct.migration.source import Source


def expression(code: str) -> tuple[Source, ast.expr]:
    source = Source(code)
    statement = source.tree.body[0]
    assert isinstance(statement, ast.Expr)
    return source, statement.value


@pytest.mark.parametrize(
    "code", ["'cpu'", "'cudnn'", "'cuda:x'", "f'{kind}:0'", "'a cuda:0'", "cuda", "'cuda'.upper()"]
)
def test_what_names_no_cuda_device_has_no_literal(code: str) -> None:
    assert device_literal(expression(code)[1]) is None


@pytest.mark.parametrize(
    ("code", "number", "renamed"),
    [
        ("'cuda'", "", "'npu'"),
        ("'cuda:1'", "1", "'npu:1'"),
        ("f'cuda:{rank}'", "rank", "f'npu:{rank}'"),
        ("'cuda:%d' % i", "i", "'npu:%d' % i"),
        ("'cuda:{}'.format(i)", "i", "'npu:{}'.format(i)"),
        ("'cuda:' + str(i)", "i", "'npu:' + str(i)"),
        ("R'cuda'", "", "R'npu'"),
        ("f'cuda:{i}{j}'", None, "f'npu:{i}{j}'"),
    ],
)
def test_a_device_has_a_number_and_can_be_renamed(code: str, number: str | None, renamed: str) -> None:
    source, node = expression(code)
    assert device_literal(node) is not None
    assert device_number_text(source, node) == number
    assert rename_cuda(source, node, "npu") == renamed


def test_a_literal_in_pieces_is_not_renamed() -> None:
    source, node = expression("'cu' 'da'")
    assert rename_cuda(source, node, "npu") is None


@pytest.mark.parametrize(
    ("name", "is_device"), [("--train-device", True), ("deviceType", True), ("map_location", True), ("develop", False)]
)
def test_a_name_with_the_word_device_is_a_devices(name: str, is_device: bool) -> None:
    assert is_device_name(name) is is_device
