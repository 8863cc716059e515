"""docs/migrate-keras.md: every diff in it is what the command above it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from migration.checking import migrate_source
from viaduct.migration.rule import all_rules

GUIDE = (Path(__file__).parents[2] / "docs" / "migrate-keras.md").read_text()
DIFFS = re.findall(r"^    viaduct migrate train\.py([^\n]*)\n\n```diff\n(.*?)```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_guide_has_its_diffs() -> None:
    assert len(DIFFS) == GUIDE.count("```diff") == 5


@pytest.mark.parametrize(("flags", "diff"), DIFFS, ids=range(len(DIFFS)))
def test_a_diff_is_what_the_command_does(flags: str, diff: str) -> None:
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
    options = {"distributed": "--distributed" in flags, "style": "wrapper" if "wrapper" in flags else "explicit"}
    assert migrate_source(before, path="train.py", **options).after.decode() == after


def test_the_guide_names_every_keras_rule() -> None:
    names = {rule.name.removeprefix("tf1.") for rule in all_rules() if rule.name.startswith("tf1.keras_")}
    assert names == {name for name in names if f"`{name}`" in GUIDE}
