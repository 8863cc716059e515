"""Conditions that test the device are found by queries and by the names that are compared."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from viaduct.carrying.device_tests import DeviceTest, find_device_tests, list_device_tests


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


def test_the_text_of_a_line_after_a_form_feed_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\x0c\nif torch.cuda.is_available():\n    pass\n")
    tests = list_device_tests(tmp_path / "train.py", tmp_path)
    assert tests == [DeviceTest("train.py", 3, "if torch.cuda.is_available():")]


def test_the_lines_of_a_notebook_are_those_of_its_code_cells(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    sources = ["import torch", "x = 1\nif torch.cuda.is_available():\n    x = 2"]
    notebook = {"cells": [{**cell, "source": text} for text in sources], "metadata": {}, "nbformat": 4}
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))  # a single line
    (test,) = list_device_tests(tmp_path / "train.ipynb", tmp_path)
    assert test.text == "if torch.cuda.is_available():"
    assert test.place == "train.ipynb cell 2, line 2"
