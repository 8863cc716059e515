"""The page over several runs."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from runs.sample_runs import describe_origin, make_run
from viaduct.reporting import ParallelPlot, RunCurves, render_page
from viaduct.runs.facts import State
from viaduct.runs.listing import list_runs
from viaduct.runs.page import MAX_CURVES, TONES, build_page, find_varying


def test_every_state_has_a_tone() -> None:
    assert set(TONES) == set(get_args(State))


def test_runs_that_differ_in_nothing_have_no_parallel_axes(tmp_path: Path) -> None:
    for name in "ab":
        make_run(tmp_path / name)
    listing = list_runs([tmp_path])
    page = build_page(listing.runs, [], "runs")
    assert [section.title for section in page.sections] == ["Curves", "Runs"]
    assert find_varying(listing.runs) == []


def test_what_is_watched_is_no_hyper_parameter(tmp_path: Path) -> None:
    make_run(tmp_path / "a", lr=0.1, every=10)
    make_run(tmp_path / "b", lr=0.2, every=20)
    assert find_varying(list_runs([tmp_path]).runs) == ["optimizer.lr"]


def test_curves_axes_table_and_lineage_are_on_the_page(tmp_path: Path) -> None:
    parent = make_run(tmp_path / "parent", lr=0.1, provenance=describe_origin(id="7"))
    init = {"source": str(parent), "file": "m", "sha256": "a", "run": str(parent), "run_id": "7", "step": 600}
    make_run(tmp_path / "child", lr=0.01, top1=0.7, provenance=describe_origin(init=init))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "metrics.jsonl").write_text("")
    listing = list_runs([tmp_path])
    page = build_page(listing.runs, listing.problems, "runs")
    titles = [section.title for section in page.sections]
    assert titles == ["Curves", "Hyper-parameters", "Runs", "Lineage", "Not listed as runs"]
    curves = [part for part in page.parts if isinstance(part, RunCurves)]
    assert [curve.title for curve in curves] == ["Training loss", "Validation top-1"]
    assert {series.name for series in curves[0].series} == {"parent", "child"}
    (plot,) = (part for part in page.parts if isinstance(part, ParallelPlot))
    assert [axis.name for axis in plot.axes] == ["optimizer.lr", "last loss", "best top-1"]
    assert render_page(page).startswith("<!doctype html>")


def test_of_many_runs_the_best_are_drawn_and_that_is_reported(tmp_path: Path) -> None:
    for number in range(MAX_CURVES + 6):
        make_run(tmp_path / f"r{number}", steps=20, top1=0.5 + number / 100, seed=number)
    page = build_page(list_runs([tmp_path]).runs, [], "runs")
    section = page.sections[0]
    assert section.text == f"The {MAX_CURVES} runs with the best top-1 of {MAX_CURVES + 6}."
    names = {series.name for series in section.parts[0].series}  # type: ignore[attr-defined]
    assert "r0" not in names
    assert f"r{MAX_CURVES + 5}" in names


def test_runs_whose_curves_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "short", steps=20)
    make_run(tmp_path / "long", steps=600)
    limit = (tmp_path / "short" / "metrics.jsonl").stat().st_size
    monkeypatch.setattr("viaduct.run_files.MAX_METRICS_BYTES", limit)
    section = build_page(list_runs([tmp_path]).runs, [], "runs").sections[0]
    assert section.text == "Metrics that cannot be read: long."
    assert [series.name for series in section.parts[0].series] == ["short"]  # type: ignore[attr-defined]


def test_noise_is_named_and_never_the_best(tmp_path: Path) -> None:
    make_run(tmp_path / "noise", top1=0.99, data="synthetic")
    make_run(tmp_path / "real", top1=0.5)
    page = build_page(list_runs([tmp_path]).runs, [], "runs")
    assert [tile.note for tile in page.tiles if tile.label == "best top-1"] == ["real"]
    assert "Trained on noise" in render_page(page)


def test_runs_without_anything_logged_make_a_page(tmp_path: Path) -> None:
    make_run(tmp_path / "a", done=0, finished=False, provenance=None)
    assert "never begun" in render_page(build_page(list_runs([tmp_path]).runs, [], "runs"))
