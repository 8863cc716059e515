"""The job of profiling a script, as its processes read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.profiling.collector import Plan
from viaduct.profiling.script_job import JOB_VARIABLE, ScriptJob, load_job


@pytest.mark.parametrize("path", [None, ""])
def test_a_process_outside_of_a_profiled_script_has_no_job(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOB_VARIABLE, raising=False)
    if path is not None:
        monkeypatch.setenv(JOB_VARIABLE, path)
    assert load_job() is None


def test_a_job_is_read_back_by_the_processes_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ScriptJob("train.py", ("--lr", "1"), False, str(tmp_path), "/scripts", Plan(5, 20, 3))
    monkeypatch.setenv(JOB_VARIABLE, str(job.save()))
    assert load_job() == job
