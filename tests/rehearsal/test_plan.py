"""The plan of a rehearsal, as all its processes read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rehearsal.plans import make_plan
from viaduct.errors import BadRun
from viaduct.rehearsal import plan as plans


@pytest.mark.parametrize("content", [None, "", "{", "\x00"])
def test_a_plan_that_cannot_be_read_is_named(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadRun, match=r"plan.json"):
        plans.load_plan(path)


def test_outside_of_a_rehearsal_there_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(plans.PLAN_VARIABLE, raising=False)
    assert plans.current_plan() is None


def test_a_process_of_the_rehearsal_reads_the_plan_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(tmp_path, arguments=("--lr", "0.1"), other_source_trees=("/a", "/b"), steps=3, file_view="mirror")
    monkeypatch.setenv(plans.PLAN_VARIABLE, str(plan.save()))
    assert plans.current_plan() == plan


def test_the_project_as_the_user_knows_it_is_the_tree_that_the_copy_replaces(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    assert plan.project_root == str(tmp_path / "project")
    compared = replace(plan, source_tree="/copy")
    assert (compared.project_root, replace(compared, replaced_source_tree="/original").project_root) == (
        "/copy",
        "/original",
    )


def test_a_script_that_starts_its_ranks_itself_is_run_once(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, ranks=4)
    assert (plan.processes_to_start, replace(plan, script_starts_ranks=True).processes_to_start) == (4, 1)


@pytest.mark.parametrize(
    ("variables", "number"),
    [({}, 0), ({"RANK": "3"}, 3), ({"RANK_ID": "2"}, 2), ({"RANK": "3", "RANK_ID": "2"}, 3), ({"RANK": "two"}, 0)],
)
def test_the_rank_is_that_of_the_environment(
    variables: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "RANK_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert plans.current_rank() == number
