"""Steps are found where a script updates its parameters by hand, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from carrying.carry_scripts import carry_script
from forked_viaduct import viaduct
from rehearsal.rehearsing import rehearse_script

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
    result = carry_script(tmp_path, SCRIPT.replace("UPDATE", UPDATES[update]), "--steps", "20")
    assert result.code == 0, result.stdout + result.stderr[-3000:]
    assert result.record["verdict"] == "agrees"
    assert "5 losses of 5 steps, 3 gradients of the first step and 3 tensors" in result.stdout


BEGIN = """\
import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)
F = nn.functional
x = torch.randn(32, 4, generator=torch.Generator().manual_seed(3))
y = (x.sum(1) > 0).long()
model = nn.Linear(4, 2)
"""
# name: (the script, the steps that are found, names of what is trained)
WITHOUT_A_MODULE = {
    "plain_tensors": (
        "w = torch.randn(4, 2, requires_grad=True)\n"
        "for step in range(5):\n"
        "    F.cross_entropy(x @ w, y).backward()\n"
        "    with torch.no_grad():\n"
        "        w -= 0.1 * w.grad\n"
        "        w.grad = None\n",
        5,
        {"tensor.0"},
    ),
    "functional": (
        "params = [torch.randn(4, 2).requires_grad_(), torch.zeros(2).requires_grad_()]\n"
        "for step in range(5):\n"
        "    grads = torch.autograd.grad(F.cross_entropy(x @ params[0] + params[1], y), params)\n"
        "    params = [(p - 0.1 * g).detach().requires_grad_() for p, g in zip(params, grads)]\n",
        4,  # nothing shows what became of the last gradients
        {"tensor.0", "tensor.1"},
    ),
    "torch_func": (
        "from torch.func import functional_call, grad\n"
        "params = {name: value.detach() for name, value in model.named_parameters()}\n"
        "def loss(params):\n"
        "    return F.cross_entropy(functional_call(model, params, (x,)), y)\n"
        "for step in range(5):\n"
        "    grads = grad(loss)(params)\n"
        "    params = {name: value - 0.1 * grads[name] for name, value in params.items()}\n",
        4,
        {"tensor.0", "tensor.1"},
    ),
    "autograd_grad": (
        "for step in range(5):\n"
        "    grads = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))\n"
        "    with torch.no_grad():\n"
        "        for p, g in zip(model.parameters(), grads):\n"
        "            p.sub_(0.1 * g)\n",
        5,
        {"weight", "bias"},
    ),
    "numpy": (
        "for step in range(5):\n"
        "    model.zero_grad()\n"
        "    F.cross_entropy(model(x), y).backward()\n"
        "    for p in model.parameters():\n"
        "        p.data.copy_(torch.from_numpy(p.detach().numpy() - 0.1 * p.grad.numpy()))\n",
        5,
        {"weight", "bias"},
    ),
    "two_passes_a_step": (
        "for step in range(5):\n"
        "    model.zero_grad()\n"
        "    for part in range(2):\n"
        "        F.cross_entropy(model(x[part::2]), y[part::2]).backward()\n"
        "    with torch.no_grad():\n"
        "        for p in model.parameters():\n"
        "            p -= 0.1 * p.grad\n",
        5,
        {"weight", "bias"},
    ),
}


@pytest.mark.parametrize(
    "name", ["functional", *(pytest.param(n, marks=pytest.mark.slow) for n in WITHOUT_A_MODULE if n != "functional")]
)
def test_what_is_trained_is_found_from_the_loss(name: str, tmp_path: Path) -> None:
    source, steps, trained = WITHOUT_A_MODULE[name]
    answer = rehearse_script(tmp_path, BEGIN + source, "--on", "npu")
    assert (answer.code, answer.summary["steps"]) == (0, steps), answer.stderr
    assert all(answer.summary["losses"])
    with np.load(answer.record / "observed" / "rank-0" / "gradients.npz") as gradients:
        assert set(gradients.files) == trained


def test_a_script_that_only_computes_gradients_takes_no_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("UPDATE", "pass").replace('"cuda"', '"cpu"'))
    answer = viaduct("rehearse", "train.py", "--on", "npu", cwd=tmp_path)
    assert "no step was recognised" in answer.stdout + answer.stderr


def test_updates_by_hand_stop_after_the_steps_that_were_requested(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.replace("UPDATE", UPDATES["data"]).replace('"cuda"', '"cpu"').replace("range(5)", "range(500)")
    )
    answer = viaduct("rehearse", "train.py", "--on", "npu", "--steps", "3", cwd=tmp_path)
    assert "3 steps, stopped there" in answer.stdout + answer.stderr
