"""Search spaces: what is refused comes first, each with field, value and what is allowed."""

from __future__ import annotations

import pytest

from viaduct.errors import BadValue, UnknownName, ViaductError
from viaduct.recipes import Recipe, load
from viaduct.runs.search.space import Choices, Range, parse_space

RECIPE = load("shapes_taster").recipe
STEPS_RECIPE = load("resnet56_cifar10").recipe


def parse_one(text: str, recipe: Recipe = RECIPE) -> Range | Choices:
    return parse_space(recipe, [text]).dimensions[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.lr=-1..1", "optimizer.lr is -1.0; it must be 0 or more"),
        ("optimizer.momentum=0.5..1", "optimizer.momentum is 1.0; it must be at least 0 and below 1"),
        ("optimizer.momentum=0.5,1.5", "optimizer.momentum is 1.5"),
        ("schedule.floor=0..2", "schedule.floor is 2.0; it must be from 0 to 1"),
        ("data.cutout=-8,0", "data.cutout is -8; it must be 0 or more"),
        ("optimizer.lr=0..1:log", "a log scale needs bounds above 0"),
        ("optimizer.lr=1..0.1", "1 is not below 0.1"),
        ("optimizer.lr=0.1..0.1", "0.1 is not below 0.1"),
        ("optimizer.lr=0.1..fast", "'fast' is not a number"),
        ("optimizer.lr=0.1..inf", "'inf' is not a number"),
        ("optimizer.lr=0.1..1:often", "'often' is neither log nor step="),
        ("optimizer.lr=0.1..1:step=0", "it must be above 0"),
        ("optimizer.lr=0.1..1:step=5", "larger than the range"),
        ("optimizer.lr=0.1..1:log:step=0.1", "a log scale has no steps"),
        ("optimizer.lr=0.1", "is one value"),
        ("optimizer.lr=0.1,0.10", "is there twice"),
        ("optimizer.lr=0.1,,1", "empty value"),
        ("optimizer.lr", "has no values"),
        ("optimizer.lr=", "has no values"),
        ("optimizer.lr=fast,slow", "optimizer.lr=fast is not a number"),
        ("data.cutout=0..8.5", "8.5 is not a whole number"),
        ("optimizer.nesterov=0..1", "a range needs a field that is a number; optimizer.nesterov is true or false"),
        ("optimizer.decay=all,some", "optimizer.decay=some is not all | not_norm | weights"),
        ("epochs=1..9", "every trial trains equally long"),
        ("seed=1,2,3", "luck"),
        ("seed=1,2", "--set seed=N"),
        ("log.every_steps=1,2", "does not change what is learned"),
    ],
)
def test_a_space_that_the_recipe_would_refuse_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_one(text)
    assert message in str(refused.value)
    assert text.split("=")[0].split(".")[-1] in str(refused.value)


@pytest.mark.parametrize(
    ("text", "closest"),
    [("optimizer.learning_rate=0.1..1", "optimizer"), ("optimiser.lr=0.1..1", "optimizer.lr"), ("lr=0..1", "There")],
)
def test_an_unknown_field_names_the_closest(text: str, closest: str) -> None:
    with pytest.raises(UnknownName, match="no field called") as refused:
        parse_one(text)
    assert closest in str(refused.value)


def test_a_field_is_named_once_and_not_set_too() -> None:
    with pytest.raises(BadValue, match="twice"):
        parse_space(RECIPE, ["optimizer.lr=0.1..1", "optimizer.lr=0.1,1"])
    with pytest.raises(BadValue, match="set to one value"):
        parse_space(RECIPE, ["optimizer.lr=0.1..1"], fixed=["optimizer.lr"])
    with pytest.raises(BadValue, match="No --space"):
        parse_space(RECIPE, [])


def test_a_range_has_bounds_a_scale_and_a_step() -> None:
    assert parse_one("optimizer.lr=0.01..1:log") == Range("optimizer.lr", "0.01..1:log", 0.01, 1.0, log=True)
    stepped = parse_one("schedule.warmup_epochs=0..9.5:step=2")
    assert isinstance(stepped, Range)
    assert (stepped.high, stepped.step, stepped.integer) == (8.0, 2.0, False)
    found = parse_one("data.cutout=0..16")
    assert isinstance(found, Range)
    assert found.integer
    assert found.format_setting(8) == "8"


def test_lists_keep_the_texts_that_set_takes() -> None:
    found = parse_one("optimizer.nesterov=true,false")
    assert isinstance(found, Choices)
    assert found.texts == ("true", "false")
    assert found.stored == (True, False)
    boundaries = parse_one("schedule.boundaries=30,60,90;40,80,120", STEPS_RECIPE)
    assert isinstance(boundaries, Choices)
    assert boundaries.stored == ([30, 60, 90], [40, 80, 120])


def test_whole_parts_are_set_before_their_fields() -> None:
    space = parse_space(RECIPE, ["optimizer.lr=0.001..0.1:log", "optimizer=Sgd,AdamW"])
    assert space.paths == ("optimizer", "optimizer.lr")
    assert list(space.make_settings({"optimizer.lr": 0.01, "optimizer": "AdamW"})) == ["optimizer", "optimizer.lr"]


def test_values_of_a_recipe_are_found_in_the_space_or_named() -> None:
    space = parse_space(RECIPE, ["optimizer.lr=0.01..1:log", "optimizer.nesterov=true,false"])
    assert space.find_values(RECIPE) == {"optimizer.lr": 0.1, "optimizer.nesterov": "true"}
    outside = parse_space(RECIPE, ["optimizer.lr=0.2..1:log"])
    assert outside.find_values(RECIPE) == "optimizer.lr"


def test_a_grid_has_every_combination_and_needs_to_know_the_values() -> None:
    space = parse_space(RECIPE, ["optimizer.momentum=0,0.9", "schedule.warmup_epochs=0..2:step=1"])
    assert len(space.list_combinations()) == 6
    assert space.list_combinations()[1] == {"optimizer.momentum": "0", "schedule.warmup_epochs": 1.0}
    with pytest.raises(ViaductError, match="a grid needs single values"):
        parse_space(RECIPE, ["optimizer.lr=0.01..1:log"]).list_combinations()
    with pytest.raises(ViaductError, match="at most 1,000"):
        parse_space(RECIPE, ["optimizer.lr=0.01..1:step=0.0001"]).list_combinations()
