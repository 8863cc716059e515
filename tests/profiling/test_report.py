"""The page of a profile: missing measurements are named, hostile names escaped, large and tiny profiles complete."""

import re
from dataclasses import replace
from pathlib import Path

from reporting.test_page import Elements
from viaduct.profiling.record import Advice, Facts, Profile
from viaduct.profiling.report import build_page, write_report
from viaduct.reporting import Callout, render_page

from .page_parts import build_sections, find_parts, read_tiles
from .sample_profiles import HOSTILE, large_profile, minimal_profile, small_profile


def test_one_step_makes_a_page_without_figures(tmp_path):
    write_report(minimal_profile(), tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert read_tiles(minimal_profile()) == dict.fromkeys(("iteration", "images/s", "data tail", "peak memory"), "–")
    assert "Too few steps to judge" in html
    assert "Nothing stands out" not in html
    assert list(build_sections(minimal_profile())) == ["Iterations", "Operators", "Kernels", "What was profiled"]


def test_a_profile_of_nothing_says_why_it_ended():
    page = build_page(Profile(Facts("train.py", "script", ended="exit code 3 before the first step")))
    assert [part.headline for part in page.lead] == [
        "Ended early: exit code 3 before the first step",
        "No step was measured: how long an iteration takes is not known, so nothing was judged",
    ]
    assert page.lead[0].tone == "bad"
    render_page(page)


def test_nothing_stands_out_names_what_was_judged():
    (callout,) = build_page(small_profile()).lead
    assert (callout.tone, callout.headline) == ("good", "Nothing stands out")
    assert callout.remarks[0].text.startswith("9 steps, 9 operators, 7 kernels")


def test_time_that_no_operator_covers_is_no_all_clear():
    profile = small_profile()
    steps = [replace(step, interrupted_by="recording" if step.number > 6 else "") for step in profile.steps]
    operators = [replace(row, self_us=10.0) for row in profile.operators]
    (callout,) = build_page(replace(profile, steps=steps, operators=operators)).lead
    assert (callout.tone, callout.remarks) == ("warn", [])
    assert "lie in no operator" in callout.headline


def test_a_remark_for_accelerators_is_no_warning_and_nothing_else_stands_out():
    remark = Advice(
        "For accelerators: …", "Read it later.", ("1 call.",), None, "none on this CPU", name="synchronisation"
    )
    page = build_page(replace(small_profile(), advice=[remark]))
    assert [(part.tone, part.headline) for part in page.lead] == [
        ("muted", "For accelerators: …"),
        ("muted", "Nothing else stands out"),
    ]
    assert page.lead[0].remarks[-1].text == "none on this CPU"
    assert "Nothing else stands out" in render_page(page)


def test_no_hostile_name_becomes_markup():
    html = render_page(build_page(large_profile(steps=30, operators=60)))
    elements = Elements(html)
    assert not [attributes for tag, attributes in elements.tags if "onerror" in attributes]
    assert HOSTILE not in html
    assert "\u202e" not in html


def test_the_advice_stands_first_and_the_others_follow():
    page = build_page(large_profile(steps=30, operators=60))
    assert page.lead[0].headline == "The loader costs 61 % of each step"
    assert {remark.name for remark in page.lead[0].remarks} == {"What to change", "Evidence", "Where", "Expected gain"}
    assert page.sections[0].title == "Further advice"
    assert [part.headline.split()[1] for part in page.sections[0].parts] == ["synchronisation", "layout"]


def test_a_large_profile_stays_a_small_file(tmp_path):
    path = tmp_path / "report.html"
    write_report(large_profile(), path)
    assert path.stat().st_size < 3_000_000


def test_every_section_of_a_full_profile_is_there():
    assert list(build_sections(large_profile(steps=30, operators=60))) == [
        "Further advice",
        "Iterations",
        "Ranks",
        "Modules",
        "Operators",
        "Kernels",
        "Memory",
        "System",
        "Further tables",
        "What was profiled",
    ]


def test_interrupted_steps_are_counted_and_not_drawn():
    section = build_sections(large_profile(steps=1200, ranks=1, operators=60))["Iterations"]
    assert "Not counted: 1 step (evaluation)." in section.text


def test_what_was_not_recorded_is_reported():
    found = build_sections(replace(small_profile(), operators=(), kernels=()))
    assert found["Operators"].text == "None were recorded."
    assert found["Kernels"].text == "Operators were not recorded."
    assert "Memory" not in found
    assert "System" not in found


def test_times_that_are_means_are_not_called_typical():
    profile = small_profile()
    for kind, times in (("msprof", "Counts and times are means"), ("script", "times are those of a typical one.")):
        found = build_sections(replace(profile, facts=replace(profile.facts, kind=kind)))
        assert times in found["Operators"].text
        assert times in found["Kernels"].text


def test_a_missing_data_tail_has_the_right_reason():
    notes = [tile.note for tile in build_page(minimal_profile()).tiles if tile.label == "data tail"]
    assert notes == ["no iteration"]


def test_the_page_says_how_it_was_measured():
    (callout,) = find_parts(small_profile(), "What was profiled", Callout)
    assert {remark.name for remark in callout.remarks} == {"Time points", "Notes"}


def test_a_page_asks_the_network_for_nothing(tmp_path):
    html = render_page(build_page(large_profile(steps=30, operators=60)))
    assert not re.search(r'(?:src|href)="(?!data:|#|operators\.csv|kernels\.csv)', html)


def test_a_failure_leaves_no_half_page(tmp_path: Path):
    path = tmp_path / "missing" / "report.html"
    write_report(minimal_profile(), path)
    assert [found.name for found in path.parent.iterdir()] == ["report.html"]
