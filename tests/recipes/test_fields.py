"""Changing a recipe from the command line: typed, checked, and never a guess."""

from __future__ import annotations

import json
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadValue, UnknownName
from viaduct.recipes import (
    AdamW,
    Amoebanet,
    Arrays,
    BookCosine,
    Constant,
    Cosine,
    Evaluation,
    ImageSet,
    LarsPolynomial,
    Precision,
    Recipe,
    ResnextDecay,
    Sgd,
    Shapes,
    Steps,
    ThorDecay,
    Top1,
    load,
    names,
)
from viaduct.recipes._fields import compare_records, from_record, list_field_paths, override, read_field, to_record

BASE = Recipe(model="resnet20_cifar", data=Shapes(global_batch=8, size=16), schedule=Steps(), optimizer=AdamW())
RESNEXT = replace(BASE, schedule=ResnextDecay())
SCHEDULES = (
    "Constant or Steps or Cosine or BookCosine or V15Decay or ResnextDecay or AmoebanetDecay or LarsPolynomial "
    "or MindsporePolynomial or ThorDecay"
)
SHIPPED = [pytest.param(load(name).recipe, id=name) for name in names()]


def test_the_original_is_not_touched() -> None:
    before = to_record(BASE)
    changed = override(BASE, "optimizer.lr", "0.05")
    assert (changed.optimizer.lr, to_record(BASE)) == (0.05, before)
    assert compare_records(before, to_record(changed)) == {"optimizer.lr": (0.001, 0.05)}


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("optimizer.lr", "0.05", 0.05),
        ("optimizer.lr", "5e-2", 0.05),
        ("optimizer.lr", "1", 1.0),
        ("seed", "7", 7),
        ("data.global_batch", "16", 16),
        ("model", "resnet50_v1", "resnet50_v1"),
        ("mode", "graph", "graph"),
        ("optimizer.decay", "not_norm", "not_norm"),
        ("data.flip", "true", True),
        ("data.flip", "Yes", True),
        ("data.flip", "on", True),
        ("data.flip", "1", True),
        ("deterministic", "off", False),
        ("deterministic", "No", False),
        ("optimizer.betas", "0.8,0.9", (0.8, 0.9)),
        ("optimizer.betas", "(0.8, 0.9)", (0.8, 0.9)),
        ("data.mean", "[0.1 0.2 0.3]", (0.1, 0.2, 0.3)),
        ("precision.keep_batchnorm_fp32", "none", None),
        ("precision.keep_batchnorm_fp32", "false", False),
        ("precision.loss_scale", "128", 128.0),
        ("precision.loss_scale", "dynamic", "dynamic"),
        ("expects", "none", None),
        ("callbacks", "", ()),
        ("optimizer", "AdamW", AdamW()),
        ("optimizer", "sgd", Sgd()),
        ("schedule", "Cosine", Cosine()),
        ("schedule", "bookcosine", BookCosine()),
        ("schedule", "constant", Constant()),
        ("schedule", "ThorDecay", ThorDecay()),
        ("schedule", "larspolynomial", LarsPolynomial()),
        ("network", "Amoebanet", Amoebanet()),
        ("mixup", "0.2", 0.2),
        ("precision.fp16_scale", "1024", 1024.0),
        ("loss.smooth_evaluation", "yes", True),
        ("evaluation", "Evaluation", Evaluation()),
    ],
)
def test_every_kind_of_field_can_be_given(path: str, text: str, value: object) -> None:
    found = read_field(override(BASE, path, text), path)
    assert (found, type(found)) == (value, type(value))


def test_a_list_may_have_any_length_where_the_part_allows_it() -> None:
    changed = override(BASE, "schedule", "Steps")
    with pytest.raises(BadValue, match=r"number of schedule.factors is 5; it must be one more than the 2 boundaries"):
        override(changed, "schedule.boundaries", "30,60")
    assert read_field(override(BASE, "schedule.boundaries", "1,2,3,4"), "schedule.boundaries") == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("optimizer.lr", "fast", "optimizer.lr=fast is not a number."),
        ("optimizer.lr", "", "optimizer.lr= is not a number."),
        ("optimizer.lr", "nan", "optimizer.lr=nan is not a finite number."),
        ("epochs", "inf", "epochs=inf is not a finite number."),
        ("precision.loss_scale", "-inf", "precision.loss_scale=-inf is not a finite number."),
        ("seed", "1.5", "seed=1.5 is not a whole number."),
        ("data.global_batch", "many", "data.global_batch=many is not a whole number."),
        ("data.flip", "perhaps", "data.flip=perhaps is not true or false."),
        ("data.flip", "2", "data.flip=2 is not true or false."),
        ("mode", "Graph", "mode=Graph is not auto | eager | graph."),
        ("log.format", "json", "log.format=json is not resnext | tf | dll | events | mindspore."),
        ("optimizer.betas", "0.9", "optimizer.betas=0.9 is not 2 numbers such as 0.9,0.9."),
        ("optimizer.betas", "a,b", "optimizer.betas=a,b is not 2 numbers such as 0.9,0.9."),
        ("precision.keep_batchnorm_fp32", "maybe", "precision.keep_batchnorm_fp32=maybe is not true or false or none."),
        ("optimizer", "Adam", "optimizer=Adam is not Sgd or AdamW or RmsProp or Lars or Thor."),
        ("schedule", "linear", f"schedule=linear is not {SCHEDULES}."),
        ("schedule.mode", "exponential", "schedule.mode=exponential is not cosine | steps | poly | linear."),
        ("precision.fp16_scale", "auto", "precision.fp16_scale=auto is not a number or dynamic."),
        ("expects", "Top1", "expects=Top1 is not Top1 or none."),
        ("loss", "hinge", "loss=hinge is not CrossEntropy."),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_a_message(path: str, text: str, message: str) -> None:
    with pytest.raises(BadValue) as caught:
        override(RESNEXT if path == "schedule.mode" else BASE, path, text)
    assert str(caught.value) == message


@pytest.mark.parametrize("word", ["images", "source", "Shapes"])
def test_images_cannot_be_exchanged_by_a_word(word: str) -> None:
    with pytest.raises(BadValue, match=f"data={word} is not"):
        override(BASE, "data", word)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("optimizer.lr", "-1", "optimizer.lr is -1.0; it must be 0 or more"),
        ("accumulate", "3", r"accumulate is 3; it must be a divisor of data.global_batch \(8\)"),
        ("data.global_batch", "0", "data.global_batch is 0; it must be 1 or more"),
    ],
)
def test_a_value_out_of_range_is_refused(path: str, text: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        override(BASE, path, text)


@pytest.mark.parametrize(
    ("path", "closest"),
    [
        ("optimiser.lr", "optimizer.lr"),
        ("optimizer.Ir", "optimizer.lr"),
        ("optimizer.learning", "optimizer.epsilon|optimizer.lr"),
        ("epoch", "epochs"),
        ("checkpoint.every_step", "checkpoint.every_steps"),
        ("precision.compue", "precision.compute"),
        ("shedule", "schedule"),
        ("schedule.warmup", "schedule.warmup_epochs"),
    ],
)
def test_an_unknown_path_is_answered_with_the_closest(path: str, closest: str) -> None:
    with pytest.raises(UnknownName, match=rf"no field called '{path}'\.\n  Closest is '({closest})'"):
        override(BASE, path, "1")


@pytest.mark.parametrize("path", ["epochs.more", "optimizer.lr.peak", "model.depth"])
def test_a_path_that_goes_too_deep_says_where_it_left_the_recipe(path: str) -> None:
    with pytest.raises(BadValue, match=rf"'{path}' goes too deep: '{path.rpartition('.')[0]}' has no fields"):
        override(BASE, path, "1")


def test_a_field_of_a_part_that_is_a_function_is_changed_in_its_file() -> None:
    with pytest.raises(BadValue, match="optimizer is a function of its author: change it in the file"):
        override(replace(BASE, optimizer=lambda parameters: None), "optimizer.lr", "0.1")


def test_a_part_that_was_switched_has_its_own_fields() -> None:
    switched = override(override(BASE, "optimizer", "Sgd"), "optimizer.nesterov", "true")
    assert switched.optimizer == Sgd(nesterov=True)
    with pytest.raises(UnknownName, match=r"no field called 'optimizer.betas'"):
        override(switched, "optimizer.betas", "0.9,0.99")


def as_text(value: Any) -> str:
    """How a person would type it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("recipe", SHIPPED)
def test_every_path_of_every_recipe_can_be_read_and_set_to_what_it_is(recipe: Recipe) -> None:
    checked = 0
    for path in list_field_paths(recipe):
        value = read_field(recipe, path)
        if is_dataclass(value):
            continue
        assert override(recipe, path, as_text(value)) == recipe, path
        checked += 1
    assert checked > 40


def test_paths_reach_into_parts() -> None:
    found = list_field_paths(BASE)
    assert {"model", "optimizer", "optimizer.lr", "data.global_batch", "schedule.boundaries", "expects"} <= set(found)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("recipe", SHIPPED)
def test_every_recipe_survives_json(recipe: Recipe) -> None:
    stored = json.loads(json.dumps(to_record(recipe), allow_nan=False))
    assert from_record(stored, recipe) == recipe
    assert compare_records(stored, to_record(recipe)) == {}


@pytest.mark.parametrize("recipe", SHIPPED)
def test_changes_survive_json_although_the_base_has_other_values(recipe: Recipe) -> None:
    changed = override(override(recipe, "optimizer", "AdamW"), "optimizer.betas", "0.5,0.6")
    changed = override(override(changed, "schedule", "Steps"), "seed", "9")
    changed = replace(changed, expects=Top1(12.5, within=1.0), precision=Precision("O2", True, 512.0))
    stored = json.loads(json.dumps(to_record(changed)))
    assert from_record(stored, recipe) == changed


def own_model(classes: int) -> None: ...


def own_optimizer(parameters: object) -> None: ...


def make_images(path: Path | None) -> ImageSet: ...


@dataclass(frozen=True)
class Counting:
    every: int = 3


OWN = Recipe(
    model=own_model,
    data=Arrays(8, 16, make=make_images),
    optimizer=own_optimizer,
    callbacks=(own_model, Counting(5)),
)


def test_what_json_cannot_hold_comes_from_the_recipe_file() -> None:
    stored = json.loads(json.dumps(to_record(replace(OWN, seed=4))))
    assert stored["model"] == {"callable": "own_model"}
    assert from_record(stored, OWN) == replace(OWN, seed=4)


def test_a_part_takes_the_place_of_the_users_callable_and_survives_json() -> None:
    changed = override(override(OWN, "optimizer", "Sgd"), "model", "resnet20_cifar")
    assert from_record(json.loads(json.dumps(to_record(changed))), OWN) == changed


def test_a_part_that_is_gone_is_named() -> None:
    stored = to_record(BASE)
    stored["optimizer"]["is"] = "Muon"
    with pytest.raises(BadValue, match="the stored recipe has a part 'Muon' that this recipe does not know"):
        from_record(stored, BASE)


def test_a_field_that_is_newer_than_the_record_has_its_default() -> None:
    stored = to_record(replace(BASE, clip_norm=3.0))
    del stored["clip_norm"]
    assert from_record(stored, BASE).clip_norm == 0.0


def test_nothing_differs_from_itself() -> None:
    assert compare_records(to_record(OWN), to_record(OWN)) == {}


def test_another_kind_of_part_is_one_difference() -> None:
    before, after = to_record(BASE), to_record(replace(BASE, optimizer=Sgd()))
    assert list(compare_records(before, after)) == ["optimizer"]
    assert list(compare_records(to_record(OWN), to_record(replace(OWN, optimizer=Sgd())))) == ["optimizer"]
    assert compare_records(to_record(OWN), to_record(replace(OWN, optimizer=make_images))) == {
        "optimizer": ({"callable": "own_optimizer"}, {"callable": "make_images"})
    }


def test_values_of_one_part_differ_one_by_one() -> None:
    after = replace(BASE, optimizer=AdamW(lr=0.5, betas=(0.1, 0.2)), expects=Top1(90.0))
    found = compare_records(to_record(BASE), to_record(after))
    assert list(found) == ["optimizer.lr", "optimizer.betas", "expects"]
    assert found["optimizer.betas"] == ([0.9, 0.999], [0.1, 0.2])
