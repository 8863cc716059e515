"""Class indices as int32: advised, and with an option cast."""

from __future__ import annotations

import pytest

from migration.checking import check_noop, check_rewrite, check_says

HEAD = "import torch\nimport torch_npu\nimport torch.nn.functional as F\n"
STEP = HEAD + "def step(model, x, y, device):\n    y = y.{}\n    {}return F.cross_entropy(model(x), y)\n"


def test_the_cast_is_only_advised_unless_requested() -> None:
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


@pytest.mark.parametrize(
    "source",
    [
        HEAD + "def step(model, x, y):\n    y = y.npu()\n    return F.mse_loss(model(x), y)\n",
        HEAD + "def step(model, x, y):\n    return F.cross_entropy(model(x), y)\n",
        STEP.format("to(torch.int32)", ""),
        STEP.format("to(torch.int32).npu()", ""),
        STEP.format("npu()", "picked = x[y]\n    "),
        STEP.format("npu()", "hot = F.one_hot(y)\n    "),
        STEP.format("npu()", "part = x.gather(1, y.view(-1, 1))\n    "),
        STEP.format("npu()", "at = y.unsqueeze(1)\n    part = x.gather(1, at)\n    "),
        STEP.format("npu()", "dice(x, y)\n    ") + "def dice(a, b):\n    return F.one_hot(b.clamp(max=3))\n",
        STEP.format("npu()", "dice(b=y, a=x)\n    ")
        + "def dice(a, b):\n    return pick(b)\ndef pick(c):\n    return w[c]\n",
        STEP.format("npu()", "extra(x, y)\n    ")
        + "class Dice(torch.nn.Module):\n    def forward(self, a, b):\n        return F.one_hot(b)\nextra = Dice()\n",
        STEP.format("npu()", "seen.update(x, y)\n    ")
        + "class Seen:\n    def update(self, a, b):\n        self.n[b] += 1\nseen = Seen()\n",
    ],
)
def test_other_tensors_and_targets_used_as_an_index_stay(source: str) -> None:
    check_noop("int32_targets", source, int32_targets=True)


def test_an_index_in_another_file_counts_as_well() -> None:
    source = "from losses import dice\n" + STEP.format("npu()", "dice(x, y)\n    ")
    others = {"losses.py": "import torch\ndef dice(a, b):\n    return torch.nn.functional.one_hot(b)\n"}
    check_noop("int32_targets", source, int32_targets=True, others=others)


@pytest.mark.parametrize("use", ["valid = x[y != 255]", "same(x, y)", "print(y.shape)"])
def test_a_comparison_is_no_index(use: str) -> None:
    source = STEP + "def same(a, b):\n    return (a.argmax(1) == b).sum()\n"
    before, after = (source.format(move, f"{use}\n    ") for move in ("npu()", "to(torch.int32).npu()"))
    check_rewrite("int32_targets", before, after, int32_targets=True)
