"""The speed of both sides on the CPU is reported with its noise, and does not change the verdict."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from carrying.carry_scripts import CarryResult
from carrying.forked_carry import carry_with_forks
from viaduct.carrying.observations import Observations, Rank, StepEnd
from viaduct.carrying.speed import Speed, describe_speed, measure_speed


def run_with(*intervals: float, finished: bool = True, busy: float = 1.0) -> Any:
    """`busy`: the part of the time in which the processor works for it."""
    ends = [StepEnd(100.0, 0.0)]
    for interval in intervals:
        ends.append(StepEnd(ends[-1].clock + interval, ends[-1].processor + interval * busy))
    return SimpleNamespace(observations=Observations([Rank(0, step_ends=ends)]), is_finished=finished)


def carried_with(original: list[Any], migrated: list[Any]) -> Any:
    again = {
        "original": SimpleNamespace(second_run=original[1]),
        "migrated": SimpleNamespace(second_run=migrated[1]),
    }
    return SimpleNamespace(
        original=original[0], migrated=migrated[0], repetitions=again, request=SimpleNamespace(lang="en")
    )


def test_the_speed_is_the_median_so_that_one_slow_step_does_not_count() -> None:
    steady, slow_once = run_with(*[0.1] * 5), run_with(0.1, 0.1, 9.0, 0.1, 0.1)
    speed = measure_speed(carried_with([steady, slow_once], [steady, steady]))
    assert speed is not None
    assert [round(rate, 6) for rate in (*speed.original, *speed.migrated)] == [10.0] * 4
    assert not speed.is_beyond_noise


def test_too_few_steps_and_a_run_that_failed_give_no_speed() -> None:
    short, long = run_with(0.1, 0.1), run_with(*[0.1] * 5)
    assert measure_speed(carried_with([long, long], [long, short])) is None
    assert measure_speed(carried_with([long, long], [run_with(*[0.1] * 5, finished=False), long])) is None


def test_a_ratio_counts_only_beyond_what_two_runs_of_a_side_differ_by() -> None:
    noisy = Speed((10.0, 14.0), (7.0, 7.2), 9, 0.6)
    assert round(noisy.noise, 6) == 0.4
    assert not noisy.is_beyond_noise
    assert Speed((10.0, 10.1), (5.0, 5.1), 9, 0.5).is_beyond_noise
    assert not Speed((10.0,), (10.4,), 9, 1.0).is_beyond_noise


def test_a_machine_that_was_busy_while_one_side_ran_is_noise() -> None:
    alone, beside = run_with(*[0.1] * 5), run_with(*[0.4] * 5, busy=0.25)
    speed = measure_speed(carried_with([beside, beside], [alone, alone]))
    assert speed is not None
    assert round(speed.ratio, 6) == 4.0
    assert round(speed.processor_ratio, 6) == 1.0
    assert round(speed.noise, 6) == 3.0
    assert not speed.is_beyond_noise


def test_the_sentence_says_whose_speed_it_is() -> None:
    result: Any = SimpleNamespace(speed=Speed((10.0, 10.2), (5.0, 5.1), 9, 0.5), request=SimpleNamespace(lang="en"))
    assert describe_speed(result) == (
        "Speed",
        "10 and 10.2 steps/s before, 5 and 5.1 after: a ratio of 0.50, beyond twice the noise of 5%. It is the CPU's "
        "speed.",
    )
    result.speed = replace(result.speed, migrated=(9.9, 10.3), processor_ratio=1.0)
    assert "a ratio of 1.00, within twice the noise of 5%" in describe_speed(result)[1]  # type: ignore[index]


SOURCE = """\
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    loss = net(torch.ones(3, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_carry_leaves_its_speed_and_a_table_for_the_figures_of_the_card(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    result = CarryResult(carry_with_forks(tmp_path, "train.py", "--out", "carried"), tmp_path / "carried")
    assert result.record["verdict"] == "agrees", result.stdout + result.stderr
    speed = result.record["speed"]
    assert len(speed["original"]) == len(speed["migrated"]) == 2
    assert min(speed["original"] + speed["migrated"]) > 0
    assert speed["intervals"] == 7
    assert "  Speed: " in result.stdout
    with open(result.out / "baseline.csv", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header[-2:] == ["original on its own device", "migrated on the NPU"]
    assert all(row[-2:] == ["", ""] for row in rows)
    figures = {row[0]: row[2:4] for row in rows if row[1] != "samples/s"}
    assert figures["loss of step 7"][0] == figures["loss of step 7"][1] != ""
    assert all(float(rate) > 0 for rate in figures["speed"])
    page = (result.out / "report.html").read_text()
    assert "Accuracy and speed" in page
    assert "migrated on the NPU" in page
