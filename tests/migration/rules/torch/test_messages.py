from __future__ import annotations

import ast

import pytest

from viaduct.migration.rules.torch._messages import is_prose
from viaduct.migration.source import Source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 'cuda'\n", False),
        ("run('cuda')\n", False),
        ("run(device='cuda')\n", False),
        ("assert 'cuda', y\n", False),
        ("'cuda'\n", True),
        ("print('cuda')\n", True),
        ("logger.warning(f'cuda {x}')\n", True),
        ("raise ValueError('cuda')\n", True),
        ("add(help='cuda')\n", True),
        ("assert x, 'cuda'\n", True),
    ],
)
def test_strings_for_people_are_told_from_others(text: str, expected: bool) -> None:
    source = Source(text)
    strings = [node for node in source.nodes_of_type(ast.Constant) if "cuda" in str(node.value)]
    assert is_prose(source, strings[0]) is expected
