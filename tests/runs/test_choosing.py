"""Filters, order and the best run."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.sample_runs import make_run
from viaduct.errors import BadValue, UnknownName
from viaduct.runs.choosing import describe_best, find_best, is_on_noise, parse_conditions, sort_runs
from viaduct.runs.facts import RunFacts
from viaduct.runs.listing import open_run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunFacts]:
    low = make_run(tmp_path / "low", lr=0.01, top1=0.5)
    high = make_run(tmp_path / "high", lr=0.2, top1=0.9, name="resnet")
    unevaluated = make_run(tmp_path / "none", lr=0.1, done=0, finished=False)
    found = [open_run(path) for path in (low, high, unevaluated)]
    for run in found:
        run.name = Path(run.path).name
    return found


def choose(runs: list[RunFacts], *texts: str) -> list[str]:
    conditions = parse_conditions(list(texts), runs)
    return [run.name for run in runs if all(condition.is_met(run) for condition in conditions)]


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["top1>60"], ["high"]),
        (["top1<=60"], ["low"]),
        (["recipe=res*"], ["high"]),
        (["recipe!=res*"], ["low", "none"]),
        (["optimizer.lr>=0.1"], ["high", "none"]),
        (["optimizer.lr=.20"], ["high"]),
        (["state=finished", "optimizer.lr<0.1"], ["low"]),
        (["top1=none"], ["none"]),
        (["optimizer.nesterov=false"], ["low", "high", "none"]),
    ],
)
def test_filters_choose_by_fields_of_runs_and_recipes(runs: list[RunFacts], texts: list[str], names: list[str]) -> None:
    assert choose(runs, *texts) == names


def test_an_unknown_field_is_refused_with_the_closest(runs: list[RunFacts]) -> None:
    with pytest.raises(BadValue, match=r"Closest is 'optimizer\.lr'"):
        choose(runs, "optimiser.lr>1")
    with pytest.raises(BadValue, match="Closest is 'top1'"):
        sort_runs(runs, "topl")


def test_a_filter_that_cannot_be_understood_is_refused(runs: list[RunFacts]) -> None:
    with pytest.raises(BadValue, match="is not a condition"):
        choose(runs, "top1")
    with pytest.raises(BadValue, match="which is not a number"):
        choose(runs, "top1>high")


def test_runs_without_a_value_come_last_in_any_order(runs: list[RunFacts]) -> None:
    assert [run.name for run in sort_runs(runs, "top1")] == ["high", "low", "none"]
    assert [run.name for run in sort_runs(runs, "-top1")] == ["low", "high", "none"]
    assert [run.name for run in sort_runs(runs, "optimizer.lr")] == ["low", "none", "high"]


def test_the_best_run_is_that_with_the_highest_accuracy_or_the_lowest_loss(runs: list[RunFacts]) -> None:
    found = find_best(runs, "top1", 1)
    assert ([run.name for run in found.runs], found.considered, found.without_value) == (["high"], 2, 1)
    assert [run.name for run in find_best(runs, "loss", 5).runs] == ["high", "low"]


def test_noise_is_no_candidate_for_accuracy(runs: list[RunFacts]) -> None:
    runs[1].fingerprint = "synthetic"
    found = find_best(runs, "top1", 1)
    assert ([run.name for run in found.runs], found.on_noise) == (["low"], 1)
    assert find_best(runs, "images_per_s", 3).on_noise == 0


def test_a_folder_called_synthetic_is_no_noise(tmp_path: Path) -> None:
    assert not is_on_noise(open_run(make_run(tmp_path / "folder", data="/data/synthetic")))
    assert is_on_noise(open_run(make_run(tmp_path / "noise", data="synthetic")))


def test_an_unknown_measure_is_refused(runs: list[RunFacts]) -> None:
    with pytest.raises(UnknownName, match="no measure called 'top2'"):
        find_best(runs, "top2", 1)


def test_the_last_bits_of_a_percentage_pass_no_filter(tmp_path: Path) -> None:
    run = open_run(make_run(tmp_path / "a"))
    run.best_top1 = 0.14
    assert 100 * 0.14 > 14
    assert choose([run], "top1>14") == []
    assert choose([run], "top1=14") == [run.name]
    run.best_top1 = 0.14002
    assert choose([run], "top1>14") == [run.name]


def test_runs_that_tie_with_the_best_are_named(runs: list[RunFacts]) -> None:
    assert not any("tied" in line for line in describe_best(find_best(runs, "top1", 1), "top1"))
    runs[0].best_top1 = runs[1].best_top1
    lines = describe_best(find_best(runs, "top1", 1), "top1")
    assert [line for line in lines if line == "tied with 1 other: high"]


def test_best_by_loss_prints_the_training_loss_of_the_last_line(runs: list[RunFacts]) -> None:
    runs[1].loss = 0.125
    assert "training loss of the last log line: high 0.125" in describe_best(find_best(runs, "loss", 1), "loss")


def test_the_refusal_of_an_unlikely_name_does_not_list_every_field(runs: list[RunFacts]) -> None:
    with pytest.raises(BadValue) as caught:
        choose(runs, "xyzzy=1")
    assert "optimizer.momentum" not in str(caught.value)
    assert "Closest are" in str(caught.value)
    with pytest.raises(UnknownName) as unknown:
        find_best(runs, "xyzzy", 1)
    assert str(unknown.value).count("images_per_s") == 1
