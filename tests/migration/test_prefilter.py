"""Files that are parsed only: the quick test never excludes a text with work for a rule."""

from __future__ import annotations

import ast
import sys

import pytest

from migration.checking import first_example
from viaduct.migration.engine import migrate_bytes
from viaduct.migration.options import Options
from viaduct.migration.prefilter import may_match_rule
from viaduct.migration.project import Project
from viaduct.migration.rule import Rule, all_rules
from viaduct.migration.source import Source, list_children


def test_plain_python_is_not_looked_into() -> None:
    assert not may_match_rule("def add(a, b):\n    return a + b\n", Options())
    assert not may_match_rule("import json\n\n\ndef read(path):\n    return json.load(open(path))\n", Options())


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_every_example_passes(rule: Rule) -> None:
    before, _ = first_example(rule.doc)
    to = rule.targets[0]
    assert not before.strip() or may_match_rule(before, Options(to=to, only=(rule.name,)))


def test_a_helper_without_any_import_passes_by_its_method() -> None:
    text = "def finish(ds):\n    return ds.map(f, num_parallel_calls=2).batch(3).prefetch(1)\n"
    assert b"drop_remainder=True" in migrate_bytes("a.py", text.encode(), Options(), Project()).after


def test_what_is_not_python_is_named_though_no_rule_is_concerned() -> None:
    assert migrate_bytes("a.py", b"print 'two'\n", Options(), Project()).unread_reason


def test_children_are_those_that_ast_has_less_operators_and_contexts() -> None:
    marks = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.type_ignore)
    text = (
        "@d\nclass A(B, metaclass=C):\n    x: int = 1\n    async def f(self, /, a, *b, c=1, **k) -> int:\n"
        "        global g\n        async with a as b, c: await f'{a!r:>{b}}'\n"
        "        return [i async for i in a if not i]\n"
        "try:\n    import os.path as p, sys\n    from . import q as r\nexcept (A, B) as e:\n    raise C from e\n"
        "else: del a[1:2, ...]\nfinally: assert x, 'm'\n"
        "match a:\n    case {'k': [1, *rest], **more} | A(b, c=None) as d if d: pass\n"
        "    case _: x = y = (z := -1) ** 2\n"
        "lambda a, b=1: (yield)\nwhile a < b <= c and not d or e: x += 1\n"
    )
    source = Source(text)
    for node in ast.walk(source.tree):
        if not isinstance(node, marks):
            expected = [child for child in ast.iter_child_nodes(node) if not isinstance(child, marks)]
            assert list_children(node) == expected == source.children[node]
    assert len(source.nodes) == len(set(source.nodes)) == len(source.parents) + 1


def test_a_long_chain_of_one_name_is_looked_at_once() -> None:
    """Without a cache the work for thirty lines of `ds = ds.map(f)` would grow exponentially."""
    lines = "".join(f"    ds = ds.map(f{number})\n" for number in range(30))
    head = "import tensorflow as tf\ndef read(files):\n    ds = tf.data.TFRecordDataset(files)\n"
    text = f"{head}{lines}    return ds.batch(3)\n"
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        made = migrate_bytes("a.py", text.encode(), Options(only=("dataset_drop_remainder",)), Project())
    finally:
        sys.setprofile(None)
    assert b"batch(3, drop_remainder=True)" in made.after
    assert calls < 200_000
