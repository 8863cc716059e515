"""Terminal output of the comparison of two profiles."""

from __future__ import annotations

import pytest

from viaduct.profiling.compare import compare_profiles
from viaduct.profiling.compare_text import (
    MAX_OPERATORS,
    format_change,
    format_difference,
    format_operators,
    format_us,
    name_sides,
)
from viaduct.profiling.measures import measure_throughput
from viaduct.profiling.record import Operator

from .compared_profiles import NOISY, STEADY, make_run, make_steps


def test_a_profile_without_steps_is_named() -> None:
    difference = compare_profiles(make_run("runs/a"), make_run("runs/b", steps=make_steps(STEADY)))
    assert "cannot be compared: a has no uninterrupted step" in format_difference(difference)
    assert difference.exit_code == 2


def test_noise_is_reported_to_be_that_within_each_run() -> None:
    steady, noisy = make_run(steps=make_steps(STEADY)), make_run("b", steps=make_steps(NOISY))
    text = format_difference(compare_profiles(steady, noisy))
    assert "The noise is the spread of the steps within each run, at least 5% of the iteration" in text


def test_images_per_second_are_those_of_the_summary() -> None:
    sides = (32, [*[100.0] * 7, 9000.0]), (64, [*[100.0] * 7, 5000.0])
    stalls = [make_run("a", steps=make_steps(tails), facts={"batch": batch}) for batch, tails in sides]
    text = format_difference(compare_profiles(*stalls))
    rates = [measure_throughput(profile) for profile in stalls]
    assert f"{rates[0]:,.1f} and {rates[1]:,.1f} samples/s" in text


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (("train.py", "train.py"), ("before", "after")),
        (("runs/a/prof", "runs/b/prof"), ("a", "b")),
        (("prof", "other/prof"), ("before", "after")),
        (("a", "b"), ("a", "b")),
    ],
)
def test_profiles_are_named_by_what_differs_in_their_paths(sources: tuple[str, str], names: tuple[str, str]) -> None:
    assert name_sides(compare_profiles(make_run(sources[0]), make_run(sources[1]))) == names


def test_operators_in_between_are_counted_and_both_ends_are_shown() -> None:
    def make_operators(factor: float) -> list[Operator]:
        return [Operator(f"operator{number}", 1, 9, 100 + factor * number) for number in range(-20, 20)]

    operators = compare_profiles(make_run(operators=make_operators(0)), make_run(operators=make_operators(1))).operators
    lines = format_operators(operators, ("a", "b"))
    assert lines[1].startswith("operator19 ")
    assert lines[MAX_OPERATORS].startswith("operator-20 ")
    assert lines[-1] == "24 operators in between are not shown; the page has more."


def test_what_is_not_known_is_a_dash_and_a_loss_has_a_sign() -> None:
    assert [format_us(time) for time in (None, 12.3, 4567.0, 2.5e6)] == ["–", "12.3 µs", "4.57 ms", "2.50 s"]
    assert [format_change(time) for time in (None, 0.0, 5.0, -5000.0)] == ["–", "0.0 µs", "+5.0 µs", "-5.00 ms"]
