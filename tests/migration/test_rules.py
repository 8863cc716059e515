"""The example in each rule's docstring is replayed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from migration.checking import examples, migrate_source
from viaduct import migration
from viaduct.migration.rule import Rule, all_rules


def test_there_are_rules() -> None:
    assert all_rules()


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_the_example_in_the_docstring_is_replayed(rule: Rule) -> None:
    found = examples(rule.doc)
    if not found:
        assert rule.category in ("report", "advice"), "a rule that rewrites shows it in its docstring"
    for options, before, after in found:
        assert migrate_source(before, rule.name, **({"to": rule.targets[0]} | options)).after.decode() == after


def test_a_rule_for_every_target_shows_both_ways_of_writing() -> None:
    both = [rule for rule in all_rules() if {"npu", "any"} <= set(rule.targets) and rule.former_names]
    shown = {rule.name for rule in both if any(options.get("to") == "any" for options, *_ in examples(rule.doc))}
    assert {"torch.backend", "torch.cuda_api", "torch.cuda_method", "torch.map_location", "torch.profiler"} <= shown


def test_a_former_name_of_a_rule_still_finds_it() -> None:
    source = 'import torch.distributed as dist\ndist.init_process_group("nccl")\n'
    assert b"accelerator.backend()" in migrate_source(source, "any_backend", to="any").after
    assert b"accelerator.backend()" in migrate_source(source, "torch.any_backend", to="any").after


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_a_rule_has_a_summary_and_a_source(rule: Rule) -> None:
    assert rule.doc.splitlines()[0].endswith("."), "the first line is the summary"


def test_only_the_registry_imports_rules() -> None:
    """Other modules may ask the helper modules beside the rules, whose names begin with an underscore."""
    folder = Path(migration.__file__).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    rule_import = re.compile(
        r"from viaduct\.migration\.rules(?:\.\w+)? import|from viaduct\.migration\.rules\.\w+\.[a-z]"
    )
    assert [name for name, text in texts.items() if rule_import.search(text)] == []
