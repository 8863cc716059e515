"""A rank that hangs is named, with where it stands."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from training.ranks import run_on_ranks
from training.test_distributed import TINY, run_recipe
from training.tiny_runs import change_part
from viaduct.errors import LostRank
from viaduct.training.callbacks import Callback
from viaduct.training.loop import Training
from viaduct.training.watchdog import Position, Pulse, explain_hang, find_ranks_behind

# Waiting for what does not come takes its time: `make test-all`.
pytestmark = pytest.mark.slow


class Hang(Callback):
    """Rank 1 falls asleep after its third step."""

    every_rank = True

    def step(self, training: Training) -> None:
        if training.step == 3 and training.group.rank == 1:
            sleep_for_ever()


def sleep_for_ever() -> None:
    time.sleep(10_000)


class Stop(Hang):
    def step(self, training: Training) -> None:
        if training.step == 3 and training.group.rank == 1:
            time.sleep(0.5)  # long enough to have said where it is
            os.kill(os.getpid(), signal.SIGSTOP)


IMPATIENT = change_part(TINY, "parallel", hang_seconds=1.0)


def test_a_rank_that_hangs_is_named_with_its_stack(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = run_on_ranks(3, run_recipe, run, replace(IMPATIENT, callbacks=(Hang(),)))
    assert [result.exit_code for result in ended] == [LostRank.exit_code] * 3
    assert "rank 1 hangs: after 1 s without progress it has not come past the end of step 3." in ended[0].output
    assert "sleep_for_ever" in ended[0].output
    assert "rank 1 hangs at the end of step 3" in ended[1].output
    assert "sleep_for_ever" in ended[1].output
    assert "rank 1 hangs" not in ended[2].output
    assert "rank 1 hangs" in (run / "log.txt").read_text()


def test_a_process_that_does_not_answer_is_named(tmp_path: Path) -> None:
    ended = run_on_ranks(2, run_recipe, tmp_path / "run", replace(IMPATIENT, callbacks=(Stop(),)), silent=(1,))
    assert ended[0].exit_code == LostRank.exit_code
    assert "it has not come past the end of step 3; its stack did not arrive." in ended[0].output


class Slow(Callback):
    every_rank = True

    def step(self, training: Training) -> None:
        time.sleep(0.6)


def test_a_slow_rank_is_left_alone(tmp_path: Path) -> None:
    patient = change_part(
        TINY, "parallel", hang_seconds=5.0
    )  # less than the run takes, more than any step on a busy machine
    ended = run_on_ranks(2, run_recipe, tmp_path / "run", replace(patient, callbacks=(Slow(),)))
    assert [result.error for result in ended] == [None, None]
    assert "hangs" not in ended[0].output


def test_the_ranks_with_the_lowest_count_are_behind() -> None:
    signs = {0: Position(9, "backward", 3), 1: Position(8, "forward", 3), 2: Position(9, "backward", 3)}
    assert find_ranks_behind(signs) == [1]
    assert find_ranks_behind(dict.fromkeys(range(3), signs[0])) == []
    lines = list(explain_hang(signs, [], {}, 5))
    assert lines == [
        "all ranks hang at backward of step 3, for 5 s: none is behind, so check the network between them."
    ]

    behind = list(explain_hang(signs, [1, 2], {1: "", 2: ""}, 5))
    assert behind[-1] == "The other ranks wait for them; all 3 end, so that a launcher can start them again."


def test_a_pulse_counts_the_points_that_it_has_passed() -> None:
    pulse = Pulse()
    pulse.reach_point("forward", 1)
    pulse.reach_point("backward", 1)
    assert (pulse.count, pulse.point, pulse.step) == (2, "backward", 1)
    assert time.monotonic() - pulse.reached_at == pytest.approx(0, abs=60)
