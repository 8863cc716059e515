"""What explains a difference, and settings that differ although the runs agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carrying.carry_scripts import ON_THE_NPU, TORCH, carry_copy, carry_copy_in_forks, replace_once
from carrying.sample_observations import make_observation, no_drift
from viaduct.carrying.agreement import Agreement, judge, pair_observations
from viaduct.carrying.causes import (
    Explanation,
    explain,
    explain_ranks,
    find_changed_settings,
    find_ineffective_settings,
)
from viaduct.carrying.observations import Observations, Rank
from viaduct.comparison.records import Pair, Row, StoredTensor
from viaduct.rehearsal.inspection import Fact

SECOND = """\
import torch
from torch import nn

torch.set_num_threads(1)
first, second = nn.Linear(4, 4).cuda(), nn.Linear(4, 4).cuda()
one = torch.optim.SGD(first.parameters(), lr=0.1)
two = torch.optim.Adam(second.parameters(), lr=0.1)
for step in range(9):
    for network, optimizer in ((first, one), (second, two)):
        loss = network(torch.ones(2, 4).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_equal_scripts_have_no_such_note_and_long_runs_none_of_optimizers(tmp_path: Path) -> None:
    copy = SECOND.replace("import torch\n", "import torch\nimport torch_npu\n", 1).replace(".cuda()", ".npu()")
    result = carry_copy(tmp_path, SECOND, copy, "--steps", "4")
    assert result.code == 0, result.stdout + result.stderr
    assert "Note" not in result.stdout
    assert result.record["without_effect"] == []


@pytest.mark.slow
def test_what_differs_without_effect_is_reported(tmp_path: Path) -> None:
    copy = replace_once(replace_once(ON_THE_NPU, "momentum=0.9", "momentum=0.99"), "gamma=0.5", "gamma=0.1")
    result = carry_copy(tmp_path, TORCH, copy, "--steps", "1")
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert "Not proved: 2 values were set differently, without a known effect in 1 step: " in result.stdout
    found = {effect["what"]: (effect["left"], effect["right"]) for effect in result.record["without_effect"]}
    assert found == {"momentum": (0.9, 0.99), "gamma": (0.5, 0.1)}
    assert "momentum is 0.9 in the original and 0.99 after the migration" in result.stdout
    assert "without a known effect in 1 step" in (result.out / "report.html").read_text()
    assert "1 loss, exactly equal" in result.stdout


def test_an_optimizer_that_took_no_step_is_reported(tmp_path: Path) -> None:
    copy = SECOND.replace("import torch\n", "import torch\nimport torch_npu\n", 1).replace(".cuda()", ".npu()")
    result = carry_copy(tmp_path, SECOND, copy, "--steps", "1")
    assert result.code == 0, result.stdout + result.stderr
    assert (
        "Note: Optimizer 1 (Adam) took no step in 1 step (migrated train.py:8), on at least one side" in result.stdout
    )


@pytest.mark.slow
def test_a_schedule_that_no_longer_steps_is_reported_though_no_step_follows(tmp_path: Path) -> None:
    source = SECOND.replace("for step", "schedule = torch.optim.lr_scheduler.StepLR(one, 1)\nfor step").replace(
        "range(9)", "range(1)"
    )
    source += "schedule.step()\n"
    copy = source.replace("import torch\n", "import torch\nimport torch_npu\n", 1).replace(".cuda()", ".npu()")
    result = carry_copy_in_forks(tmp_path, source, replace_once(copy, "\nschedule.step()\n", "\n"))
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert "optimizer 0 group 0 at the end: lr is 0.01 in the original and 0.1 after the migration" in result.stdout


def op(name: str, value: object, line: int) -> Fact:
    return Fact("op", name, {"type": "Const", "value": value}, ("train.py", line))


def test_constants_that_gradients_take_from_shapes_are_not_made_differently() -> None:
    names = ("gradients/Mean_grad/Const", "training/Adam/gradients/gradients/loss/Mean_grad/Const_1", "Momentum/rate")
    left, right = [op(name, 0, 1) for name in names], [op(name, 16, 1) for name in names]
    assert [other.name for other in find_changed_settings(left, right)] == ["Momentum/rate"]


def test_of_operators_only_lines_that_nobody_expects_are_reported() -> None:
    left, right = (make_observation(facts=[op("a", value, 1), op("b", value, 2)]) for value in (1, 2))
    assert [other.name for other in find_ineffective_settings(left, right, {("train.py", 2)})] == ["b"]


def test_an_input_that_could_not_be_compared_is_not_reported_to_differ() -> None:
    stored = StoredTensor("network", role="input", fault="cut short")
    row = Row(Pair(0, stored, stored, "network", "network", "name"), None, "refused", "cut short")
    left, right = make_observation(), make_observation(gradients={"w": np.full(4, 2, np.float32)})
    found = explain(judge(pair_observations(left, right)), left, right, replace(no_drift(), rows=(row,)), "npu")
    assert found.remarks[0] == "An input of network could not be compared: cut short."


def test_gradients_that_have_no_factor_are_not_reported_to_be_1_times_those() -> None:
    other = make_observation(gradients={"w": np.full(4, 1.0005, np.float32)})
    found = explain(judge(pair_observations(make_observation(), other)), make_observation(), other, no_drift(), "npu")
    assert not any("times" in remark for remark in found.remarks)
    twice = make_observation(gradients={"w": np.full(4, 2, np.float32)})
    found = explain(judge(pair_observations(make_observation(), twice)), make_observation(), twice, no_drift(), "npu")
    assert found.remarks == ["The gradients of rank 0 are 2 times those of the original."]


def test_ranks_without_gradients_are_not_said_to_apply_the_same_or_different_ones() -> None:
    gradients = [{"w": np.full(4, value, np.float32)} for value in (1, 2)]
    equal, different, none = ([gradients[0]] * 2, gradients, [{}, {}])

    def find_remarks(left: list[Any], right: list[Any]) -> list[str]:
        explanation, sides = Explanation(""), []
        for side in (left, right):
            ranks = [Rank(number, gradients=arrays) for number, arrays in enumerate(side)]
            sides.append(Observations(ranks))
        explain_ranks(explanation, Agreement("differ", []), sides[0], sides[1])
        return explanation.remarks

    assert find_remarks(none, different) == find_remarks(equal, none) == find_remarks(equal, equal) == []
    assert "probably the gradients are not averaged" in find_remarks(equal, different)[0]
    other_shape = [gradients[0], {"w": np.ones(3, np.float32)}]  # of a parameter that the ranks share out
    assert find_remarks(equal, other_shape) == find_remarks(equal, different)


def test_rank_0_is_not_said_to_agree_if_it_took_no_step() -> None:
    def find_remarks(*numbers: int) -> list[str]:
        explanation = Explanation("")
        left = Observations([Rank(number, [[1.0]]) for number in numbers])
        right = Observations([Rank(number, [[1.0 + (number == 2)]]) for number in numbers])
        explain_ranks(explanation, judge(pair_observations(left, right)), left, right)
        return explanation.remarks

    assert find_remarks(1, 2) == []
    assert find_remarks(0, 2)[0].startswith("Rank 0 begins as in the original, but not rank 2")


def test_a_gradient_is_not_said_to_differ_after_an_equal_loss_that_was_not_recorded() -> None:
    other = make_observation(gradients={"w": np.full(4, 2, np.float32)})
    found = explain(judge(pair_observations(make_observation(), other)), make_observation(), other, no_drift(), "npu")
    assert "in the first step, though its loss agrees" in found.headline
    left = make_observation(losses=[[], [1.0]])
    right = make_observation(losses=[[], [1.0]], gradients={"w": np.full(4, 2, np.float32)})
    found = explain(judge(pair_observations(left, right)), left, right, no_drift(), "npu")
    assert found.headline == "They differ in the first step: the gradient of w is off by 100.00%."
