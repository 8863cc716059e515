"""An edit that never ran is not proved: it is listed on the terminal, in the record and on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import carry_copy

SOURCE = """\
import subprocess, sys
import torch
from torch import nn
torch.set_num_threads(1)
rate = 0.1 if len(sys.argv) < 9 else 0.7
net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=rate)


def evaluate(net):
    with torch.no_grad():
        return net(torch.ones(1, 4).cuda()).sum()


if len(sys.argv) > 1:
    raise SystemExit(net.cuda())
for step in range(30):
    loss = net(torch.ones(3, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 20:
        evaluate(net)
"""
COPY = SOURCE.replace("import torch\n", "import torch\nimport torch_npu\n").replace("cuda()", "npu()")


@pytest.mark.slow
def test_every_edit_that_ran_is_counted_and_the_others_are_listed(tmp_path: Path) -> None:
    result = carry_copy(tmp_path, SOURCE, COPY, "--steps", "4")
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    counts = {edit["text"]: edit["executed"] for edit in result.record["edits"]}
    assert counts == {
        "import torch_npu": 1,
        "net = nn.Linear(4, 2).npu()": 1,
        "return net(torch.ones(1, 4).npu()).sum()": 0,
        "raise SystemExit(net.npu())": 0,
        "loss = net(torch.ones(3, 4).npu()).square().mean()": 4,
    }
    assert "Not proved: what ran agrees, but 2 edits were never executed." in result.stdout
    assert "migrated train.py:13: return net(torch.ones(1, 4).npu()).sum()" in result.stdout
    assert "Try: Both runs were stopped after 4 steps, so nothing after the loop ran." in result.stdout
    page = (result.out / "report.html").read_text()
    assert "3 of 5 changed lines with code were executed" in page
    assert page.count("this edit was never executed") == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("else 0.7", "else 0.2", id="branch not taken"),
        pytest.param("step == 20", "step == 21", id="condition without effect", marks=pytest.mark.slow),
        pytest.param("len(sys.argv) < 9", "len(sys.argv) < 10", id="number without effect", marks=pytest.mark.slow),
    ],
)
def test_a_change_that_nothing_shows_is_not_reported_to_agree(old: str, new: str, tmp_path: Path) -> None:
    source = SOURCE.replace("raise SystemExit(net.cuda())", "raise SystemExit").replace("(1, 4).cuda()", "(1, 4)")
    copy = source.replace("import torch\n", "import torch\nimport torch_npu\n").replace("cuda()", "npu()")
    result = carry_copy(tmp_path, source, copy.replace(old, new), "--steps", "4")
    assert (result.code, result.record["verdict"]) == (3, "not proved"), result.stdout + result.stderr
    assert new in result.stdout
