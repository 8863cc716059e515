"""Steps are found where a script updates its parameters by hand, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.journeys import carried
from command import viaduct

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)
device = torch.device("cuda")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, x):
        return self.out(self.embed(x))


model = Model().to(device)
criterion = nn.CrossEntropyLoss()
for step in range(5):
    data = torch.arange(6).to(device) + step % 3
    model.zero_grad()
    loss = criterion(model(data), data)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    UPDATE
print("loss", loss.item())
"""
UPDATES = {
    "data": "for p in model.parameters():\n        p.data.add_(p.grad, alpha=-0.5)",
    "no_grad": "with torch.no_grad():\n        for p in model.parameters():\n            p -= 0.5 * p.grad",
    "foreach": "torch._foreach_add_([p.data for p in model.parameters()], [p.grad for p in model.parameters()], "
    "alpha=-0.5)",
    "copy": "for p in model.parameters():\n        p.data = p.data - 0.5 * p.grad",
}


@pytest.mark.parametrize(
    "update",
    ["data", *(pytest.param(name, marks=pytest.mark.slow) for name in ("copy", "no_grad", "foreach"))],
)
def test_an_update_by_hand_is_a_step(update: str, tmp_path: Path) -> None:
    journey = carried(tmp_path, SCRIPT.replace("UPDATE", UPDATES[update]), "--steps", "20")
    assert journey.code == 0, journey.said + journey.talk[-3000:]
    assert journey.record["verdict"] == "agrees"
    assert "5 losses of 5 steps, 3 gradients of the first step and 3 tensors" in journey.said


def test_a_script_that_only_computes_gradients_takes_no_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("UPDATE", "pass").replace('"cuda"', '"cpu"'))
    answer = viaduct("rehearse", "train.py", "--on", "npu", cwd=tmp_path)
    assert "no step was taken" in answer.stdout + answer.stderr


def test_updates_by_hand_stop_after_the_steps_that_were_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.replace("UPDATE", UPDATES["data"]).replace('"cuda"', '"cpu"').replace("range(5)", "range(500)")
    )
    answer = viaduct("rehearse", "train.py", "--on", "npu", "--steps", "3", cwd=tmp_path)
    assert "3 steps, stopped there" in answer.stdout + answer.stderr
