"""Ends of a script's process: after its steps or at a limit, with a record of the cause."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from rehearsal.rehearsing import TRAINS, rehearse_script


def test_a_script_is_stopped_after_its_steps_and_cleans_up(tmp_path: Path) -> None:
    source = TRAINS + (
        "import atexit\n"
        "atexit.register(print, 'atexit')\n"
        "try:\n    train(10**9)\n"
        "except Exception:\n    print('caught')\n"
        "finally:\n    print('finally')\n"
        "print('never')\n"
    )
    answer = rehearse_script(tmp_path, source, "--on", "original", "--steps", "3", "--seed", "5")
    assert answer.code == 0, answer.stderr
    assert answer.stdout.split() == ["finally", "atexit"]
    assert answer.summary["steps"] == 3
    assert len(answer.summary["losses"]) == 3
    assert "this executes train.py, with your rights" in answer.stderr
    assert "3 steps, stopped there" in answer.stderr


SWALLOWS = TRAINS + "while True:\n    try:\n        train(10**9)\n    except BaseException:\n        pass\n"


def test_a_script_that_catches_its_stop_is_ended_and_its_further_steps_do_not_count(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, SWALLOWS, "--on", "original", "--steps", "3", "--timeout", "60", "--seed", "1")
    assert answer.code == 0, answer.stderr
    assert "3 steps, stopped there" in answer.stderr
    assert "it is ended after 10 s" in answer.stderr
    assert (answer.summary["steps"], len(answer.summary["losses"]), answer.summary["bound"]) == (3, 3, "")
    assert 10 < answer.summary["seconds"] < 30
    (tmp_path / "plain").mkdir()
    plain = rehearse_script(tmp_path / "plain", TRAINS + "train(3)\n", "--on", "original", "--seed", "1")
    assert plain.summary["losses"] == answer.summary["losses"]
    left, right = (numpy.load(record.record / "observed" / "rank-0" / "weights.npz") for record in (answer, plain))
    assert all((left[name] == right[name]).all() for name in ("weight", "bias"))


@pytest.mark.slow
def test_a_script_that_catches_the_end_of_its_time_is_reported_as_stopped(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, SWALLOWS, "--on", "original", "--timeout", "1")
    assert (answer.code, answer.summary["bound"]) == (1, "time")
    assert answer.summary["steps"] > 0
    assert 10 < answer.summary["seconds"] < 30
    assert "stopped by the time limit" in answer.stderr
    assert "no step was recognised" not in answer.stderr


def test_a_loop_without_end_is_stopped_where_it_stands(tmp_path: Path) -> None:
    source = TRAINS + "def wait():\n    while True:\n        pass\n\n\nprint('waits')\nwait()\n"
    answer = rehearse_script(tmp_path, source, "--on", "original", "--timeout", "0.5")
    assert answer.code == 1
    assert "did not end within 0.5 s" in answer.stderr
    assert "in wait\n    while True" in answer.stderr or "in wait\n    pass" in answer.stderr
    assert answer.summary["bound"] == "time"


@pytest.mark.slow
def test_a_script_beyond_its_memory_limit_is_stopped(tmp_path: Path) -> None:
    source = TRAINS + "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**24)\n    time.sleep(0.01)\n"
    answer = rehearse_script(tmp_path, source, "--on", "original", "--memory", "700M", "--timeout", "60")
    assert answer.code == 1
    assert answer.summary["bound"] == "memory"
    assert "MiB of 700 allowed" in answer.stderr
