"""torch's optimizers without torch's compiler: the same bits, and a second sooner."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from viaduct.training import torch_optimizers

BEGIN = """
import sys
import torch
from viaduct.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("imported:", "torch._dynamo" in sys.modules)
"""


def test_a_run_that_compiles_nothing_does_not_import_the_compiler(tmp_path: Path) -> None:
    words = ["train", "shapes_taster", "--device", "cpu", "--steps", "2", "--batch", "8", "--run", "run"]
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN, *words], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "imported: False"


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs", "settings"),
    [
        (torch_optimizers.SGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch_optimizers.AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_steps_have_the_bits_of_torchs_steps(ours: Any, theirs: Any, settings: dict[str, Any], fused: bool) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(7, 5)
    other = copy.deepcopy(layer)
    optimizers = [
        made(network.parameters(), lr=0.1, fused=fused, **settings)
        for made, network in ((ours, layer), (theirs, other))
    ]
    for _ in range(3):
        images = torch.randn(4, 7)
        for optimizer, network in zip(optimizers, (layer, other), strict=True):
            optimizer.zero_grad()
            network(images).square().sum().backward()
            optimizer.step()
    for mine, his in zip(layer.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, his)
    kept, known = (optimizer.state_dict() for optimizer in optimizers)
    assert kept["param_groups"] == known["param_groups"]


def test_a_closure_may_ask_for_gradients() -> None:
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = torch_optimizers.SGD([weight], lr=0.25)

    def loss() -> float:
        optimizer.zero_grad()
        made = weight.square().sum()
        made.backward()
        return made.item()

    assert optimizer.step(loss) == 4.0
    assert weight.tolist() == [1.0]
    assert torch.is_grad_enabled()
