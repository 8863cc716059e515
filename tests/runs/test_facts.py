"""Facts of a run as filters, tables and exports see them."""

from __future__ import annotations

import pytest

from viaduct.runs.facts import RunFacts, read_field, to_percent


def describe(**facts: object) -> RunFacts:
    return RunFacts("runs/a", "a", "made_up", {"optimizer.lr": 0.1, "loss": "CrossEntropy"}, **facts)  # type: ignore[arg-type]


def test_a_field_that_no_run_of_this_recipe_has_is_none() -> None:
    assert read_field(describe(), "no.such.field") is None


def test_a_fact_comes_before_a_field_of_the_recipe_of_the_same_name() -> None:
    run = describe(loss=0.5)
    assert (read_field(run, "loss"), read_field(run, "optimizer.lr")) == (0.5, 0.1)


def test_a_percentage_has_no_noise_in_its_last_digits() -> None:
    assert to_percent(0.14) == 14  # 100 * 0.14 is 14.000000000000002
    assert to_percent(None) is None
    assert read_field(describe(best_top1=0.14, top1=0.07), "top1") == 14


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({}, None),
        ({"version": "0.1.0"}, "0.1.0"),
        ({"version": "0.1.0", "commit": "abc", "modified_files": 0}, "abc"),
        ({"commit": "abc", "modified_files": 2}, "abc+"),
    ],
)
def test_code_with_local_changes_is_marked(facts: dict[str, object], code: str | None) -> None:
    assert describe(**facts).code == code


def test_a_device_is_short_and_counts_its_ranks() -> None:
    assert describe(device="NVIDIA H200, 139 GiB", ranks=2).short_device == "NVIDIA H200 x2"
    assert describe(device="Some CPU, 8 cores", ranks=1).short_device == "Some CPU"
    assert describe().short_device is None
