"""Flags of `viaduct train` that are made from the recipe's types."""

from __future__ import annotations

import re

import pytest

from forked_viaduct import viaduct
from viaduct.verbs._recipe_flags import FLAGS, HEADINGS, describe_fields, read_fields


def test_the_stored_types_are_those_of_the_recipe() -> None:
    assert read_fields() == describe_fields(), (
        "recipe_fields.json is not what the recipe's types say: run `make results`"
    )


@pytest.fixture(scope="module")
def shown() -> str:
    return viaduct("train", "--help").stdout


def test_help_has_every_heading_once_and_in_order(shown: str) -> None:
    found = re.findall(r"^(\w[\w, ]+):$", shown, re.MULTILINE)
    assert found == ["Arguments", *HEADINGS, "Options"]


def test_every_flag_is_shown_with_its_field(shown: str) -> None:
    for name, flag in FLAGS.items():
        assert f"--{name.replace('_', '-')}" in shown
        assert f"[{flag.path}]" in re.sub(r"\s+", " ", shown)


def test_a_choice_shows_its_values_a_number_its_kind_and_a_switch_nothing(shown: str) -> None:
    assert "--precision auto|fp32|bf16|fp16|O0|O1|O2|O3" in shown
    assert "--sink N|auto " in shown
    assert "--steps N " in shown
    assert re.search(r"--deterministic {2,}The same", shown)
    assert re.search(r"--balance {2,}Draw", shown)


def test_a_value_outside_a_choice_is_refused_with_the_choices() -> None:
    answer = viaduct("train", "shapes_taster", "--precision", "fp8")
    assert answer.returncode == 2
    assert "precision.compute=fp8" in answer.stderr
    assert "bf16" in answer.stderr
