"""The page of rules: made from docstrings, complete, up to date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from viaduct.errors import UnknownName
from viaduct.migration.catalogue import (
    ELSEWHERE,
    SECTIONS,
    find_rules,
    link_to_rule,
    list_rows,
    render_markdown,
    render_page,
)
from viaduct.migration.rule import all_rules

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_of_rules_is_made_from_their_docstrings() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run `make results`"


def test_every_row_of_the_specification_has_a_rule_or_a_reason() -> None:
    implemented = {row for rule in all_rules() for row in rule.spec_rows}
    assert [row for row in list_rows() if row not in implemented and row not in ELSEWHERE] == []
    assert len(list_rows()) == 115


def test_every_link_within_the_page_leads_somewhere() -> None:
    page = render_page()
    headings = {re.sub(r"[^\w-]", "", line[4:]) for line in page.splitlines() if line.startswith("### ")}
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings


def test_examples_become_diffs() -> None:
    text = render_markdown("Do it.\n\n     import x\n    -x.old()\n    +x.new()\n\nBecause.\n")
    assert text == "Do it.\n\n```diff\n import x\n-x.old()\n+x.new()\n```\n\nBecause."


def test_a_docstring_that_ends_with_its_example_is_closed() -> None:
    assert render_markdown("Do it.\n\n     a\n").rstrip().splitlines()[-2:] == [" a", "```"]


@pytest.mark.parametrize("word", ["tf1.estimator_run_config", "estimator_run_config", "E1"])
def test_a_rule_is_found_by_its_name_or_its_row(word: str) -> None:
    assert "tf1.estimator_run_config" in [rule.name for rule in find_rules(word)]


def test_an_unknown_rule_is_answered_with_the_closest() -> None:
    with pytest.raises(UnknownName, match="estimator_run_config"):
        find_rules("estimator_runconfig")


def test_every_rule_is_on_the_page() -> None:
    page = render_page()
    assert all(f"### {rule.name}\n" in page for rule in all_rules())


def test_rules_name_only_rows_that_exist() -> None:
    assert {row for rule in all_rules() for row in rule.spec_rows} <= {*list_rows(), *SECTIONS}


def test_every_link_leads_to_a_section_that_exists() -> None:
    headings = {line[4:].replace(".", "") for line in render_page().splitlines() if line.startswith("### ")}
    assert {link_to_rule(rule.name).partition("#")[2] for rule in all_rules()} == headings
    assert link_to_rule("engine.unparsable") == "docs/migrate.md"
