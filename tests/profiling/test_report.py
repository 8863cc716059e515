"""The page of a profile: honest about what is missing, unmoved by hostile names, whole for large and tiny profiles."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reporting.test_page import Elements
from viaduct.profiling.record import Advice, Facts, Profile, Sample
from viaduct.profiling.report import build_page, write_report
from viaduct.reporting import Callout, FlameGraph, ScatterChart, StackedBars, Table, VirtualTable, render_page

from .sample_profiles import HOSTILE, large_profile, minimal_profile, small_profile


def sections(profile: Profile) -> dict[str, object]:
    return {section.title: section for section in build_page(profile).sections}


def parts(profile: Profile, title: str, kind: type) -> list:
    return [part for part in sections(profile)[title].parts if isinstance(part, kind)]


def tiles(profile: Profile) -> dict[str, str]:
    return {tile.label: tile.value for tile in build_page(profile).tiles}


def test_one_step_makes_a_page_without_figures(tmp_path):
    write_report(minimal_profile(), tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert tiles(minimal_profile()) == dict.fromkeys(("iteration", "images/s", "data tail", "peak memory"), "–")
    assert "Too few steps to judge" in html
    assert "Nothing stands out" not in html
    assert list(sections(minimal_profile())) == ["Iterations", "Operators", "Kernels", "What was profiled"]


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
    remark = Advice("synchronisation", "For accelerators: …", "Read it later.", ("1 call.",), None, "none on this CPU")
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
    assert list(sections(large_profile(steps=30, operators=60))) == [
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


def test_iterations_are_stacked_by_phase_for_each_rank():
    (chart,) = parts(large_profile(steps=30, operators=60), "Iterations", StackedBars)
    assert [group.name for group in chart.groups] == [f"rank {number}" for number in range(8)]
    assert len(chart.groups[0].labels) == 29
    data, forward, update = (layer[0] for layer in chart.groups[0].layers)
    assert data / (data + forward + update) == pytest.approx(0.61)


def test_interrupted_steps_are_counted_and_not_drawn():
    section = sections(large_profile(steps=1200, ranks=1, operators=60))["Iterations"]
    assert "Not counted: 1 step (evaluation)." in section.text


def test_phases_that_were_not_measured_are_not_drawn_as_zero():
    profile = small_profile()
    unknown = replace(profile, facts=replace(profile.facts, phases_measured=False))
    (chart,) = parts(unknown, "Iterations", StackedBars)
    assert list(chart.layers) == ["iteration"]
    assert tiles(unknown)["data tail"] == "–"
    assert "not its phases" in sections(unknown)["Iterations"].text


def test_modules_nest_by_phase_and_path_and_keep_all_the_time():
    profile = small_profile()
    (graph,) = parts(profile, "Modules", FlameGraph)
    forward = next(node for node in graph.root.children if node.name == "forward")
    network = next(node for node in forward.children if node.name == "network")
    assert network.children[0].name.startswith("layer")
    assert graph.root.value == pytest.approx(sum(operator.self_us for operator in profile.operators) / 1000)


def test_scopes_of_tensorflow_nest_as_modules_do():
    operator = replace(small_profile().operators[0], module="resnet/block1/conv")
    (graph,) = parts(replace(small_profile(), operators=[operator]), "Modules", FlameGraph)
    assert graph.root.children[0].children[0].children[0].name == "block1"


def test_modules_stand_in_the_order_of_their_numbers():
    profile = small_profile()
    operators = [replace(profile.operators[0], module=f"layer{number}") for number in (10, 9, 2)]
    (graph,) = parts(replace(profile, operators=operators), "Modules", FlameGraph)
    assert [node.name for node in graph.root.children[0].children] == ["layer2", "layer9", "layer10"]


def test_the_roofline_needs_ceilings():
    profile = small_profile()
    (chart,) = parts(profile, "Operators", ScatterChart)
    assert {roof.label for roof in chart.roofs} == {"memory 20 GB/s", "float32 300 GFLOP/s"}
    assert all(point.x > 0 and point.y > 0 for point in chart.points)
    assert parts(replace(profile, ceilings=None), "Operators", ScatterChart) == []
    assert "the ceilings of the device were not measured" in sections(replace(profile, ceilings=None))["Operators"].text


def test_operators_are_a_table_with_the_longest_first():
    profile = large_profile(steps=30, operators=60)
    (table,) = parts(profile, "Operators", VirtualTable)
    times = next(column for column in table.columns if column.name == "time ms").values
    assert [times[row] for row in table.order] == sorted(times, reverse=True)
    assert table.download == "operators.csv"
    assert "rank" not in [column.name for column in table.columns]


def test_the_hosts_time_is_left_out_where_only_the_device_was_seen():
    operators = [replace(operator, total_us=0.0, self_us=0.0, device_us=5.0) for operator in small_profile().operators]
    (table,) = parts(replace(small_profile(), operators=operators), "Operators", Table)
    assert "time ms" in table.columns
    assert "host total ms" not in table.columns


def test_few_kernels_make_a_plain_table():
    (table,) = parts(small_profile(), "Kernels", Table)
    assert len(table.rows) == 7
    assert "The CPU has no kernels of its own" in sections(small_profile())["Kernels"].text


def test_what_was_not_recorded_is_said():
    found = sections(replace(small_profile(), operators=(), kernels=()))
    assert found["Operators"].text == "None were recorded."
    assert found["Kernels"].text == "Operators were not recorded."
    assert "Memory" not in found
    assert "System" not in found


def test_many_cores_are_drawn_as_three_lines():
    charts = sections(large_profile(steps=30, operators=60))["System"].parts
    assert [chart.title for chart in charts] == ["CPU (96)", "Memory", "Disk", "Network", "GPU", "GPU memory"]
    assert [series.name for series in charts[0].series] == ["highest", "mean", "lowest"]


def test_a_figure_that_is_read_every_fifth_sample_leaves_no_gaps():
    samples = [Sample(number * 1e6, {"gpu 0 PCIe in MiB/s": 5.0} if number % 5 == 0 else {}) for number in range(20)]
    (chart,) = sections(replace(small_profile(), samples=samples))["System"].parts
    assert (chart.title, list(chart.series[0].x)) == ("GPU PCIe in", [0.0, 5.0, 10.0, 15.0])


def test_tables_of_a_reader_sort_as_numbers_and_keep_what_is_missing():
    (large,) = parts(large_profile(steps=30, operators=60), "Further tables", VirtualTable)
    step, computing, communication, *_ = large.columns
    assert step.values[:2] == [0.0, 1.0]
    assert (computing.decimals, computing.values[3]) == (2, 4.5)
    assert set(communication.values) == {None}


def test_a_table_with_ragged_rows_is_shown():
    table = {"columns": ["a", "b"], "rows": [["1"], ["2", "x", "left over"]]}
    (shown,) = parts(replace(small_profile(), tables={"odd.csv": table}), "Further tables", Table)
    assert [list(row) for row in shown.rows] == [[1.0, ""], [2.0, "x"]]


def test_the_page_says_how_it_was_measured():
    (callout,) = parts(small_profile(), "What was profiled", Callout)
    assert {remark.name for remark in callout.remarks} == {"Time points", "Notes"}


def test_a_page_asks_the_network_for_nothing(tmp_path):
    html = render_page(build_page(large_profile(steps=30, operators=60)))
    assert not re.search(r'(?:src|href)="(?!data:|#|operators\.csv|kernels\.csv)', html)


def test_a_failure_leaves_no_half_page(tmp_path: Path):
    path = tmp_path / "missing" / "report.html"
    write_report(minimal_profile(), path)
    assert [found.name for found in path.parent.iterdir()] == ["report.html"]
