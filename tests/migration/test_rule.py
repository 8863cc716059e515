from __future__ import annotations

import ast
from pathlib import Path

import pytest

import viaduct.migration.rules as home
from viaduct.migration.rule import Rule, all_rules, sort_rules

FOLDER = Path(home.__path__[0])


def rule_named(name: str, after: tuple[str, ...] = (), **fields: bool) -> Rule:
    return Rule(f"viaduct.migration.rules.torch.{name}", after=after, **fields)  # type: ignore[arg-type]


def names_of(rules: list[Rule]) -> list[str]:
    return [rule.name.partition(".")[2] for rule in sort_rules(rules)]


def test_rules_without_constraints_run_by_name() -> None:
    assert names_of([rule_named("b"), rule_named("a")]) == ["a", "b"]


def test_a_rule_runs_behind_those_whose_edits_it_needs() -> None:
    rules = [rule_named("a", after=("c",)), rule_named("b"), rule_named("c", after=("d",)), rule_named("d")]
    assert names_of(rules) == ["b", "d", "c", "a"]


def test_a_rule_that_reports_on_the_result_runs_behind_all_others() -> None:
    assert names_of([rule_named("a", runs_last=True), rule_named("b"), rule_named("c", after=("b",))]) == [
        "b",
        "c",
        "a",
    ]


def test_a_rule_that_keeps_others_from_lines_runs_before_them() -> None:
    assert names_of([rule_named("a"), rule_named("b", runs_first=True)]) == ["b", "a"]


@pytest.mark.parametrize("after", ["b", "missing"])
def test_rules_that_wait_in_vain_are_named(after: str) -> None:
    with pytest.raises(ValueError, match=r"torch\.a"):
        names_of([rule_named("a", after=(after,)), rule_named("b", after=("a",))])


def test_every_rule_that_is_waited_for_exists() -> None:
    names = {rule.name for rule in all_rules()}
    assert {f"{rule.family}.{name}" for rule in all_rules() for name in rule.after} <= names


def test_no_rule_imports_another_rule() -> None:
    found = []
    for path in FOLDER.glob("*/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            inner = module.removeprefix("viaduct.migration.rules.").split(".") if ".migration.rules." in module else []
            if len(inner) == 2 and not inner[1].startswith("_"):
                found.append(f"{path.relative_to(FOLDER)} imports {module}")
            if len(inner) == 1 and not inner[0].startswith("_"):  # rules/_entry.py holds no rule
                found += [f"{path.name}: {alias.name}" for alias in node.names if not alias.name.startswith("_")]  # type: ignore[attr-defined]
    assert found == []
