"""Class numbers as int32: advice, and done when asked for."""

from __future__ import annotations

import pytest

from migration.checking import check_rewrite, check_says

HEAD = "import torch\nimport torch_npu\nimport torch.nn.functional as F\n"
STEP = HEAD + "def step(model, x, y, device):\n    y = y.{}\n    {}return F.cross_entropy(model(x), y)\n"


def test_it_is_advice_unless_requested() -> None:
    check_says("int32_targets", STEP.format("npu()", ""), "advice", "--int32-targets")


@pytest.mark.parametrize("move", ["npu(non_blocking=True)", "to(device)", "to(device=device)"])
def test_the_cast_comes_before_the_move(move: str) -> None:
    check_rewrite(
        "int32_targets", STEP.format(move, ""), STEP.format(f"to(torch.int32).{move}", ""), int32_targets=True
    )


def test_a_criterion_is_known_through_parameters_and_moves() -> None:
    source = (
        HEAD + "def train(model, criterion, x, y):\n    x, y = x.npu(), {}.npu()\n    return criterion(model(x), y)\n"
        "criterion = torch.nn.CrossEntropyLoss().npu()\ntrain(1, criterion, 2, 3)\n"
    )
    check_rewrite("int32_targets", source.format("y"), source.format("y.to(torch.int32)"), int32_targets=True)
