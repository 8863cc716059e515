"""Mutations of a migrated project are named or "not proved", none "agrees"; rewrites of the same never differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.journeys import Journey, once
from command import viaduct

FILES = {
    "train.py": '''\
import argparse
import logging
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

from nets.model import Net
from settings import DECAY, RATE

torch.set_num_threads(1)


def evaluate(net, loader, device):
    net.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in loader:
            x = x.to(device) * 1.0
            guess = net(x).argmax(1).cpu()
            right += (guess == y).sum().item()
            total += len(y)
    net.train()
    return 100.0 * right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", default="")
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()
    device = torch.device("cuda")
    x = torch.randn(48, 6, generator=torch.Generator().manual_seed(3))
    data = list(zip(x, x[:, :3].argmax(1)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    net = Net(0.2).to(device)
    if args.resume:
        net.load_state_dict(torch.load(args.resume, map_location="cuda"))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=DECAY)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            if args.clip > 0:
                nn.utils.clip_grad_norm_(net.parameters(), args.clip)
            optimizer.step()
        accuracy = evaluate(net, loader, device)
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
''',
    "nets/model.py": '''\
from torch import nn


class Net(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.drop = nn.Dropout(drop)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(self.first(x).relu() + 0.5))
''',
    "lib/settings.py": "RATE = 0.05\nDECAY = 1e-4\nUNUSED = 7\n",
}  # fmt: skip
# name: (file, what stands there, what the mutation makes of it)
MUTATIONS = {
    "number on PYTHONPATH": ("lib/settings.py", "RATE = 0.05", "RATE = 0.051"),
    "evaluation only": ("train.py", "x = x.to(device) * 1.0", "x = x.to(device) * 1.5"),
    "metric only": ("train.py", "100.0 * right / total", "100.0 * right / (total - 1)"),
    "branch that is not reached": ("train.py", 'map_location="npu"', 'map_location="cpu"'),
    "operator in another file": ("nets/model.py", ".relu() + 0.5", ".relu() - 0.5"),
    "method in evaluation": ("train.py", "    net.eval()\n", "    net.train()\n"),
    "number in another file": ("nets/model.py", "+ 0.5", "+ 0.51"),
    "momentum": ("train.py", "momentum=0.9", "momentum=0.8"),
    "small number": ("lib/settings.py", "DECAY = 1e-4", "DECAY = 1.5e-4"),
    "value that nobody uses": ("lib/settings.py", "UNUSED = 7", "UNUSED = 8"),
    "condition": ("train.py", "if args.clip > 0:", "if args.clip < 0:"),
    "condition without effect": ("train.py", "if args.clip > 0:", "if args.clip >= 0:"),
    "default": ("train.py", "default=1.0", "default=2.0"),
    "order of the data": ("train.py", "shuffle=True", "shuffle=False"),
    "batch": ("train.py", "batch_size=8", "batch_size=12"),
    "line that is gone": ("train.py", "            optimizer.zero_grad()\n", ""),
    "evaluation that is gone": ("train.py", "    net.train()\n", ""),
    "dropout": ("train.py", "Net(0.2)", "Net(0.3)"),
    "printed": ("train.py", "loss.item():.4f", "2 * loss.item():.4f"),
    "seed": ("train.py", "manual_seed(3)", "manual_seed(4)"),
}
QUICK = ("number on PYTHONPATH", "evaluation only", "branch that is not reached")
REWRITES = {
    "rename": ("train.py", "guess", "chosen"),
    "order of independent lines": (
        "train.py",
        "            right += (guess == y).sum().item()\n            total += len(y)\n",
        "            total += len(y)\n            right += (guess == y).sum().item()\n",
    ),
    "spelling of a number": ("lib/settings.py", "RATE = 0.05", "RATE = 5e-2"),
    "device by its number": ("train.py", 'torch.device("npu")', 'torch.device("npu:0")'),
    "named step": (
        "nets/model.py",
        "        return self.last(self.drop(self.first(x).relu() + 0.5))",
        "        hidden = self.first(x).relu() + 0.5\n        return self.last(self.drop(hidden))",
    ),
    "import": ("nets/model.py", "from torch import nn", "import torch.nn as nn"),
}


def carry_mutated(folder: Path, file: str, old: str, new: str, *, every: bool = False) -> Journey:
    copies = {name: text.replace('"cuda"', '"npu"') for name, text in FILES.items()}
    copies["train.py"] = once(copies["train.py"], "import torch\nfrom", "import torch\nimport torch_npu\nfrom")
    copies[file] = copies[file].replace(old, new) if every else once(copies[file], old, new)
    for tree, files in (("project", FILES), ("copy", copies)):
        for name, text in files.items():
            (folder / tree / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / tree / name).write_text(text)
    words = ["--entry", "train.py", "--migrated", "../copy", "--out", "../carried", "--steps", "12"]
    answer = viaduct("carry", ".", *words, cwd=folder / "project", PYTHONPATH="lib")
    return Journey(answer, folder / "carried")


def check_mutation(name: str, folder: Path) -> None:
    file, old, new = MUTATIONS[name]
    journey = carry_mutated(folder, file, old, new)
    verdict = journey.record["verdict"]
    assert verdict in ("differs", "not proved"), journey.said + journey.talk
    assert journey.code == {"differs": 1, "not proved": 3}[verdict]
    if verdict == "differs":
        assert any(one["file"] == file for one in journey.record["suspects"]), journey.said


@pytest.mark.parametrize("name", QUICK)
def test_a_mutation_is_named_or_not_proved(name: str, tmp_path: Path) -> None:
    check_mutation(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MUTATIONS if name not in QUICK])
def test_further_mutations_are_named_or_not_proved(name: str, tmp_path: Path) -> None:
    check_mutation(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", REWRITES)
def test_another_way_of_writing_the_same_never_differs(name: str, tmp_path: Path) -> None:
    file, old, new = REWRITES[name]
    journey = carry_mutated(tmp_path, file, old, new, every=name == "rename")
    assert journey.record["verdict"] in ("agrees", "not proved"), journey.said + journey.talk
    if journey.record["verdict"] == "not proved":  # the checkpoint that nobody reads, and nothing that was rewritten
        (doubt,) = journey.record["not_proved"]
        assert doubt["kind"] == "never executed"
        assert all("args.resume" in item for item in doubt["items"]), doubt
