"""If a side does not repeat itself, nothing is proved, and the verdict is never "differs"."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import CarryResult, carry_copy, carry_copy_in_forks
from viaduct.carrying.repetition import can_run_beside
from viaduct.rehearsal.plan import Plan

SOURCE = """\
import os
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    x = torch.ones(3, 4).cuda()
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
COPY = SOURCE.replace("import torch\n", "import torch\nimport torch_npu\n").replace("cuda()", "npu()")
NOISE = "if step > 1:\n        x = x * int.from_bytes(os.urandom(2), 'big') / 999"


def carry(folder: Path, source: str, copy: str) -> CarryResult:
    return carry_copy(folder, source, copy, "--steps", "4")


def test_both_sides_are_run_twice_and_a_sound_pair_agrees(tmp_path: Path) -> None:
    result = carry(tmp_path, SOURCE, COPY)
    assert (result.code, result.record["verdict"]) == (0, "agrees"), result.stdout + result.stderr
    assert result.record["not_proved"] == []
    assert {side: repetition["equal"] for side, repetition in result.record["repeated"].items()} == {
        "original": True,
        "migrated": True,
    }


def test_noise_in_the_original_is_not_called_a_difference(tmp_path: Path) -> None:
    at = "    loss = net(x)"
    result = carry(tmp_path, SOURCE.replace(at, f"    {NOISE}\n{at}"), COPY.replace(at, f"    {NOISE}\n{at}"))
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert "Not proved: the original is not deterministic from step 2 (loss" in result.stdout
    assert "two runs of it with the same seed differ" in result.stdout
    assert [doubt["kind"] for doubt in result.record["not_proved"]][:2] == ["not deterministic"] * 2


@pytest.mark.slow
def test_noise_that_only_the_migrated_side_has_is_named_as_its_own(tmp_path: Path) -> None:
    at = "    loss = net(x)"
    result = carry(tmp_path, SOURCE, COPY.replace(at, f"    {NOISE}\n{at}"))
    assert result.record["verdict"] == "not proved", result.stdout + result.stderr
    assert "the migrated script is not deterministic from step 2" in result.stdout


def test_two_runs_are_made_at_a_time_only_where_they_cannot_meet(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")

    def plan(*arguments: str, ranks: int = 1) -> Plan:
        return Plan("original", "torch", str(script), arguments, str(tmp_path), str(tmp_path), ranks=ranks)

    assert not can_run_beside(plan(ranks=2))
    assert not can_run_beside(plan("--model_dir=/data/run"))
    script.write_text("import torch.distributed as d\nd.init_process_group('nccl')\n")
    assert not can_run_beside(plan())


CHECKS_ITS_WEIGHTS = """\
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(64, 1, bias=False).cuda()
nn.init.constant_(net.weight, 0.5)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.rand(16, 64, generator=torch.Generator().manual_seed(1)).cuda()
for step in range(3):
    loss = net(x).square().sum() / 16
    if step == 0 and net.weight[0, 0].item() != 0.5:
        raise RuntimeError("the weights are not as they were made")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_without_a_perturbed_run_a_difference_is_not_proved(tmp_path: Path) -> None:
    copy = CHECKS_ITS_WEIGHTS.replace("import torch\n", "import torch\nimport torch_npu\n", 1).replace("cuda", "npu")
    copy = copy.replace("net(x).square().sum() / 16", "(net(x).flip(0).square() / 16).sum()")
    result = carry_copy_in_forks(tmp_path, CHECKS_ITS_WEIGHTS, copy)
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert "in the last place failed (RuntimeError: the weights are not as they were made)" in result.stdout
