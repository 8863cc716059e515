"""Values of the wrong kind, in every field of every part of a recipe."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

from viaduct import recipes
from viaduct.errors import BadValue, ViaductError
from viaduct.recipes import _parts, load
from viaduct.typed_fields import get_field_types, matches


def is_part(kind: object) -> bool:
    return inspect.isclass(kind) and issubclass(kind, _parts.Part) and kind is not _parts.Part


PARTS = [kind for _, kind in inspect.getmembers(_parts, is_part)]
SOURCES = [recipes.Cifar10, recipes.Shapes, recipes.Records, recipes.FashionMnist]
WRONG: list[Any] = ["fast", None, True, 3, -1, 1.5, math.nan, math.inf, [], (1,), ("a", "b"), {}, b"x", object, [[1]]]


def make_part(kind: type, **changes: Any) -> Any:
    if kind is recipes.Recipe:
        return dataclasses.replace(load("shapes_taster").recipe, **changes)
    if kind is recipes.Top1:
        return recipes.Top1(**{"percent": 90.0, **changes})
    return kind(**{"global_batch": 8, "size": 32, **changes} if kind in SOURCES else changes)


@pytest.mark.parametrize("kind", [*PARTS, *SOURCES], ids=lambda kind: kind.__name__)
def test_a_value_of_the_wrong_type_is_refused_with_its_field(kind: type) -> None:
    refused = 0
    for name, expected in get_field_types(kind).items():
        for value in WRONG:
            if matches(value, expected):
                continue
            with pytest.raises(BadValue) as caught:
                make_part(kind, **{name: value})
            first = str(caught.value)
            assert name in first
            assert repr(value)[:20] in first
            assert "; it must be " in first
            refused += 1
    assert refused or not get_field_types(kind)


@pytest.mark.parametrize("kind", [*PARTS, *SOURCES], ids=lambda kind: kind.__name__)
def test_a_value_of_the_right_type_is_taken_or_refused_with_a_message(kind: type) -> None:
    for name, expected in get_field_types(kind).items():
        for value in [value for value in WRONG if matches(value, expected)]:
            with contextlib.suppress(ViaductError):  # anything else is a traceback
                make_part(kind, **{name: value})


def test_a_number_that_is_not_finite_is_called_so() -> None:
    with pytest.raises(BadValue, match=r"^optimizer\.lr is nan; it must be finite\.$"):
        recipes.Sgd(lr=math.nan)
    with pytest.raises(BadValue, match=r"^optimizer\.lr is 'fast'; it must be a number\.$"):
        recipes.Sgd(lr="fast")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=r"^optimizer\.betas is \(0\.9,\); it must be 2 numbers such as 0\.9,0\.9\.$"):
        recipes.AdamW(betas=(0.9,))  # type: ignore[arg-type]


def test_a_list_becomes_a_tuple() -> None:
    assert recipes.AdamW(betas=[0.8, 0.9]).betas == (0.8, 0.9)  # type: ignore[arg-type]


def test_a_wrong_value_in_a_recipe_file_is_named_with_its_line(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    text = "from viaduct.recipes import *\n\nrecipe = Recipe(\n    model='resnet20_quick',\n    data=Shapes(8, 32),\n"
    file.write_text(text + "    optimizer=Sgd(lr='fast'),\n)\n")
    with pytest.raises(BadValue) as caught:
        load(str(file))
    assert str(caught.value) == f"optimizer.lr is 'fast'; it must be a number.\n  in {file}, line 6"


@pytest.mark.parametrize("call", ["sys.exit(0)", "exit('bye')", "raise SystemExit"])
def test_a_recipe_that_ends_the_program_is_refused_with_its_line(tmp_path: Any, call: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import sys\n\n{call}\n")
    with pytest.raises(BadValue, match=rf"ends the program: SystemExit\(.*\)\.\n  in {file}, line 3"):
        load(str(file))


def test_ctrl_c_in_a_recipe_stays_ctrl_c(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(str(file))


@pytest.mark.parametrize(
    ("make_wrong", "message"),
    [
        (lambda: recipes.AdamW(betas=(0.9, 1.0)), r"betas is \(0\.9, 1\.0\); it must be at least 0 and below 1\."),
        (lambda: recipes.LarsPolynomial(peak=0), r"schedule\.peak is 0; it must be above 0, or none\."),
        (
            lambda: recipes.Precision(loss_scale=-1),
            r"loss_scale is -1; it must be above 0, or auto, or dynamic\.",
        ),
        (lambda: recipes.Amoebanet(dropout_keep=0), r"network\.dropout_keep is 0; it must be above 0, at most 1\."),
        (lambda: recipes.Top1(101), r"expects\.percent is 101; it must be from 0 to 100\."),
    ],
)
def test_a_number_out_of_its_bounds_is_named_with_them(make_wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        make_wrong()


def test_numbers_at_a_closed_bound_are_taken() -> None:
    assert recipes.Top1(100).percent == 100
    assert recipes.AdamW(betas=(0.0, 0.5)).betas == (0.0, 0.5)
    assert recipes.LarsPolynomial(peak=None).peak is None
