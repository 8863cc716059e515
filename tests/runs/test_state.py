"""States of runs: none is claimed that files and lock do not show."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest

from runs.sample_runs import make_run
from viaduct.runs.facts import RunFacts
from viaduct.runs.listing import list_runs, open_run
from viaduct.runs.state import is_locked, set_state
from viaduct.training.rundir import take_lock


def state_of(run: Path) -> tuple[str, str]:
    found = open_run(run)
    return found.state, found.reason


def write_ending(run: Path, outcome: str, reason: str) -> None:
    record = {"outcome": outcome, "step": 100, "steps": 600, "reason": reason, "time": 1.0}
    (run / "ending.json").write_text(json.dumps(record))


def test_a_run_is_running_only_while_its_lock_is_held(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    with (run / ".lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state_of(run) == ("running", "process 4711 on here")
    assert state_of(run)[0] == "crashed"


def test_a_finished_run_that_is_continued_is_running(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert state_of(run) == ("finished", "")
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert state_of(run)[0] == "running"


def test_testing_a_lock_leaves_it_free(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        assert is_locked(str(tmp_path)) is False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_locked(str(tmp_path)) is True


def test_a_run_that_was_made_longer_has_not_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    record = json.loads((run / "recipe.json").read_text())
    record["recipe"]["steps"] = 900
    (run / "recipe.json").write_text(json.dumps(record))
    assert state_of(run)[0] == "crashed"


def test_a_clean_stop_is_interrupted_with_the_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    write_ending(run, "interrupted", "SIGTERM")
    assert state_of(run) == ("interrupted", "SIGTERM")


def test_a_trial_that_a_search_gave_up_is_pruned(tmp_path: Path) -> None:
    run = make_run(tmp_path / "trial-001", done=100, finished=False)
    write_ending(run, "interrupted", "SIGTERM")
    (run / "trial.json").write_text('{"trial": 1, "state": "running", "reason": ""}')
    assert state_of(run)[0] == "interrupted"
    (run / "trial.json").write_text('{"trial": 1, "state": "pruned", "reason": "behind the median"}')
    assert state_of(run) == ("pruned", "behind the median")


def test_an_error_is_a_crash_with_its_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    write_ending(run, "failed", "the loss became nan at step 101")
    assert state_of(run) == ("crashed", "the loss became nan at step 101")


def test_a_run_without_any_ending_was_killed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    state, reason = state_of(run)
    assert state == "crashed"
    assert "SIGKILL" in reason


def test_a_run_with_a_damaged_summary_is_not_said_to_have_crashed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "checkpoints" / "step-600").mkdir(parents=True)
    (run / "summary.json").write_bytes(b"\0" * 100)
    expected = "summary.json cannot be read, so that it is not known whether the run finished; "
    expected += "its metrics reach step 600 of 600, and it has a checkpoint of step 600"
    assert state_of(run) == ("unknown", expected)
    assert open_run(run).damage == ["summary.json cannot be read"]
    (run / "summary.json").unlink()
    state, reason = state_of(run)
    assert state == "unknown"
    assert reason.startswith("it has model.safetensors, which is written after the last step, but no summary.json; ")
    write_ending(run, "interrupted", "SIGTERM")  # of the run's continuation
    assert state_of(run) == ("interrupted", "SIGTERM")


@pytest.mark.parametrize("content", ["", "{", '{"outcome": "failed"}'])
def test_a_run_with_a_damaged_ending_is_not_said_to_have_been_killed(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    (run / "ending.json").write_text(content)
    state, reason = state_of(run)
    assert state == "unknown"
    assert reason.startswith("it was stopped or failed: ending.json, which says why, cannot be read; ")
    assert open_run(run).damage == ["ending.json cannot be read"]


@pytest.mark.parametrize("content", [b"\0" * 100 + b"\n", None])
def test_a_run_with_damaged_metrics_is_not_said_to_have_never_begun(tmp_path: Path, content: bytes | None) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    (run / "metrics.jsonl").unlink()
    if content is None:  # a link is not opened
        (tmp_path / "elsewhere").write_text("x")
        (run / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    else:
        (run / "metrics.jsonl").write_bytes(content)
    from_files, from_index = list_runs([tmp_path]).runs, list_runs([tmp_path]).runs
    for found in (open_run(run), *from_files, *from_index):
        assert found.state == "unknown"
        assert found.reason.startswith("metrics.jsonl cannot be read; ")


def test_a_copy_without_the_lock_is_not_said_to_have_been_killed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    (run / ".lock").unlink()  # as after `cp -r run/* copy`
    state, reason = state_of(run)
    assert state == "unknown"
    assert reason.startswith("it has no summary.json, ending.json or .lock: perhaps a part of a run was copied; ")


def test_a_loss_that_was_lost_is_not_said_to_have_ended_a_killed_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "log", "step": 110, "loss": null}\n')
    state, reason = state_of(run)
    assert state == "crashed"
    assert reason.startswith("no ending was written: probably the process was killed")
    assert reason.endswith("; the loss was NaN or infinite at step 110")


def test_an_older_run_counts_as_interrupted_if_its_last_step_was_saved(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False, provenance=None)
    assert state_of(run)[0] == "crashed"
    (run / "checkpoints" / "step-100").mkdir(parents=True)
    assert state_of(run) == ("interrupted", "saved after step 100")


def test_a_run_without_a_step_has_never_begun(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=0, finished=False)
    assert state_of(run)[0] == "never begun"


def test_a_loss_that_was_lost_is_the_reason_of_an_older_crash(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False, provenance=None)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "log", "step": 110, "loss": null}\n')
    assert state_of(run) == ("crashed", "the loss was NaN or infinite at step 110")


def test_a_lock_that_may_not_be_opened_leaves_the_state_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", done=100, finished=False)
    (run / ".lock").write_text("")

    def refuse(path: str, *rest: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("viaduct.runs.state.os.open", refuse)
    assert is_locked(str(run)) is None
    found = open_run_with_state(run)
    assert found == ("unknown", "its .lock cannot be opened or tested: a process may be at work")


def open_run_with_state(run: Path) -> tuple[str, str]:
    """Judge facts that were made by hand: nothing may be opened here."""
    facts = RunFacts(str(run), "run", "made_up", {}, steps=100)
    set_state(facts)
    return facts.state, facts.reason


def test_a_run_whose_lock_is_tested_while_it_starts_starts(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as looking, (tmp_path / ".lock").open("w") as starting:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.03, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        take_lock(starting)
        assert is_locked(str(tmp_path)) is True
