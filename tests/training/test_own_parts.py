"""Parts of a recipe that its author wrote, with the mistakes that authors make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.tiny import RECIPE, trained, training
from viaduct.errors import BadValue
from viaduct.training.own_parts import first_step_of
from viaduct.training.rundir import RunDir


def misspelt(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentun=0.9)  # type: ignore[call-arg]


def too_narrow(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))


class Asking(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inside = nn.Linear(3, classes)

    def forward(self, images: Tensor) -> Tensor:
        made: Tensor = self.inside(images)
        return made


class Unfinished(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.inside = nn.Linear(3, klasses)  # type: ignore[name-defined]  # noqa: F821


def no_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.nothing  # type: ignore[attr-defined, no-any-return]


BUILT: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing returned": ({"optimizer": lambda parameters: None}, ["made a NoneType, not a torch.optim.Optimizer"]),
    "a misspelt argument": (
        {"optimizer": misspelt},
        ["optimizer fails: TypeError", "momentun", "test_own_parts.py, line", "torch.optim.SGD(parameters"],
    ),
    "no argument": ({"optimizer": lambda: None}, ["optimizer fails: TypeError", "takes 0 positional arguments"]),
    "a network that cannot be built": ({"model": Unfinished}, ["model fails: NameError", "klasses", "self.inside ="]),
}
STEPPED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "shapes that do not fit": ({"model": too_narrow}, ["the first step of", "mat1 and mat2", "brings along: model"]),
    "an optimizer that wants a closure": (
        {"optimizer": lambda parameters: torch.optim.LBFGS(parameters)},
        ["TypeError", "closure", "brings along: model, optimizer"],
    ),
    "a loss that fails": ({"loss": no_loss}, ["AttributeError", "return logits.nothing", "brings along: model, loss"]),
    "a network that fails": ({"model": Asking}, ["mat1 and mat2", "brings along: model"]),
}


def refused(work: Callable[[], object], fragments: list[str]) -> None:
    with pytest.raises(BadValue) as found:
        work()
    for fragment in fragments:
        assert fragment in str(found.value)


@pytest.mark.parametrize("name", BUILT)
def test_a_part_that_cannot_be_made_is_named_with_its_place(run: RunDir, name: str) -> None:
    changes, fragments = BUILT[name]
    refused(lambda: training(replace(RECIPE, **changes), run), fragments)


@pytest.mark.parametrize("name", STEPPED)
def test_a_part_that_fails_in_the_first_step_is_named(run: RunDir, name: str) -> None:
    changes, fragments = STEPPED[name]
    refused(lambda: trained(replace(RECIPE, **changes), run), fragments)


@pytest.mark.parametrize("error", [MemoryError("none"), RuntimeError("CUDA out of memory")])
def test_memory_that_does_not_suffice_is_not_the_authors_mistake(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), first_step_of(replace(RECIPE, model=too_narrow)):
        raise error


def test_what_fails_without_a_part_of_the_authors_is_ours() -> None:
    with pytest.raises(KeyError), first_step_of(replace(RECIPE, model="resnet50_v1")):
        raise KeyError


def test_a_rate_that_is_a_tensor_is_a_rate(run: RunDir) -> None:
    recipe = replace(RECIPE, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.001)))
    done = trained(recipe, run)
    assert done.initial_rates == [pytest.approx(0.001)]
    assert done.step == done.steps
