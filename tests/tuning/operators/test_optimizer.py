"""Updates of SGD and AdamW: which are described, and that every implementation moves the weights alike."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tuning.operators.variants import find_wrong_variants
from viaduct.tuning.operators import optimizer


def make_optimizer(name: str, **options: object) -> torch.optim.Optimizer:
    options |= {"momentum": 0.9, "nesterov": True} if name == "SGD" else {}
    return optimizer.CLASSES[name](nn.Linear(4, 3).parameters(), lr=0.1, weight_decay=0.1, **options)  # type: ignore[arg-type]


def test_an_optimizer_that_is_not_fused_or_of_another_class_is_not_described() -> None:
    class Sgd(torch.optim.SGD):
        pass

    parameters = list(nn.Linear(2, 2).parameters())
    assert optimizer.describe(torch.optim.SGD(parameters, lr=0.1, foreach=True)) is None
    assert optimizer.describe(torch.optim.Adam(parameters, lr=0.1, fused=True)) is None
    assert optimizer.describe(Sgd(parameters, lr=0.1, fused=True)) is None


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_every_variant_is_as_close_to_float64_as_the_default(name: str) -> None:
    signature = optimizer.describe(make_optimizer(name, fused=True))
    assert signature is not None
    assert find_wrong_variants(signature) == {}


def test_changing_the_implementation_keeps_the_momentum() -> None:
    update = make_optimizer("SGD", fused=True)
    parameters = update.param_groups[0]["params"]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    update.step()
    before = [update.state[parameter]["momentum_buffer"].clone() for parameter in parameters]
    optimizer.set_implementation(update, {"implementation": "loop"})
    assert not update.param_groups[0]["fused"]
    assert all(map(torch.equal, before, (update.state[parameter]["momentum_buffer"] for parameter in parameters)))
