"""If time and memory can no longer be watched, the script is ended; a rank without a report is a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rehearsal.rehearsing import TRAINS, rehearse_script
from viaduct.rehearsal import plan as plans
from viaduct.rehearsal import process
from viaduct.rehearsal.bounds import Bounds
from viaduct.rehearsal.plan import Plan
from viaduct.rehearsal.summary import ProcessEnd, describe_summary, make_summary

IMPORTING = """\
import threading
answers = []
def ask():
    from viaduct.rehearsal import plan
    answers.append(plan.current_rank())
thread = threading.Thread(target=ask)
thread.start()
thread.join(10)
def is_available(): return True
def is_initialized(): return True
def get_rank(): return 3
"""


def test_a_thread_that_asks_for_the_rank_while_torch_distributed_is_imported_gets_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "distributed.py").write_text(IMPORTING)
    source = str(Path(plans.__file__).parents[2])
    monkeypatch.setenv("RANK", "1")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {source!r}]; from viaduct.rehearsal.plan import current_rank\n"
        "import torch.distributed as group; print(group.answers, current_rank())"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert answer.stdout.split() == ["[1]", "3"], answer.stderr


def test_a_group_that_is_left_while_the_rank_is_requested_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Leaving:
        is_available = is_initialized = staticmethod(lambda: True)

        @staticmethod
        def get_rank() -> int:
            raise ValueError("Default process group has not been initialized")

    monkeypatch.setitem(sys.modules, "torch.distributed", Leaving())
    monkeypatch.setenv("RANK", "5")
    assert plans.current_rank() == 5


def test_a_watch_that_fails_ends_the_process_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    ended = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: (codes.append(code), ended.set()))
    bounds = Bounds(None, None)

    def fail() -> None:
        raise AttributeError("partially initialized module 'torch.distributed'")

    heard: list[str] = []
    bounds.on_poll, bounds.on_exit = fail, lambda: heard.append(bounds.stopped_by)
    bounds.start()
    assert ended.wait(10)
    assert (codes, heard) == ([1], ["watch"])
    assert "the script's time and memory are no longer watched (AttributeError" in capsys.readouterr().err


def make_plan(record: Path, ranks: int) -> Plan:
    return Plan("original", "torch", str(record / "a.py"), (), str(record), str(record), ranks=ranks, timeout=1.0)


def note(record: Path, folder: str, pid: int, **fields: object) -> None:
    (record / folder).mkdir(exist_ok=True)
    (record / folder / f"{pid}.json").write_text(json.dumps({"steps": 3, "seconds": 1.0, "peak_bytes": 1, **fields}))


def test_a_rank_that_ends_without_a_report_is_named_and_is_no_good_end(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, 2)
    note(tmp_path, "ended", 11, rank=0, code=0, stopped=False, bound="", failure="")
    note(tmp_path, "alive", 12, rank=1)
    summary = make_summary(plan, ProcessEnd(0), [], [])
    assert (summary.unreported_end, summary.exit_code) == ("rank 1 ended without a report", 1)
    assert "os._exit" in describe_summary(summary, plan)[-1]
    (tmp_path / "alive" / "12.json").unlink()
    assert make_summary(plan, ProcessEnd(0), [], []).unreported_end == "1 of 2 ranks ended without a report"
    note(tmp_path, "ended", 12, rank=1, code=0, stopped=False, bound="", failure="")
    assert make_summary(plan, ProcessEnd(0), [], []).exit_code == 0


def test_ranks_that_do_not_keep_their_time_are_killed_from_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(tmp_path, 2)
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    known = {**os.environ, plans.PLAN_VARIABLE: str(tmp_path / plans.PLAN_FILE)}
    with process.RankTimeout(plan) as overdue:
        rank = subprocess.Popen(sleeping, env=known)
        other = subprocess.Popen(sleeping)
        try:
            overdue.kill()
            assert rank.wait(30) < 0
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()
    assert overdue.stopped_by_limit == "time"
    assert "the ranks do not answer and are killed" in capsys.readouterr().err


def test_a_script_that_ends_by_os_exit_has_no_good_end(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, TRAINS + "import os\ntrain(2)\nos._exit(0)\n", "--on", "original")
    assert answer.code == 1
    assert "the process ended without a report" in answer.stderr.lower()
