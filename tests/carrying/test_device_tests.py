"""Conditions that test the device are found by queries and by the names that are compared."""

from __future__ import annotations

import ast

import pytest

from viaduct.carrying.device_tests import find_device_tests


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if steps > 3:\n    pass\n", []),
        ("if torch.cuda.is_available():\n    pass\n", [1]),
        ("x = 1 if device.type == 'cuda:0' else 2\n", [1]),
        ("if args.device == '/gpu:0':\n    pass\n", [1]),
        ("while args.device != '/CPU:0':\n    pass\n", [1]),
    ],
)
def test_a_condition_that_names_a_device_is_found(source: str, expected: list[int]) -> None:
    assert list(find_device_tests(ast.parse(source))) == expected
