"""Parts of a recipe that its author wrote, with the mistakes that authors make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from training.tiny_runs import RECIPE, build_training, train_recipe
from viaduct.errors import BadValue
from viaduct.training.callbacks import Callback
from viaduct.training.loop import Training
from viaduct.training.recipe_code import explain_recipe_errors
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
        ["optimizer fails: TypeError", "momentun", "test_recipe_code.py, line", "torch.optim.SGD(parameters"],
    ),
    "no argument": ({"optimizer": lambda: None}, ["optimizer fails: TypeError", "takes 0 positional arguments"]),
    "a network that cannot be built": ({"model": Unfinished}, ["model fails: NameError", "klasses", "self.inside ="]),
}


class Branches(nn.Module):
    """Its second branch does not fit what the first step gives it; or, with `late`, what a later one does."""

    def __init__(self, classes: int, late: bool = False) -> None:
        super().__init__()
        self.late, self.calls = late, 0
        self.features = nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Sequential(nn.ReLU(), nn.Linear(9, classes)))
        self.heads = nn.ModuleList([nn.Flatten(), nn.Linear(16 * 16 * 3, classes), nn.Linear(5, classes)])

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if not self.late:
            return self.features(images)  # type: ignore[no-any-return]
        return self.heads[1 if self.calls < 3 else 2](self.heads[0](images))  # type: ignore[no-any-return]


def late(classes: int) -> nn.Module:
    return Branches(classes, late=True)


def wrong_in_evaluation(classes: int) -> nn.Module:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.right, self.wrong = nn.Linear(16 * 16 * 3, classes), nn.Linear(2, classes)

        def forward(self, images: Tensor) -> Tensor:
            return (self.right if self.training else self.wrong)(images.flatten(1))  # type: ignore[no-any-return]

    return Network()


LAYERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "in a Sequential": (
        {"model": too_narrow},
        ["the first step", "in layer '1', Linear(in_features=7", "given 8x768", "test_recipe_code.py, line"],
    ),
    "in a Sequential of a Sequential": ({"model": Branches}, ["in layer 'features.2.1', Linear(in_features=9"]),
    "in a ModuleList, in the third step": ({"model": late}, ["step 3 of", "in layer 'heads.2', Linear(in_features=5"]),
    "in an evaluation": ({"model": wrong_in_evaluation}, ["the evaluation of", "in layer 'wrong'", "self.training"]),
    "by leaving": ({"loss": lambda logits, labels: sys.exit(3)}, ["the first step", "SystemExit: 3", "sys.exit(3)"]),
    "in a schedule": ({"schedule": lambda step, steps: 1 / (2 - step)}, ["step 3", "ZeroDivisionError", "1 / (2"]),
}
STEPPED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "shapes that do not fit": (
        {"model": too_narrow},
        ["the first step of", "mat1 and mat2", "recipe's own parts: model"],
    ),
    "an optimizer that wants a closure": (
        {"optimizer": lambda parameters: torch.optim.LBFGS(parameters)},
        ["TypeError", "closure", "recipe's own parts: model, optimizer"],
    ),
    "a loss that fails": (
        {"loss": no_loss},
        ["AttributeError", "return logits.nothing", "recipe's own parts: model, loss"],
    ),
    "a network that fails": ({"model": Asking}, ["mat1 and mat2", "recipe's own parts: model"]),
}


def check_refusal(work: Callable[[], object], fragments: list[str]) -> None:
    with pytest.raises(BadValue) as found:
        work()
    for fragment in fragments:
        assert fragment in str(found.value)


@pytest.mark.parametrize("name", BUILT)
def test_a_part_that_cannot_be_made_is_named_with_its_line(run: RunDir, name: str) -> None:
    changes, fragments = BUILT[name]
    check_refusal(lambda: build_training(replace(RECIPE, **changes), run), fragments)


@pytest.mark.parametrize("name", STEPPED)
def test_a_part_that_fails_in_the_first_step_is_named(run: RunDir, name: str) -> None:
    changes, fragments = STEPPED[name]
    check_refusal(lambda: train_recipe(replace(RECIPE, **changes), run), fragments)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_does_not_fit_is_named_with_its_line(run: RunDir, name: str) -> None:
    changes, fragments = LAYERS[name]
    check_refusal(lambda: train_recipe(replace(RECIPE, **changes), run), fragments)


def test_what_fails_later_outside_of_the_authors_parts_is_ours() -> None:
    with pytest.raises(KeyError), explain_recipe_errors(RECIPE, 5):
        raise KeyError


@pytest.mark.parametrize("error", [MemoryError("none"), RuntimeError("CUDA out of memory")])
def test_memory_that_does_not_suffice_is_not_the_authors_mistake(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), explain_recipe_errors(replace(RECIPE, model=too_narrow), 0):
        raise error


def test_what_fails_without_a_part_of_the_authors_is_ours() -> None:
    with pytest.raises(KeyError), explain_recipe_errors(replace(RECIPE, model="resnet50_v1"), 0):
        raise KeyError


def test_a_rate_that_is_a_tensor_is_a_rate(run: RunDir) -> None:
    recipe = replace(RECIPE, optimizer=lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.001)))
    done = train_recipe(recipe, run)
    assert done.progress.initial_rates == [pytest.approx(0.001)]
    assert done.step == done.steps


def test_a_lost_rank_is_not_the_mistake_of_the_layer_that_saw_it_first() -> None:
    gone = RuntimeError("[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:57985: Connection reset by peer")

    class Synchronised(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise gone

    network = nn.Sequential(Synchronised())
    with pytest.raises(RuntimeError, match="reset by peer"), explain_recipe_errors(replace(RECIPE, model=network), 0):
        network(torch.zeros(1))


class Failing(Callback):
    """A callback of the recipe's own with a mistake in one event."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def step(self, training: Training) -> None:
        raise self.error


@pytest.mark.parametrize("error", [KeyError("cb"), SystemExit(0)])
def test_a_failing_callback_is_named_with_its_line(error: BaseException, run: RunDir) -> None:
    with pytest.raises(BadValue, match=r"the recipe's callback Failing\.step fails") as caught:
        train_recipe(RECIPE, run, Failing(error))
    assert "raise self.error" in str(caught.value)


def test_a_callback_that_fails_at_the_end_of_the_run_is_named_too(run: RunDir) -> None:
    class FailingAtEnd(Callback):
        def end(self, training: Training, outcome: str) -> None:
            raise KeyError("cb")

    with pytest.raises(BadValue, match=r"the recipe's callback FailingAtEnd\.end fails") as caught:
        train_recipe(RECIPE, run, FailingAtEnd())
    assert 'raise KeyError("cb")' in str(caught.value)


def test_what_is_no_callback_is_refused(run: RunDir) -> None:
    with pytest.raises(BadValue, match=r"callbacks has 5; it must be objects of"):
        train_recipe(RECIPE, run, 5)
