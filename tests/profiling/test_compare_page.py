"""The page of a comparison of two profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.profiling.compare import compare_profiles
from viaduct.profiling.compare_page import choose_tone, list_tiles, write_difference_page
from viaduct.profiling.compare_text import format_headline
from viaduct.profiling.record import Operator

from .compared_profiles import STEADY, make_run, make_steps
from .complete_profile import make_profile


def test_the_page_says_what_the_terminal_says(tmp_path: Path) -> None:
    slow = make_run(
        "runs/<slow>", steps=make_steps([tail + 500 for tail in STEADY]), operators=make_profile().operators
    )
    difference = compare_profiles(make_run("runs/fast", steps=make_steps(STEADY), kernels=make_profile().kernels), slow)
    write_difference_page(difference, tmp_path / "difference.html")
    page = (tmp_path / "difference.html").read_text()
    assert "41.7 % slower" in page
    assert "<slow>" not in page
    assert "aten::convolution" in page


def test_the_page_of_two_empty_profiles_claims_nothing(tmp_path: Path) -> None:
    write_difference_page(
        compare_profiles(make_run(), make_run("b", operators=[Operator("x", 1, 1, 1)])), tmp_path / "d.html"
    )
    page = (tmp_path / "d.html").read_text()
    assert "cannot be compared" in page
    assert "No difference" not in page


def test_the_median_decides_if_both_median_and_mean_differ() -> None:
    before, after = make_run(steps=make_steps([1000.0] * 8)), make_run("b", steps=make_steps([100.0] * 7 + [7400.0]))
    difference = compare_profiles(before, after)
    assert difference.iteration.mean_change_us == pytest.approx(12.5)
    assert difference.iteration.is_slower is False
    assert "faster" in format_headline(difference)
    assert choose_tone(difference) == "good"


def test_a_stall_that_only_the_mean_shows_is_slower_on_its_tile() -> None:
    after = make_run("b", steps=make_steps(([99.9] * 7 + [3000.0]) * 20))
    difference = compare_profiles(make_run(steps=make_steps([100.0] * 160)), after)
    assert [tile.good for tile in list_tiles(difference)[:1]] == [False]


def test_only_a_slower_iteration_is_bad() -> None:
    steady = make_run(steps=make_steps(STEADY))

    def find_tone(**times: float) -> str:
        return choose_tone(compare_profiles(steady, make_run("b", steps=make_steps(STEADY, **times))))

    assert find_tone() == "good"
    assert find_tone(compute=500.0) == "good"
    assert find_tone(compute=3000.0) == "bad"
    assert find_tone(compute=820.0, update=320.0) == "warn", "phases differ, the iteration does not"
    assert choose_tone(compare_profiles(steady, make_run("b"))) == "warn"
