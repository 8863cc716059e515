"""Batch norm over ranks is batch norm over all their images."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from training.ranks import run_on_ranks
from viaduct.errors import BadValue
from viaduct.training.distributed import join_ranks
from viaduct.training.syncnorm import RankSyncNorm, synchronise_norms

SHARES = (5, 2, 3)  # ranks need not have equally many images


def images(dtype: torch.dtype) -> Tensor:
    rng = torch.Generator().manual_seed(3)
    return (torch.randn(sum(SHARES), 4, 6, 5, generator=rng) * 3 + 20).to(dtype)


def network(momentum: float | None, affine: bool, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    net = nn.Sequential(nn.BatchNorm2d(4, momentum=momentum, affine=affine), nn.ReLU(inplace=True))
    if affine:
        nn.init.normal_(net[0].weight)
        nn.init.normal_(net[0].bias)
    return net.double() if dtype == torch.float64 else net


def passes(net: nn.Module, x: Tensor, first: int) -> dict[str, Tensor]:
    """Two steps forward and backward, of a loss that knows the place of every image."""
    x = x.clone().requires_grad_()
    for _ in range(2):
        out = net(x * 1)
        weights = torch.arange(first, first + len(x), dtype=torch.float64).view(-1, 1, 1, 1) + 1
        (out.double().square() * weights).sum().backward()
    assert x.grad is not None
    gradients = {f"grad {name}": parameter.grad for name, parameter in net.named_parameters()}
    return {"out": out.detach(), "grad x": x.grad, **gradients, **dict(net.named_buffers())}


def of_a_rank(momentum: float | None, affine: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    with join_ranks("cpu", 30) as group:
        net = network(momentum, affine, dtype)
        synchronise_norms(net, "cpu")
        first = sum(SHARES[: group.rank])
        return passes(net, images(dtype)[first : first + SHARES[group.rank]], first)


@pytest.mark.parametrize(
    ("momentum", "affine", "dtype", "tolerance"),
    [
        (0.1, True, torch.float32, 1e-5),
        (None, False, torch.float32, 1e-5),
        (0.003, True, torch.float64, 1e-12),
        (0.1, True, torch.bfloat16, 2e-2),
    ],
)
def test_ranks_compute_what_one_would(
    momentum: float | None, affine: bool, dtype: torch.dtype, tolerance: float
) -> None:
    ranks = [ended.value for ended in run_on_ranks(len(SHARES), of_a_rank, momentum, affine, dtype)]
    alone = passes(network(momentum, affine, dtype), images(dtype), 0)
    for name, wanted in alone.items():
        parts = [rank[name] for rank in ranks]
        if name in ("out", "grad x"):
            found = torch.cat(parts)
        elif name.startswith("grad"):
            found = torch.stack(parts).sum(0)
        else:
            found = parts[0]
            assert all(torch.equal(part, found) for part in parts), f"{name} is not the same on all ranks"
        scale = float(wanted.float().abs().max())
        assert torch.allclose(found.double(), wanted.double(), rtol=0, atol=tolerance * scale), name
    assert ranks[0]["out"].dtype == dtype


def test_without_other_ranks_it_is_the_plain_norm() -> None:
    synced = network(0.1, True)
    synchronise_norms(synced, "cpu")
    ours, plain = passes(synced, images(torch.float32), 0), passes(network(0.1, True), images(torch.float32), 0)
    assert all(torch.equal(ours[name], plain[name]) for name in plain)


def test_names_kinds_and_values_stay() -> None:
    net = network(0.1, True)
    before = dict(net.state_dict())
    synchronise_norms(net, "cpu")
    synchronise_norms(net, "cpu")
    assert isinstance(net[0], RankSyncNorm)
    assert isinstance(net[0], nn.BatchNorm2d)
    assert isinstance(net[0], nn.BatchNorm2d)
    assert {name: tensor.data_ptr() for name, tensor in net.state_dict().items()} == {
        name: tensor.data_ptr() for name, tensor in before.items()
    }


def test_accelerators_get_torchs_own() -> None:
    net = network(0.1, True)
    synchronise_norms(net, "cuda")
    assert isinstance(net[0], nn.SyncBatchNorm)
    assert isinstance(net[0], nn.BatchNorm2d)
    assert type(net[0]).forward is nn.SyncBatchNorm.forward


class Own(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


def test_a_norm_of_the_user_is_named() -> None:
    with pytest.raises(BadValue, match="1 is a Own, which may compute in a way of its own"):
        synchronise_norms(nn.Sequential(nn.Identity(), Own(4)), "cpu")
