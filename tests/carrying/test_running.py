"""Plans of a carry's runs, and properties of a run: finished, output, line of failure."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from carrying.failed_runs import make_failed_run
from carrying.sample_carries import make_request, make_sides
from viaduct.carrying.running import MAX_OUTPUT_LINES, Interrupted, derive_plan, move_step_at
from viaduct.errors import BadValue
from viaduct.rehearsal.plan import Plan


def original_plan(folder: Path, **more: str) -> Plan:
    record = str(folder / "out" / "runs" / "original")
    script = str(folder / "train.py")
    return Plan("original", "torch", script, (), record, seed=7, limit_modes="off", source_tree=str(folder), **more)


def test_a_run_that_took_no_step_or_was_stopped_is_not_finished(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, ["OWN"], "", steps=3)
    finished = replace(run, summary=replace(run.summary, script_exit_code=0))
    assert finished.is_finished
    for change in ({"script_exit_code": 1}, {"steps": 0}, {"stopped_by_limit": "time"}, {"unreported_end": "rank 1"}):
        assert not replace(run, summary=replace(finished.summary, **change)).is_finished, change  # type: ignore[arg-type]


def test_the_failure_is_put_to_the_last_line_of_the_project_in_the_output_of_its_rank(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, ["OWN", "/opt/site-packages/torch/nn.py"], "ValueError")
    assert run.failed_at == (f"{tmp_path}/train.py", 3)
    frame = '[rank {}]   File "{}/{}.py", line {}, in f\n'
    output = frame.format(0, tmp_path, "data", 5) + frame.format(1, tmp_path, "model", 9)
    (tmp_path / "runs" / "original" / "output.txt").write_text(output)
    assert run.failed_at == (f"{tmp_path}/model.py", 9)
    first = replace(run, summary=replace(run.summary, failed_rank=0))
    assert first.failed_at == (f"{tmp_path}/data.py", 5)
    assert "model.py" not in first.output_of_rank(0)


def test_a_run_without_output_says_nothing_and_of_a_long_one_the_end_is_kept(tmp_path: Path) -> None:
    run = make_failed_run(tmp_path, [], "")
    path = tmp_path / "runs" / "original" / "output.txt"
    path.write_bytes(b"caf\xe9\n" * 1000 + b"end\n")
    assert run.output_tail.splitlines()[-1] == "end"
    assert len(run.output_tail.splitlines()) == MAX_OUTPUT_LINES
    path.unlink()
    assert (run.output, run.failed_at) == ("", None)


def test_an_interruption_has_the_exit_code_of_a_shell() -> None:
    assert Interrupted(signal.SIGTERM).exit_code == 143
    message = str(Interrupted(signal.SIGINT, "while the original ran"))
    assert "interrupted while the original ran; the output folder is as it was before." in message


def test_the_migrated_run_has_its_own_tree_and_limits_and_must_not_import_the_originals(tmp_path: Path) -> None:
    plan = derive_plan("migrated", original_plan(tmp_path), make_request(tmp_path), make_sides(tmp_path))
    assert (plan.platform, plan.limit_modes, plan.seed, plan.perturb) == ("npu", "error", 7, False)
    assert plan.script == str(tmp_path / "migrated" / "train.py")
    assert (plan.source_tree, plan.other_source_trees) == (str(tmp_path / "migrated"), (str(tmp_path),))
    assert plan.project_root == str(tmp_path), "the script sees its files in the place of the original's"
    assert plan.record_folder == str(tmp_path / "out" / "runs" / "migrated")


def test_the_perturbed_run_is_the_original_with_its_weights_moved(tmp_path: Path) -> None:
    first = original_plan(tmp_path)
    plan = derive_plan("shaken", first, make_request(tmp_path), make_sides(tmp_path))
    assert (plan.perturb, plan.platform, plan.limit_modes, plan.script) == (True, "original", "off", first.script)
    assert plan.record_folder != first.record_folder


def test_the_reference_runs_its_own_script_in_a_tree_of_its_own(tmp_path: Path) -> None:
    script = tmp_path.parent / "reference_source" / "train.py"
    plan = derive_plan("reference", original_plan(tmp_path), make_request(tmp_path), make_sides(tmp_path), script)
    assert (plan.script, plan.source_tree, plan.replaced_source_tree) == (
        str(script),
        str(script.parent),
        str(tmp_path),
    )
    assert str(tmp_path) in plan.other_source_trees


def test_the_place_where_a_step_ends_moves_with_its_line(tmp_path: Path) -> None:
    sides = make_sides(tmp_path, "a = 1\nb = 2\nstep()\n", "import torch_npu\na = 1\nstep()\n")
    assert move_step_at("train.py:3-3", sides) == "train.py:3-3"
    assert move_step_at("train.py:1-1", sides) == "train.py:2-2"
    assert move_step_at("update", sides) == "update"
    assert move_step_at("other.py:1-1", sides) == "other.py:1-1"
    assert move_step_at("", sides) == ""
    with pytest.raises(BadValue, match="the migration removes this line"):
        move_step_at("train.py:2-2", sides)
