"""From a request to a search: how often trials are evaluated, and what is said when all fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.errors import UnknownName, ViaductError
from viaduct.recipes import load
from viaduct.runs.search.results import State, TrialResult
from viaduct.runs.search.session import DataFacts, SearchRequest, check_metric, define, plan_evaluations, refuse_failure

FACTS = DataFacts({}, 6400)


def make_request(settings: dict[str, str], pruner: str = "hyperband", metric: str = "top1") -> SearchRequest:
    names = (
        "shapes_taster",
        settings,
        ["optimizer.lr=0.1..1"],
        None,
        "cpu",
        Path("study"),
        8,
        1,
        "tpe",
        pruner,
        metric,
    )
    return SearchRequest(load("shapes_taster"), *names, 1, None, None)  # type: ignore[arg-type]


def failed(number: int, reason: str, state: State = "failed") -> TrialResult:
    return TrialResult(f"trial-{number:03d}", number, {"optimizer.lr": 0.1}, state, None, reason=reason)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UnknownName, match="no metric called 'accuracy'"):
        check_metric(make_request({}, metric="accuracy"))


def test_trials_are_evaluated_often_enough_to_be_stopped_early_unless_the_user_says_how_often() -> None:
    lines: list[str] = []
    assert plan_evaluations(make_request({}), FACTS, lines.append) == ({}, 6)
    settings, count = plan_evaluations(make_request({"steps": "150"}), FACTS, lines.append)
    assert (float(settings["evaluation.every_epochs"]), count) == (0.25, 6)
    assert "every 0.25 epochs" in lines[0]
    own = {"steps": "150", "evaluation.every_epochs": "1"}
    assert plan_evaluations(make_request(own), FACTS, lines.append) == (own, 2)
    assert plan_evaluations(make_request({"steps": "150"}, pruner="none"), FACTS, lines.append)[0] == {"steps": "150"}
    assert len(lines) == 1


def test_the_cadence_of_evaluations_is_no_part_of_what_is_searched() -> None:
    plain, often = define(make_request({}), {}), define(make_request({}), {"evaluation.every_epochs": "0.1"})
    assert plain == often
    assert define(make_request({"epochs": "2"}), {"epochs": "2"}) != plain


def test_the_reason_of_trials_that_all_fail_is_said_once() -> None:
    with pytest.raises(ViaductError) as refused:
        refuse_failure([failed(0, "no data"), failed(1, "no data"), failed(2, "no data")], "failing")
    assert str(refused.value).count("no data") == 1
    assert "The others were not tried" in str(refused.value)
    with pytest.raises(ViaductError) as refused:
        refuse_failure([failed(0, "a"), failed(1, "b"), failed(2, "a")], "done")
    assert [str(refused.value).count(f"\n  {reason} (") for reason in "ab"] == [1, 1]


def test_trials_that_are_still_unfinished_do_not_hide_a_failure() -> None:
    with pytest.raises(ViaductError, match="the first 3 trials failed"):
        refuse_failure([failed(n, "no data") for n in range(3)] + [failed(3, "", "unfinished")], "failing")


def test_an_interrupted_search_and_one_with_a_good_trial_are_no_failure() -> None:
    refuse_failure([failed(0, "a")], "interrupted")
    refuse_failure([failed(0, "a"), TrialResult("trial-001", 1, {}, "finished", 0.5)], "done")
    refuse_failure([], "done")
