"""The page of a search, from recorded trials."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runs.search.replay import FIELDS, make_conductor, make_study, past_runs, recorded_space
from viaduct.recipes import load
from viaduct.runs.search.conductor import Plan
from viaduct.runs.search.importance import measure_importance
from viaduct.runs.search.output import print_findings
from viaduct.runs.search.past_runs import add_past_runs
from viaduct.runs.search.report import write_search_report
from viaduct.runs.search.results import judge, read_results
from viaduct.runs.search.session import Findings, SearchRequest


def make_findings(folder: Path, trials: int, past: int = 0) -> Findings:
    study, space = make_study(), recorded_space()
    add_past_runs(study, past_runs(2, past, draw=1) if past else [], space)
    make_conductor(study, Plan(trials, pruner="hyperband", evaluations=5)).conduct()
    request = SearchRequest(
        load("shapes_taster"),
        "shapes_taster",
        {},
        FIELDS,
        None,
        "cpu",
        folder,
        trials,
        1,
        "tpe",
        "hyperband",
        "top1",
        1,
        None,
        None,
    )
    results = read_results(study, space)
    verdict = judge(results, "top1", "maximize")
    return Findings(request, space, study, results, verdict, folder / "best.py", "viaduct train best.py", "done")


def test_importance_is_not_said_of_a_few_trials() -> None:
    study = make_study()
    make_conductor(study, Plan(5)).conduct()
    assert measure_importance(study) is None


def test_importance_names_both_parameters_and_adds_up() -> None:
    study = make_study()
    make_conductor(study, Plan(40, sampler="random")).conduct()
    shares = measure_importance(study)
    assert shares is not None
    assert set(shares) == {"optimizer.lr", "optimizer.momentum"}
    assert sum(shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(("trials", "past"), [(1, 0), (2, 0), (20, 12)])
def test_the_page_has_history_importance_contours_and_all_trials(tmp_path: Path, trials: int, past: int) -> None:
    findings = make_findings(tmp_path, trials, past)
    write_search_report(tmp_path / "report.html", findings, measure_importance(findings.study))
    page = (tmp_path / "report.html").read_text()
    assert "<h3>History</h3>" in page
    assert page.count("trial-") >= trials
    assert ("part chart own contour" in page) == (trials > 2)
    assert ("Not given:" in page) == (trials <= 2)
    if past:
        assert "12 past runs came before them" in page
        assert re.search(r'<rect class="cell"', page)


def test_the_terminal_says_the_table_the_noise_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_findings(make_findings(tmp_path, 30, 12))
    said = capsys.readouterr().out
    assert "Importance (PED-ANOVA): " in said
    assert "Highest top1 of those trained to their end: " in said
    assert "viaduct train best.py" in said
    assert "pruned" in said
    assert (tmp_path / "report.html").is_file()
