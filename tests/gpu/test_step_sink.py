"""A sink for a step of one's own on a real card: captured, replayed, and equal to calling the step."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import viaduct
from viaduct.errors import BadValue

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here"),
    pytest.mark.usefixtures("without_tf32"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


def make_network() -> nn.Module:
    layers = (nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(16, 10)).cuda()


def make_step(network: nn.Module, capturable: bool = True) -> Callable[[Tensor, Tensor], Tensor]:
    optimizer = torch.optim.Adam(network.parameters(), 1e-3, capturable=capturable)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def draw_batches(count: int) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(8, 3, 16, 16, device="cuda"), torch.randint(0, 10, (8,), device="cuda")) for _ in range(count)]


def test_replayed_steps_are_the_steps_themselves() -> None:
    network = make_network()
    other = copy.deepcopy(network)
    step, losses, plain = make_step(other), [], []
    with viaduct.sink(make_step(network), steps=4) as run:
        for batch in draw_batches(20):
            losses.append(run(*batch).clone())
        assert run.replay is not None
    for batch in draw_batches(20):
        plain.append(step(*batch).detach())
    torch.testing.assert_close(torch.stack(losses), torch.stack(plain), rtol=1e-4, atol=1e-5)
    for first, second in zip(network.state_dict().values(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)


def test_dropout_draws_other_numbers_in_every_replay() -> None:
    with viaduct.sink(lambda x: nn.functional.dropout(x, 0.5)) as run:
        made = [run(torch.ones(1000, device="cuda")).clone() for _ in range(8)]
    assert len({tuple(mask.tolist()) for mask in made}) == 8


@pytest.mark.parametrize("ask", [lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0 else -x])
def test_a_step_that_asks_the_device_is_refused(ask: Callable[[Tensor], Tensor]) -> None:
    with viaduct.sink(ask) as run:
        for _ in range(3):
            run(torch.ones(4, device="cuda"))
        with pytest.raises(BadValue, match="the step cannot be captured"):
            run(torch.ones(4, device="cuda"))
    assert float(torch.ones(4, device="cuda").sum()) == 4  # the card goes on


def test_an_optimizer_that_cannot_be_captured_is_refused() -> None:
    batches = draw_batches(4)
    with viaduct.sink(make_step(make_network(), capturable=False)) as run:
        for batch in batches[:3]:
            run(*batch)
        with pytest.raises(BadValue, match="capturable"):
            run(*batches[3])


def test_memory_of_the_graph_is_freed() -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    with viaduct.sink(lambda x: (x * 2 + 1).sum()) as run:  # no cuBLAS, whose workspaces stay
        for _ in range(6):
            run(torch.ones(2000, 2000, device="cuda"))
    del run
    assert torch.cuda.memory_allocated() - before < 2**22
