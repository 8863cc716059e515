"""Past runs as observations: which are taken, and why others are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadData
from viaduct.recipes import Recipe, load
from viaduct.recipes._fields import override, to_record
from viaduct.runs.search.past_runs import Criteria, gather_past_runs
from viaduct.runs.search.space import parse_space

RECIPE = load("shapes_taster").recipe
IMAGES = {"training": {"count": 6400, "labels": 1}, "validation": {"count": 1000, "labels": 2}}
WANTED = Criteria("shapes_taster", RECIPE, IMAGES, "top1")
SPACE = parse_space(RECIPE, ["optimizer.lr=0.01..1:log"])


def write_run(folder: Path, recipe: Recipe, top1: float | None = 0.9, **changes: Any) -> None:
    folder.mkdir(parents=True)
    record = {"name": "shapes_taster", "file": None, "recipe": to_record(recipe), "images": IMAGES, **changes}
    (folder / "recipe.json").write_text(json.dumps(record))
    if top1 is not None:
        final = {"top1": top1, "count": 1000}
        summary = {"steps": 600, "length": {"steps": 0, "epochs": 6.0}, "final": final}
        (folder / "summary.json").write_text(json.dumps(summary))


def with_rate(text: str) -> Recipe:
    return override(RECIPE, "optimizer.lr", text)


def test_runs_that_differ_in_anything_else_are_counted_by_their_reason(tmp_path: Path) -> None:
    write_run(tmp_path / "other_epochs", override(with_rate("0.2"), "epochs", "3"))
    write_run(tmp_path / "other_batch", override(with_rate("0.2"), "data.global_batch", "32"))
    write_run(tmp_path / "other_data", with_rate("0.2"), images={**IMAGES, "training": {"count": 1, "labels": 1}})
    write_run(tmp_path / "other_recipe", with_rate("0.2"), name="resnet56_cifar10")
    write_run(tmp_path / "outside", with_rate("3"))
    write_run(tmp_path / "unfinished", with_rate("0.2"), top1=None)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "recipe.json").write_text("{")
    gathered = gather_past_runs(tmp_path, WANTED, SPACE)
    assert gathered.accepted == []
    assert dict(gathered.refused) == {
        "epochs differ": 1,
        "data.global_batch differ": 1,
        "other data": 1,
        "another recipe": 1,
        "optimizer.lr is outside the space": 1,
        "not finished": 1,
        "damaged, or not readable": 1,
    }
    assert "0 of 7 past runs" in gathered.describe(tmp_path)[0]


def test_a_run_that_was_made_longer_and_has_not_finished_again_is_not_taken(tmp_path: Path) -> None:
    write_run(tmp_path / "a", with_rate("0.2"))
    summary = {"steps": 100, "length": {"steps": 0, "epochs": 1.0}, "final": {"top1": 0.5, "count": 1000}}
    (tmp_path / "a" / "summary.json").write_text(json.dumps(summary))
    gathered = gather_past_runs(tmp_path, WANTED, SPACE)
    assert gathered.accepted == []
    assert dict(gathered.refused) == {"not finished": 1}


def test_a_run_with_a_damaged_summary_is_not_said_to_be_unfinished(tmp_path: Path) -> None:
    write_run(tmp_path / "a", with_rate("0.2"))
    (tmp_path / "a" / "summary.json").write_text("{")
    gathered = gather_past_runs(tmp_path, WANTED, SPACE)
    assert dict(gathered.refused) == {"summary.json cannot be read": 1}


def test_runs_that_differ_only_in_the_space_the_seed_and_what_is_logged_are_taken(tmp_path: Path) -> None:
    write_run(tmp_path / "deep" / "a", with_rate("0.2"), top1=0.8)
    write_run(tmp_path / "b", override(override(with_rate("0.5"), "seed", "7"), "log.every_steps", "3"), top1=0.7)
    gathered = gather_past_runs(tmp_path, WANTED, SPACE)
    assert {(run.values["optimizer.lr"], run.value, run.images) for run in gathered.accepted} == {
        (0.2, 0.8, 1000),
        (0.5, 0.7, 1000),
    }


def test_the_trials_of_the_search_itself_are_no_past_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "study" / "trial-000", with_rate("0.2"))
    gathered = gather_past_runs(tmp_path, WANTED, SPACE, study=tmp_path / "study")
    assert gathered.accepted == []
    assert not gathered.refused


def test_another_metric_is_read_where_it_was_measured(tmp_path: Path) -> None:
    write_run(tmp_path / "a", with_rate("0.2"))
    gathered = gather_past_runs(tmp_path, replace(WANTED, metric="f1"), SPACE)
    assert dict(gathered.refused) == {"no f1": 1}


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no such folder"):
        gather_past_runs(tmp_path / "none", WANTED, SPACE)


def test_links_are_followed_and_hidden_folders_are_not_searched(tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere" / "try1", with_rate("0.2"))
    folder = tmp_path / "runs"
    write_run(folder / ".old" / "try2", with_rate("0.3"))
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    assert [run.path for run in gather_past_runs(folder, WANTED, SPACE).accepted] == [folder / "linked" / "try1"]
