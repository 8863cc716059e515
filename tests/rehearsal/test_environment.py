"""Environment variables of a rehearsal's processes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from rehearsal.plans import make_plan
from viaduct.rehearsal import limits
from viaduct.rehearsal.environment import (
    make_environment,
    make_rank_variables,
    write_rank_table,
)
from viaduct.rehearsal.plan import PLAN_VARIABLE, load_plan
from viaduct.scripts.child_process import HOOK_FOLDER


def test_the_job_around_the_command_is_not_the_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "RANK_TABLE_FILE", "TF_CONFIG"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("DATA", "/data")
    variables = make_environment(make_plan(tmp_path))
    assert variables["DATA"] == "/data"
    assert {"RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "RANK_TABLE_FILE", "TF_CONFIG"}.isdisjoint(variables)


def test_relative_entries_of_pythonpath_are_those_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", "", "/opt/lib"]))
    variables = make_environment(make_plan(tmp_path))
    assert variables["PYTHONPATH"].split(os.pathsep) == [str(HOOK_FOLDER), str(tmp_path / "lib"), "/opt/lib"]


def test_a_script_that_sees_the_files_themselves_keeps_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert make_environment(make_plan(tmp_path))["TMPDIR"] == str(tmp_path)
    overlaid = make_environment(make_plan(tmp_path, file_view="overlay"))["TMPDIR"]
    assert Path(overlaid).is_dir()
    assert Path(overlaid).parent == tmp_path


def test_a_seed_fixes_the_order_of_sets_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert "PYTHONHASHSEED" not in make_environment(make_plan(tmp_path))
    assert make_environment(make_plan(tmp_path, seed=2**32 + 7))["PYTHONHASHSEED"] == "7"


def test_a_process_of_the_rehearsal_finds_its_plan_and_its_limits(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, limit_modes="warn", source_tree="/copy")
    plan.save()
    variables = make_environment(plan)
    assert load_plan(variables[PLAN_VARIABLE]) == plan
    assert variables["VIADUCT_REHEARSAL_PYTHON"] == sys.executable
    assert variables[limits.LIMITS_VARIABLE] == "warn"
    assert variables[limits.PROJECT_VARIABLE].split(os.pathsep) == ["/copy", str(tmp_path / "project")]


def test_one_process_of_an_npu_is_a_job_of_one_rank_for_tensorflow_alone(tmp_path: Path) -> None:
    assert "RANK_ID" not in make_environment(make_plan(tmp_path))
    assert "RANK_ID" not in make_environment(make_plan(tmp_path, framework="tf1", platform="original"))
    variables = make_environment(make_plan(tmp_path, framework="tf1"))
    assert (variables["RANK_ID"], variables["RANK_SIZE"], variables["DEVICE_ID"]) == ("0", "1", "0")


def test_a_rank_of_several_has_the_variables_of_hccl_on_the_npu_alone(tmp_path: Path) -> None:
    assert make_rank_variables(make_plan(tmp_path, platform="mlu", ranks=2), {"RANK": "1"}) == {}
    plan = make_plan(tmp_path, ranks=2)
    write_rank_table(plan)
    variables = make_rank_variables(plan, {"RANK": "1"})
    assert (variables["RANK_ID"], variables["RANK_SIZE"], variables["DEVICE_ID"]) == ("1", "2", "1")
    assert variables["RANK_TABLE_FILE"] == str(tmp_path / "record" / "rank_table.json")
