"""--help with the flags under headings."""

from __future__ import annotations

import re

import pytest

from forked_viaduct import viaduct
from viaduct.verbs._recipe_flags import HEADINGS


def test_the_flags_of_train_stand_under_its_headings_in_order() -> None:
    text = viaduct("train", "--help").stdout
    found = [heading for heading in re.findall(r"^(\S[^\n]*):$", text, re.MULTILINE) if heading in HEADINGS]
    assert found == list(HEADINGS)


@pytest.mark.parametrize(("heading", "flag"), [("First weights", "--freeze"), ("Several ranks", "--ranks")])
def test_a_flag_stands_under_its_heading(heading: str, flag: str) -> None:
    sections = re.split(r"^(\S[^\n]*):$", viaduct("train", "--help").stdout, flags=re.MULTILINE)
    content = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert re.search(rf"^  {flag} ", content[heading], re.MULTILINE)


@pytest.mark.parametrize("verb", [["train"], ["evaluate"], ["launch", "plan"], ["data", "build"], ["runs", "list"]])
def test_placeholders_are_no_names_of_types(verb: list[str]) -> None:
    text = viaduct(*verb, "--help").stdout
    assert not re.findall(r"<(?:int|float|str|text|path|integer|list)\b[^>]*>", text, re.IGNORECASE)
