"""SearchOutcome of a search from recorded trials."""

from __future__ import annotations

from pathlib import Path

from runs.search.replay import FIELDS, make_search_loop, make_study, past_runs, recorded_space
from viaduct.recipes import load
from viaduct.runs.search.past_runs import add_past_runs
from viaduct.runs.search.results import judge_results, read_results
from viaduct.runs.search.search_loop import Plan
from viaduct.runs.search.session import SearchOutcome, SearchRequest


def make_outcome(folder: Path, trials: int, past: int = 0) -> SearchOutcome:
    study, space = make_study(), recorded_space()
    add_past_runs(study, past_runs(2, past, draw=1) if past else [], space)
    make_search_loop(study, Plan(trials, pruner="hyperband", evaluations=5)).run()
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
    verdict = judge_results(results, "top1", "maximize")
    return SearchOutcome(request, space, study, results, verdict, folder / "best.py", "viaduct train best.py", "done")
