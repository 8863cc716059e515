"""The process that runs the profiled script."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from viaduct.profiling import child
from viaduct.profiling.child import end_script
from viaduct.profiling.collector import Plan
from viaduct.profiling.script_job import JOB_VARIABLE, ScriptJob


def test_a_child_without_a_job_says_who_starts_it() -> None:
    code = "from viaduct.profiling.child import main; import sys; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "started by `viaduct profile run`" in ended.stderr


def test_the_first_process_of_a_container_may_start_a_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    job = ScriptJob("train.py", (), False, str(tmp_path), str(tmp_path), Plan(0, 1, 0))
    monkeypatch.setattr(child.os, "getppid", lambda: 1)
    monkeypatch.setattr(child, "run", lambda job: 0)
    monkeypatch.setenv(JOB_VARIABLE, str(job.save()))
    assert child.main() == 2, "its launcher has ended"
    monkeypatch.setenv(JOB_VARIABLE, str(replace(job, launcher=1).save()))
    assert child.main() == 0


def test_sigterm_ends_a_script_by_an_exception_so_that_it_can_clean_up() -> None:
    with pytest.raises(SystemExit) as ended:
        end_script(signal.SIGTERM, None)
    assert ended.value.code == 143
