"""Choice of hybrid parallel runs: the classifier that is found, and the reasons against splitting it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.hybrid_recipe import FEW, DoubleNetwork
from training.tiny_runs import change_part
from viaduct.errors import BadValue
from viaduct.recipes import (
    Thor,
)
from viaduct.training.distributed import ALONE, Group
from viaduct.training.layout import CannotSplit, choose_layout, find_classifier
from viaduct.training.networks import build_model


@pytest.mark.parametrize(
    ("name", "size", "layer"),
    [
        ("resnet18_v1", 32, "head"),
        ("resnet20_cifar", 32, "head"),
        ("resnet50_v2", 32, "head"),
        ("resnext50", 32, "head"),
    ],
)
def test_the_classifiers_of_our_networks_are_found(name: str, size: int, layer: str) -> None:
    recipe = replace(FEW, model=name, data=replace(FEW.data, size=size))
    model = build_model(recipe)
    before, rng = {key: value.clone() for key, value in model.state_dict().items()}, torch.get_rng_state()
    assert find_classifier(model, recipe)[0] == layer
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state())


class Softened(DoubleNetwork):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / 2


class Lost(DoubleNetwork):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).log_softmax(1)


@pytest.mark.parametrize(
    "model", [Softened, Lost, lambda classes: nn.Sequential(DoubleNetwork(classes), nn.Dropout(0.3))]
)
def test_a_network_that_works_on_its_logits_is_refused(model: Any) -> None:
    recipe = replace(FEW, model=model)
    with pytest.raises(CannotSplit, match=r"output is not that of an nn\.Linear with 23 outputs"):
        find_classifier(build_model(recipe), recipe)


TWO = Group(0, 2, 0, 2)


def own_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss": own_loss}, "a loss of your own needs the logits of all classes"),
        ({"optimizer": Thor()}, "THOR's curvature is that of whole layers"),
        ({"optimizer": torch.optim.SGD}, "an optimizer of your own may need whole layers"),
        ({"data": replace(FEW.data, classes=1)}, "1 classes are not enough for 2 ranks"),
        ({"model": "amoebanet_d", "data": replace(FEW.data, size=80)}, "the network has an auxiliary head"),
    ],
)
def test_what_cannot_be_shared_out_is_refused_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    from viaduct.recipes import Amoebanet

    recipe = replace(FEW, **changes)
    if recipe.model == "amoebanet_d":
        recipe = replace(recipe, network=Amoebanet(cells=3, filters=16))
    model = build_model(recipe)
    with pytest.raises(BadValue, match=f"parallel.mode hybrid is not possible: {reason}"):
        choose_layout(recipe, model, TWO)
    chosen = choose_layout(change_part(recipe, "parallel", mode="auto"), model, TWO)
    assert chosen.classifier is None
    assert reason in chosen.describe()


def test_auto_takes_data_for_few_classes_and_hybrid_for_many() -> None:
    for classes, mode in ((10, "data"), (1001, "data"), (200_000, "hybrid")):
        recipe = change_part(replace(FEW, data=replace(FEW.data, classes=classes)), "parallel", mode="auto")
        recipe = replace(recipe, model=lambda count: nn.Sequential(nn.Flatten(), nn.Linear(192, count)))
        chosen = choose_layout(recipe, build_model(recipe), TWO)
        assert chosen.classifier == ("1" if mode == "hybrid" else None)
        assert chosen.describe().startswith(f"Parallel {mode}")
        assert "ms with hybrid" in chosen.describe()
    assert choose_layout(recipe, build_model(recipe), ALONE).classifier is None
    assert choose_layout(change_part(recipe, "parallel", mode="data"), build_model(recipe), TWO).describe() == ""
