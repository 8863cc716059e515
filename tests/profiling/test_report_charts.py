"""Charts on the page of a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from viaduct.profiling.record import Sample
from viaduct.reporting import FlameGraph, ScatterChart, StackedBars

from .page_parts import build_sections, find_parts, read_tiles
from .sample_profiles import large_profile, small_profile


def test_iterations_are_stacked_by_phase_for_each_rank():
    (chart,) = find_parts(large_profile(steps=30, operators=60), "Iterations", StackedBars)
    assert [group.name for group in chart.groups] == [f"rank {number}" for number in range(8)]
    assert len(chart.groups[0].labels) == 29
    data, forward, update = (layer[0] for layer in chart.groups[0].layers)
    assert data / (data + forward + update) == pytest.approx(0.61)


def test_phases_that_were_not_measured_are_not_drawn_as_zero():
    profile = small_profile()
    unknown = replace(profile, facts=replace(profile.facts, phases_measured=False))
    (chart,) = find_parts(unknown, "Iterations", StackedBars)
    assert list(chart.layer_names) == ["iteration"]
    assert read_tiles(unknown)["data tail"] == "–"
    assert "Phases are not known for all steps" in build_sections(unknown)["Iterations"].text


def test_modules_nest_by_phase_and_path_and_keep_all_the_time():
    profile = small_profile()
    (graph,) = find_parts(profile, "Modules", FlameGraph)
    forward = next(node for node in graph.root.children if node.name == "forward")
    network = next(node for node in forward.children if node.name == "network")
    assert network.children[0].name.startswith("layer")
    assert graph.root.value == pytest.approx(sum(operator.self_us for operator in profile.operators) / 1000)


def test_scopes_of_tensorflow_nest_as_modules_do():
    operator = replace(small_profile().operators[0], module="resnet/block1/conv")
    (graph,) = find_parts(replace(small_profile(), operators=[operator]), "Modules", FlameGraph)
    assert graph.root.children[0].children[0].children[0].name == "block1"


def test_modules_stand_in_the_order_of_their_numbers():
    profile = small_profile()
    operators = [replace(profile.operators[0], module=f"layer{number}") for number in (10, 9, 2)]
    (graph,) = find_parts(replace(profile, operators=operators), "Modules", FlameGraph)
    assert [node.name for node in graph.root.children[0].children] == ["layer2", "layer9", "layer10"]


def test_the_roofline_needs_ceilings():
    profile = small_profile()
    (chart,) = find_parts(profile, "Operators", ScatterChart)
    assert {roof.label for roof in chart.roofs} == {"memory 20 GB/s", "float32 300 GFLOP/s"}
    assert all(point.x > 0 and point.y > 0 for point in chart.points)
    assert find_parts(replace(profile, ceilings=None), "Operators", ScatterChart) == []
    assert (
        "the device's peak rates were not measured" in build_sections(replace(profile, ceilings=None))["Operators"].text
    )


def test_many_cores_are_drawn_as_three_lines():
    charts = build_sections(large_profile(steps=30, operators=60))["System"].parts
    assert [chart.title for chart in charts] == ["CPU (96)", "Memory", "Disk", "Network", "GPU", "GPU memory"]
    assert [series.name for series in charts[0].series] == ["highest", "mean", "lowest"]


def test_a_figure_that_is_read_every_fifth_sample_leaves_no_gaps():
    samples = [Sample(number * 1e6, {"gpu 0 PCIe in MiB/s": 5.0} if number % 5 == 0 else {}) for number in range(20)]
    (chart,) = build_sections(replace(small_profile(), samples=samples))["System"].parts
    assert (chart.title, list(chart.series[0].x)) == ("GPU PCIe in", [0.0, 5.0, 10.0, 15.0])
