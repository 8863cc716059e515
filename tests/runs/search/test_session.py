"""Search from request to end: number of evaluations, and the message if all trials fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runs.search.replay import make_study
from viaduct.errors import BadValue, UnknownName, ViaductError
from viaduct.recipes import load
from viaduct.runs.search.past_runs import PastRun, add_past_runs
from viaduct.runs.search.results import State, TrialResult
from viaduct.runs.search.session import (
    DataFacts,
    SearchRequest,
    check_metric,
    choose_first_trial,
    make_definition,
    plan_evaluations,
    raise_if_all_failed,
)
from viaduct.runs.search.space import parse_space
from viaduct.verbs.search import check_settings

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


def make_failed_trial(number: int, reason: str, state: State = "failed") -> TrialResult:
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
    plain, often = (
        make_definition(make_request({}), {}),
        make_definition(make_request({}), {"evaluation.every_epochs": "0.1"}),
    )
    assert plain == often
    assert make_definition(make_request({"epochs": "2"}), {"epochs": "2"}) != plain


def test_the_reason_of_trials_that_all_fail_is_reported_once() -> None:
    with pytest.raises(ViaductError) as refused:
        raise_if_all_failed(
            [make_failed_trial(0, "no data"), make_failed_trial(1, "no data"), make_failed_trial(2, "no data")],
            "failing",
        )
    assert str(refused.value).count("no data") == 1
    assert "No further trial was started" in str(refused.value)
    with pytest.raises(ViaductError) as refused:
        raise_if_all_failed([make_failed_trial(0, "a"), make_failed_trial(1, "b"), make_failed_trial(2, "a")], "done")
    assert [str(refused.value).count(f"\n  {reason} (") for reason in "ab"] == [1, 1]


def test_trials_that_are_still_unfinished_do_not_hide_a_failure() -> None:
    with pytest.raises(ViaductError, match="the first 3 trials failed"):
        raise_if_all_failed(
            [make_failed_trial(n, "no data") for n in range(3)] + [make_failed_trial(3, "", "unfinished")], "failing"
        )


def test_an_interrupted_search_and_one_with_a_good_trial_are_no_failure() -> None:
    raise_if_all_failed([make_failed_trial(0, "a")], "interrupted")
    raise_if_all_failed([make_failed_trial(0, "a"), TrialResult("trial-001", 1, {}, "finished", 0.5)], "done")
    raise_if_all_failed([], "done")


def test_reasons_that_differ_only_in_numbers_are_reported_once() -> None:
    with pytest.raises(ViaductError) as refused:
        raise_if_all_failed(
            [
                make_failed_trial(0, "size 0.5 is odd"),
                make_failed_trial(1, "size 7 is odd"),
                make_failed_trial(2, "other"),
            ],
            "done",
        )
    assert str(refused.value).count("is odd") == 1
    assert "size 0.5 is odd" in str(refused.value)


def test_it_is_reported_where_no_first_trial_has_the_recipes_own_values() -> None:
    recipe = load("shapes_taster").recipe
    inside = parse_space(recipe, ["optimizer.lr=0.1,1"])
    later = parse_space(recipe, ["optimizer.lr=1,0.1"])
    outside = parse_space(recipe, ["optimizer.lr=0.5,1"])
    request = make_request({})
    own = {"optimizer.lr": "0.1"}
    assert choose_first_trial(request, inside, make_study()) == (own, "")
    values, note = choose_first_trial(request, outside, make_study())
    assert values is None
    assert "its optimizer.lr is not in the space" in note
    grid = replace(request, sampler="grid")
    assert choose_first_trial(grid, inside, make_study()) == (own, "")
    assert "grid" in choose_first_trial(grid, later, make_study())[1]
    study = make_study()
    add_past_runs(study, [PastRun(Path("/past/a"), dict(own), 0.8, 1000, seed=1)], inside)
    assert choose_first_trial(request, inside, study) == (None, "")


def test_a_refused_setting_is_named_with_its_full_path() -> None:
    with pytest.raises(BadValue, match=r"--set data\.classes=3: classes must be 10 for shapes, got 3"):
        check_settings("shapes_taster", [("data.classes", "3")])
