"""Parts of a recipe that its author wrote: what is wrong with them is told in two lines, with the place in the file.

`made_by("optimizer", recipe.optimizer, parameters)` is what such a function makes. What a network, a loss or an
optimizer cannot do shows only in a step: the first one runs within `first_step_of(recipe)`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch import nn

from viaduct.devices.base import first_line
from viaduct.errors import BadValue, ViaductError, lacks_memory
from viaduct.recipes import Recipe

PARTS = ("model", "loss", "optimizer")
KINDS: dict[str, tuple[type, str]] = {
    "model": (nn.Module, "torch.nn.Module"),
    "optimizer": (torch.optim.Optimizer, "torch.optim.Optimizer"),
}
ONE_VALUE = "more than 1 value per channel"  # of a batch norm: the batch is too small, whoever wrote the network


def made_by(what: str, function: Callable[..., Any], *given: Any) -> Any:
    """What it makes of what it is given."""
    try:
        made = function(*given)
    except ViaductError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise
        raise BadValue(f"the recipe's {what} fails: {first_line(error)}", *place_of(error, [function])) from error
    kind, name = KINDS[what]
    if not isinstance(made, kind):
        raise BadValue(f"the recipe's {what} made a {type(made).__name__}, not a {name}.")
    return made


@contextmanager
def first_step_of(recipe: Recipe) -> Iterator[None]:
    own = {part: made for part in PARTS if callable(made := getattr(recipe, part))}
    try:
        yield
    except ViaductError:
        raise
    except Exception as error:
        if not own or lacks_memory(error) or ONE_VALUE in str(error):
            raise
        source = recipe.data
        raise BadValue(
            f"the first step of {source.global_batch} pictures of {source.size} pixels fails: {first_line(error)}",
            *place_of(error, list(own.values())),
            f"Parts that the recipe brings along: {', '.join(own)}.",
        ) from error


def place_of(error: BaseException, functions: list[Callable[..., Any]]) -> list[str]:
    """The last line of the author's file that took part, if one did."""
    files = {code.co_filename for function in functions if (code := code_of(function))}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return [f"{frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}"] if frames else []


def code_of(function: Any) -> CodeType | None:
    """Of a function, or of a class's way to begin."""
    begins = vars(function).get("__init__") if isinstance(function, type) else function
    return getattr(begins, "__code__", None)
