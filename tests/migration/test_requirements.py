"""Requirements of the targets, and the rules that serve them."""

from __future__ import annotations

from viaduct.migration.requirements import REQUIREMENTS_BY_NAME
from viaduct.migration.rule import all_rules


def test_every_rule_names_a_requirement_that_exists() -> None:
    assert [rule.name for rule in all_rules() if rule.target_needs not in REQUIREMENTS_BY_NAME] == []


def test_a_rule_whose_findings_need_work_serves_a_requirement() -> None:
    needed = [rule for rule in all_rules() if rule.category in ("mandatory", "report")]
    assert [rule.name for rule in needed if rule.target_needs == "other"] == []
