"""Of every rule: its docstring's example is what it does."""

from __future__ import annotations

import importlib

import pytest

from migration.checking import example, migrated
from viaduct.migration.rule import Rule, all_rules


def test_there_are_rules() -> None:
    assert all_rules()


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_the_example_in_the_docstring_is_replayed(rule: Rule) -> None:
    options = getattr(importlib.import_module(rule.module), "EXAMPLE_OPTIONS", {})
    before, after = example(rule.doc)
    if not before.strip():
        assert rule.kind in ("report", "advice"), "a rule that rewrites shows it in its docstring"
        return
    assert migrated(before, rule.name, **options).after.decode() == after


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_a_rule_has_a_summary_and_a_source(rule: Rule) -> None:
    assert rule.doc.splitlines()[0].endswith("."), "the first line is the summary"
    assert rule.spec, "which rows of the specification it fulfils"
