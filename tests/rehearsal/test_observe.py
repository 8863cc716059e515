"""Losses, gradients and weights for the comparison of two rehearsals, under the script's own names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from viaduct.rehearsal.counting import TorchStepCounter
from viaduct.rehearsal.limits import StandInFails
from viaduct.rehearsal.observe import Observation, compute_fingerprint, find_rank_folder
from viaduct.scripts.runner import StopScript


def step(network: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    loss = network(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def test_a_network_that_is_only_evaluated_is_not_kept(counter: TorchStepCounter, tmp_path: Path) -> None:
    frozen = nn.Linear(4, 4).requires_grad_(False)
    network = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    frozen(torch.ones(2, 4))
    step(network, optimizer)
    counter.finish()
    assert sorted(numpy.load(find_rank_folder(tmp_path, 0) / "weights.npz")) == ["bias", "weight"]


def test_losses_gradients_and_weights_are_kept(counter: TorchStepCounter, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    losses = [step(network, optimizer)]
    first = {
        name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None
    }
    with pytest.raises(StopScript):
        step(network, optimizer)
    counter.finish()
    kept = [json.loads(line) for line in (find_rank_folder(tmp_path, 0) / "steps.jsonl").read_text().splitlines()]
    assert [record["losses"][0] for record in kept][:1] == pytest.approx(losses)
    assert [record["lr"] for record in kept] == [[0.1], [0.1]]
    gradients = numpy.load(find_rank_folder(tmp_path, 0) / "gradients.npz")
    assert sorted(gradients) == sorted(first)
    assert all((gradients[name] == first[name].numpy()).all() for name in first)
    weights = numpy.load(find_rank_folder(tmp_path, 0) / "weights.npz")
    assert (weights["0.weight"] == network[0].weight.detach().numpy()).all()
    assert weights["1.num_batches_tracked"] == 2


def test_names_leave_out_wrappers(counter: TorchStepCounter, tmp_path: Path) -> None:
    inner = nn.Module()
    inner.module = nn.Linear(4, 2)  # a layer that is really called so
    inner.forward = lambda x: inner.module(x)  # type: ignore[method-assign]
    outer = nn.DataParallel(inner)
    step(outer, torch.optim.SGD(outer.parameters(), 0.1))
    counter.finish()
    assert sorted(numpy.load(find_rank_folder(tmp_path, 0) / "weights.npz")) == ["module.bias", "module.weight"]


def test_the_loss_is_the_one_before_a_grad_scalers_factor(counter: TorchStepCounter, tmp_path: Path) -> None:
    network = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    output = network(torch.ones(2, 4))
    loss, true = output.square().mean(), output[0].detach().numpy()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    counter.finish()
    kept = json.loads((find_rank_folder(tmp_path, 0) / "steps.jsonl").read_text())
    assert kept["losses"] == pytest.approx([float(loss.detach())])
    assert numpy.load(find_rank_folder(tmp_path, 0) / "gradients.npz")["bias"] == pytest.approx(true)


def test_two_networks_are_distinguished_by_number(counter: TorchStepCounter, tmp_path: Path) -> None:
    first, second = nn.Linear(4, 2), nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)
    (first(torch.ones(2, 4)).sum() + second(torch.ones(2, 4)).sum()).backward()
    optimizer.step()
    counter.finish()
    names = sorted(numpy.load(find_rank_folder(tmp_path, 0) / "gradients.npz"))
    assert names == ["0.bias", "0.weight", "1.bias", "1.weight"]


def test_a_parameter_outside_of_any_module_is_kept_by_its_place(counter: TorchStepCounter, tmp_path: Path) -> None:
    network, loose = nn.Linear(4, 2), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([*network.parameters(), loose], 0.1)
    (network(torch.ones(2, 4)) * loose).sum().backward()
    optimizer.step()
    counter.finish()
    names = sorted(numpy.load(find_rank_folder(tmp_path, 0) / "weights.npz"))
    assert names == ["bias", "optimizer.0.0.2", "weight"]


def test_a_parameter_that_the_loss_does_not_use_does_not_shift_the_gradients_of_others(
    counter: TorchStepCounter, tmp_path: Path
) -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2, bias=False))
    network[0].unused = nn.Parameter(torch.zeros(3))
    network[0].forward = lambda x: nn.functional.linear(x, network[0].weight)
    trained = [network[0].unused, network[0].weight, network[0].bias, network[1].weight]
    loss = network(torch.ones(2, 4)).square().mean()
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    assert [gradient is None for gradient in gradients] == [True, False, True, False]
    with torch.no_grad():
        trained[1] -= 0.1 * gradients[1]
    counter.finish()
    kept = numpy.load(find_rank_folder(tmp_path, 0) / "gradients.npz")
    assert sorted(kept) == ["0.weight", "1.weight"]
    numpy.testing.assert_array_equal(kept["0.weight"], gradients[1].numpy())
    numpy.testing.assert_array_equal(kept["1.weight"], gradients[3].numpy())


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_weights_in_a_dtype_that_numpy_does_not_have_are_kept(counter: TorchStepCounter, tmp_path: Path) -> None:
    network = nn.Linear(4, 2)
    network.register_buffer("scale", torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn))
    network.register_buffer("mean", torch.tensor([1.5]).to(torch.bfloat16))
    network.register_buffer("phase", torch.tensor([1 + 2j]).to(torch.complex32))
    step(network, torch.optim.SGD(network.parameters(), 0.1))
    counter.finish()
    weights = numpy.load(find_rank_folder(tmp_path, 0) / "weights.npz")
    assert (weights["scale"].tolist(), weights["scale"].dtype) == ([0.5, 2.0], numpy.float32)
    assert (weights["mean"].tolist(), weights["phase"].tolist()) == ([1.5], [1 + 2j])


def test_an_error_of_viaduct_in_a_step_is_not_called_the_scripts(
    counter: TorchStepCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observation, "find_named_tensors", lambda observation: 1 // 0)
    network = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    with pytest.raises(StandInFails, match="ZeroDivisionError"):
        step(network, optimizer)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_input_has_no_fingerprint() -> None:
    assert compute_fingerprint([torch.eye(2).to_sparse_csr(), torch.eye(2).to_sparse()]) == []
