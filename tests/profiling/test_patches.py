"""Callbacks around functions of torch, and that the functions are torch's own again afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, dataloader

from viaduct.profiling import patches


class Parent:
    def work(self, x: int) -> int:
        if x < 0:
            raise ValueError("negative")
        return x + 1


class Heir(Parent):
    pass


def fail_within(context: Any) -> None:
    with context:
        raise ValueError("stopped")


def test_functions_are_restored_after_an_error_and_inherited_ones_are_not_copied() -> None:
    own, inherited = Parent.work, Heir.work
    for owner in (Parent, Heir):
        with pytest.raises(ValueError, match="stopped"):
            fail_within(patches.call_around(owner, "work"))
    assert Parent.work is own
    assert Heir.work is inherited
    assert "work" not in vars(Heir)


def test_after_is_not_called_for_a_function_that_raises() -> None:
    calls: list[str] = []
    with patches.call_around(Parent, "work", lambda: calls.append("before"), lambda: calls.append("after")):
        assert Parent().work(1) == 2
        with pytest.raises(ValueError, match="negative"):
            Parent().work(-1)
    assert calls == ["before", "after", "before"]


def test_each_backward_pass_calls_back_once() -> None:
    weight = torch.ones(2, requires_grad=True)
    calls: list[int] = []
    with patches.observe_backward(lambda: calls.append(1)):
        weight.sum().backward()
        assert len(calls) == 1
        torch.autograd.backward(weight.sum())
        torch.autograd.grad(weight.sum(), weight)
    weight.sum().backward()
    assert len(calls) == 3


def test_a_loaders_start_and_its_batches_are_waits() -> None:
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    asked: list[int] = []
    waits: list[tuple[bool, float]] = []
    with patches.observe_loaders(
        lambda: asked.append(1),
        lambda source, begin, end: waits.append((source is loader, end - begin)),
        lambda note: pytest.fail(note),
    ):
        assert len(list(loader)) == 2
    assert [is_loader for is_loader, _ in waits] == [True, False, False]
    assert all(wait > 0 for _, wait in waits)
    assert len(asked) == 4  # the last request ends the epoch


def test_a_torch_without_the_known_iterator_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dataloader, "_BaseDataLoaderIter")
    notes: list[str] = []
    with patches.observe_loaders(lambda: None, lambda *wait: None, notes.append):
        pass
    assert notes == [
        "waits for a DataLoader were not measured: this torch has no DataLoader iterator of the known name."
    ]


def test_saving_and_new_optimizers_call_back(tmp_path: Any) -> None:
    calls: list[str] = []
    with (
        patches.call_around(torch, "save", lambda: calls.append("save")),
        patches.call_around(torch.optim.Optimizer, "__init__", lambda: calls.append("optimizer")),
    ):
        torch.save({}, tmp_path / "weights.pt")
        torch.optim.AdamW(nn.Linear(2, 2).parameters())
    torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    assert calls == ["save", "optimizer"]


def test_a_scaler_that_skips_the_update_calls_back_all_the_same() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    calls: list[str] = []
    scaler.scale(weight.sum() * float("inf")).backward()
    with patches.call_around(
        torch.amp.GradScaler, "step", lambda: calls.append("before"), lambda: calls.append("after")
    ):
        scaler.step(optimizer)
    assert calls == ["before", "after"]
    assert torch.equal(weight, torch.ones(2))
