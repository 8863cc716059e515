"""Steps are the primary optimizer's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from viaduct.scripts.steps import OptimizerSteps, Watcher


class Notes(Watcher):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_step_begin(self, step: int) -> None:
        self.seen.append(f"begin {step}")

    def on_update_begin(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        self.seen.append(f"update {step}")

    def on_step_end(self, step: int) -> None:
        self.seen.append(f"end {step}")


def optimizer(**options: Any) -> torch.optim.Optimizer:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], 0.1, **options)


def test_a_step_ends_with_the_optimizers_step() -> None:
    notes, sgd = Notes(), optimizer()
    with OptimizerSteps(notes):
        sgd.step()
        sgd.step()
    sgd.step()
    assert notes.seen == ["begin 0", "update 0", "end 0", "begin 1", "update 1", "end 1", "begin 2"]


def test_a_second_optimizer_takes_part_and_ends_nothing() -> None:
    notes, first, second = Notes(), optimizer(), optimizer()
    with OptimizerSteps(notes) as steps:
        for _ in range(2):
            first.step()
            second.step()
    assert steps.step == 2
    assert notes.seen.count("update 1") == 2


def test_an_optimizer_within_an_optimizer_counts_once() -> None:
    inner = optimizer()

    class Outer(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:
            inner.step()
            inner.step()

    outer = Outer([nn.Parameter(torch.ones(1))], {})
    with OptimizerSteps(Notes()) as steps:
        outer.step()
        outer.step()
    assert steps.step == 2


def test_a_step_that_failed_is_not_counted_and_does_not_confuse() -> None:
    class Moody(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> None:
            if self.fails:
                raise ValueError

    moody = Moody([nn.Parameter(torch.ones(1))], 0.1)
    with OptimizerSteps(Notes()) as steps:
        try:
            moody.step()
        except ValueError:
            moody.fails = False
        moody.step()
    assert steps.step == 1


def test_optimizers_that_are_not_relevant_are_ignored() -> None:
    mine, other = optimizer(), optimizer()
    with OptimizerSteps(Notes(), is_relevant=lambda one: one is mine) as steps:
        other.step()
        mine.step()
    assert steps.step == 1


class Patient(Notes):
    """Knows of a second optimizer."""

    def await_other_optimizers(self, step: int, optimizer: torch.optim.Optimizer) -> bool:
        return True


def test_a_step_waits_for_the_optimizers_that_follow_until_a_pass_begins() -> None:
    notes, first, second = Patient(), optimizer(), optimizer()
    with OptimizerSteps(notes) as steps:
        for _ in range(2):
            first.step()
            second.step()
            steps.end_waiting_step()
    assert notes.seen == [
        *("begin 0", "update 0", "update 0", "end 0"),
        *("begin 1", "update 1", "update 1", "end 1", "begin 2"),
    ]


def test_a_pass_in_the_closure_of_a_second_optimizer_ends_nothing() -> None:
    notes, first, second = Patient(), optimizer(), optimizer()
    with OptimizerSteps(notes) as steps:
        first.step()
        second.step(lambda: float(steps.end_waiting_step()))
        assert steps.step == 0
        assert steps.end_waiting_step()
    assert notes.seen == ["begin 0", "update 0", "update 0", "end 0", "begin 1"]


def test_the_primary_s_next_step_the_loop_or_the_end_also_ends_a_step_that_waits() -> None:
    notes, first = Patient(), optimizer()
    with OptimizerSteps(notes) as steps:
        first.step()
        first.step()
        steps.advance_by_hand()
        first.step()
        steps.end_waiting_step()
        steps.advance_by_hand()  # the pass has ended it
        assert steps.step == 3
        first.step()
    assert steps.step == 4
    assert notes.seen[-1] == "end 3"
