"""Small networks that are awkward to dump: in-place modules, residual adds, one module called twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from viaduct.comparison import Dump
from viaduct.comparison.measuring import check_file
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.comparison.records import StoredDump, StoredTensor
from viaduct.comparison.storage import open_tensor


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)), inplace=True) + x


class Awkward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.act = nn.ReLU(inplace=True)
        self.block = Block()
        self.drop = nn.Dropout(0.3)
        self.shared = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.act(self.conv(x)))
        x = self.drop(x.mean((2, 3)))
        return self.head(self.shared(torch.tanh(self.shared(x))))


class Residual(nn.Module):
    """Hands its input on through an Identity, beside what it makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.shortcut = nn.Identity()
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x) + self.shortcut(x)
        made: Tensor = self.act(x)
        return made + 0.5 * x  # which the module before has overwritten


class Levels(nn.Module):
    """Returns one tensor twice, and another that is made from it."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor, again: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first = x * again
        return first, self.second(first), first


class Entangled(nn.Module):
    """Tensors with one gradient for autograd, and more than one way."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.first, self.second = Residual(), Residual()
        self.nothing = nn.Sequential(nn.Identity(), nn.Identity())
        self.levels = Levels()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(self.stem(x)))
        x = self.nothing(x) + x.tanh()
        low, high, same = self.levels(x, x)
        logits: Tensor = self.head((low + 2 * high + same.sin()).mean((2, 3)))
        return logits


def train(folder: Path | None, length: int = 3, model: nn.Module | None = None, **options: Any) -> list[str]:
    """The losses of a few steps as bits, dumped if a folder is given."""
    torch.manual_seed(0)
    network = model if model is not None else Awkward()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    losses = []
    with dumping(network, folder, options) as dump:
        for _ in range(length):
            images, labels = torch.randn(2, 3, 8, 8), torch.randint(0, 3, (2,))
            loss = F.cross_entropy(network(images), labels)
            if dump is not None:
                dump.record("labels", labels)
                dump.record("loss", loss)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item().hex())
    return losses


@contextmanager
def dumping(network: nn.Module, folder: Path | None, options: dict[str, Any]) -> Iterator[Dump | None]:
    if folder is None:
        yield None
        return
    with Dump(network, folder, **options) as dump:
        yield dump


def find_tensor(side: StoredDump, op: str, role: str, index: int = 0, step: int = 0, call: int = 0) -> StoredTensor:
    """The one tensor of that name."""
    (only,) = (
        tensor
        for tensor in side.tensors
        if (tensor.op, tensor.role, tensor.index, tensor.step, tensor.call) == (op, role, index, step, call)
    )
    return only


def values(side: StoredDump, op: str, role: str, index: int = 0, **where: int) -> np.ndarray[Any, Any]:
    path = find_tensor(side, op, role, index, **where).path
    assert path is not None
    return np.asarray(np.load(path))


def dump_training(folder: Path, **options: Any) -> StoredDump:
    train(folder, **options)
    side = read(folder)
    check_checksums(side)
    return side


def check_checksums(side: StoredDump) -> None:
    """Raise BadData if a file of the dump is not what its index says."""
    for tensor in side.tensors:
        if tensor.path is not None and not tensor.fault:
            check_file(tensor, open_tensor(tensor))
