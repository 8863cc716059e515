"""Autocast and loss scaling on the stand-in."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from rehearsal.torch_stage.networks import make_batches, make_network
from rehearsal.torch_stage.staged import on


@on("npu")
def test_outside_a_region_and_on_the_host_nothing_is_cast() -> None:
    x = torch.ones(2, 2, device="npu")
    assert (x @ x).dtype is torch.float32
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert (x.cpu() @ x.cpu()).dtype is torch.float32
        assert (x + x).dtype is torch.float32
        with torch.autocast("npu", enabled=False):
            assert (x @ x).dtype is torch.float32
    with torch.autocast("npu", enabled=False):
        assert (x @ x).dtype is torch.float32


@on("npu")
def test_operators_run_in_the_precision_of_their_list() -> None:
    x = torch.ones(2, 4, device="npu")
    half = x.half()
    with torch.npu.amp.autocast():
        assert functional.linear(x, torch.ones(3, 4, device="npu")).dtype is torch.float16
        assert functional.conv2d(x.view(1, 2, 2, 2), torch.ones(1, 2, 1, 1, device="npu")).dtype is torch.float16
        assert torch.einsum("ij,kj->ik", x, x).dtype is torch.float16
        assert functional.softmax(half, 1).dtype is torch.float32
        assert functional.mse_loss(half, half).dtype is torch.float32
        assert functional.layer_norm(half, (4,)).dtype is torch.float32
        assert half.sum().dtype is torch.float32
        assert half.exp().dtype is torch.float32
        assert half.norm().dtype is torch.float32
        assert torch.addcmul(x, half, half).dtype is torch.float32
        assert functional.relu(half).dtype is torch.float16
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            functional.binary_cross_entropy(half, half)
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert (x @ x.t()).dtype is torch.bfloat16
    assert torch.npu.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]


@on("mlu")
def test_a_region_computes_what_casting_by_hand_computes() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 4)
    x, labels = torch.randn(3, 4), torch.tensor([0, 1, 2])
    card = weight.mlu().requires_grad_()
    with torch.autocast("mlu", dtype=torch.bfloat16):
        # Used twice: the cast is one, so that the two gradients are summed in bfloat16.
        output = functional.linear(x.mlu(), card)
        loss = functional.cross_entropy(output + functional.linear(x.mlu() * 2, card), labels.mlu())
    loss.backward()
    host = weight.clone().requires_grad_()
    low = host.bfloat16()
    total = functional.linear(x.bfloat16(), low) + functional.linear((x * 2).bfloat16(), low)
    # A cross entropy asks for a log-softmax of its input's own precision, on CUDA too; its mean is in float32.
    expected = functional.nll_loss(functional.log_softmax(total, 1).float(), labels)
    expected.backward()
    assert torch.equal(loss.detach().cpu(), expected.detach())
    assert torch.equal(card.grad.cpu(), host.grad)


@on("npu")
def test_the_scaler_skips_what_overflows_and_halves_and_otherwise_steps() -> None:
    weight = torch.ones(2, device="npu", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for scaler in (torch.amp.GradScaler("npu", init_scale=4.0), torch.npu.amp.GradScaler(init_scale=4.0)):
        scaler.scale(weight.sum() * float("inf")).backward()
        before = weight.tolist()
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == before
        assert scaler.get_scale() == 2.0
        optimizer.zero_grad()
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(optimizer)
        assert weight.grad.tolist() == [1, 1]
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [value - 1 for value in before]
        optimizer.zero_grad()
    fixed = torch.npu.amp.GradScaler(init_scale=8.0, dynamic=False)
    fixed.scale(weight.sum() * float("inf")).backward()
    fixed.step(optimizer)
    fixed.update()
    assert fixed.get_scale() == 8.0


def train_mixed(device: str) -> dict[str, torch.Tensor]:
    model = make_network().to(device)
    torch.manual_seed(1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), torch.amp.GradScaler(device)
    for images, labels in make_batches(3):
        with torch.autocast(device, dtype=torch.float16):
            loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {name: value.cpu() for name, value in model.state_dict().items()}


@on("npu")
def test_mixed_precision_training_moves_the_weights_and_stays_near_float32() -> None:
    from rehearsal.torch_stage.networks import train

    mixed, plain = train_mixed("npu"), train("cpu", momentum=0.9)
    assert any(not torch.equal(mixed[name], plain[name]) for name in plain)
    for name, value in plain.items():
        torch.testing.assert_close(mixed[name], value, rtol=0.05, atol=0.01)
