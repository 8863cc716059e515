"""Requirements of the targets, and the rules that fulfil them."""

from __future__ import annotations

from viaduct.migration.requirements import REQUIREMENT_BY_RULE, REQUIREMENTS
from viaduct.migration.rule import all_rules


def test_every_rule_that_is_needed_belongs_to_one_requirement() -> None:
    known = REQUIREMENT_BY_RULE
    assert [
        rule.name for rule in all_rules() if rule.category in ("mandatory", "report") and rule.name not in known
    ] == []
    listed = [rule for requirement in REQUIREMENTS for rule in requirement.rules]
    assert len(listed) == len(set(listed))
    names = {rule.name for rule in all_rules()}
    assert [rule for rule in listed if rule not in names and not rule.startswith("engine.")] == []
