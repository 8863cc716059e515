"""Reports errors in functions of a recipe's author in a few lines, with the line in the author's file.

optimizer = call_recipe_part("optimizer", recipe.optimizer, parameters)    also checks the type of the result
with explain_recipe_errors(recipe, step): ...                              for errors in a step or an evaluation
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from viaduct.devices.base import summarise_error
from viaduct.errors import BadValue, ViaductError, is_out_of_memory
from viaduct.models import sources
from viaduct.recipes import Recipe
from viaduct.training.distributed import is_lost_connection

PARTS = ("model", "loss", "optimizer", "schedule")  # fields of a recipe that may be functions of its author
# The type that such a function must return, and the type's name for messages.
RESULTS: dict[str, tuple[type, str]] = {
    "model": (nn.Module, "torch.nn.Module"),
    "optimizer": (torch.optim.Optimizer, "torch.optim.Optimizer"),
}
ONE_VALUE_PER_CHANNEL = "more than 1 value per channel"  # in torch's error for a batch too small for a batch norm


def call_recipe_part(part: str, function: Callable[..., Any], *args: Any) -> Any:
    """Return the network or optimizer that a function of the recipe builds; raise BadValue for another type."""
    with explain_part_errors(part, function):
        built = function(*args)
    kind, name = RESULTS[part]
    if not isinstance(built, kind):
        raise BadValue(f"the recipe's {part} made a {type(built).__name__}, not a {name}.")
    return built


@contextmanager
def explain_part_errors(part: str, function: Any) -> Iterator[None]:
    """Turn an error of the author's function into a BadValue that names the recipe's part, except lack of memory.

    `part` is the name for the message; `function` is the author's function, whose file is looked for in the traceback.
    """
    try:
        yield
    except ViaductError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        hints = find_author_line(error, [function])
        raise BadValue(f"the recipe's {part} fails: {summarise_error(error)}", *hints) from error


def check_callbacks(callbacks: Iterable[object]) -> None:
    """Raise BadValue if an object among the callbacks is no Callback."""
    from viaduct.training.callbacks import Callback

    for callback in callbacks:
        if not isinstance(callback, Callback):
            message = f"callbacks has {callback!r}; it must be objects of viaduct.training.callbacks.Callback."
            raise BadValue(message, "Give an instance, not the class: callbacks=(MyCallback(),)")


@contextmanager
def explain_callback_errors(callback: Any, event: str) -> Iterator[None]:
    """Turn an error in a callback of the recipe's author into a BadValue with the line.

    An error in a callback of viaduct keeps its traceback.
    """
    kind = type(callback)
    if kind.__module__.partition(".")[0] == "viaduct":
        yield
        return
    with explain_part_errors(f"callback {kind.__name__}.{event}", getattr(kind, event)):
        yield


@contextmanager
def explain_recipe_errors(recipe: Recipe, step: int | None) -> Iterator[None]:
    """Turn errors of the author's parts into BadValue. `step` is counted from 0; it is None in an evaluation.

    The author's parts are functions, and a network outside of viaduct, whose code may fail without a bug of viaduct:
    `recipe.model` is then `timm:NAME`, `torchvision:NAME` or `package.module:function`. If the recipe has such parts,
    every error of the first step is attributed to them. Later only errors in the author's code, network or optimizer
    are; any other one is a bug of viaduct and keeps its traceback. Lack of memory, a batch too small for a batch norm
    and a lost rank are raised unchanged.
    """
    own_parts = {part: value for part in PARTS if callable(value := getattr(recipe, part))}
    if sources.is_foreign(recipe.model):
        own_parts["model"] = recipe.model
    try:
        yield
    except ViaductError:
        raise
    except (Exception, SystemExit) as error:
        if not own_parts or is_out_of_memory(error) or ONE_VALUE_PER_CHANNEL in str(error):
            raise
        if isinstance(error, RuntimeError) and is_lost_connection(error):
            raise  # a layer may be the first to notice that another rank is gone
        layer = describe_failing_layer(error, own_parts.get("model"))
        parts = own_parts.values()
        # Names of timm and torchvision remain strings: there is no file of the author to look for.
        functions = [sources.find_function(part) if sources.is_function(part) else part for part in parts]
        evidence = [*layer, *find_author_line(error, functions)]
        objects = [frame.f_locals.get("self") for frame in list_frames(error)]
        in_optimizer = any(isinstance(instance, torch.optim.Optimizer) for instance in objects)
        if step != 0 and not evidence and not (in_optimizer and "optimizer" in own_parts):
            raise
        names = [f"{part} ({value})" if isinstance(value, str) else part for part, value in own_parts.items()]
        when = "the evaluation" if step is None else "the first step" if step == 0 else f"step {step + 1}"
        raise BadValue(
            f"{when} of {recipe.data.global_batch} images of {recipe.data.size} pixels fails: {summarise_error(error)}",
            *evidence,
            *suggest_size(recipe),
            f"The recipe's own parts: {', '.join(names)}.",
        ) from error


def suggest_size(recipe: Recipe) -> list[str]:
    """Return the image size that a network of timm or torchvision is made for, if the recipe has another one."""
    if not sources.is_foreign(recipe.model) or sources.is_function(str(recipe.model)):
        return []
    size = sources.read_input(str(recipe.model)).size
    hint = f"{recipe.model} is made for images of {size} pixels: --set data.size={size}"
    return [] if size == recipe.data.size else [hint]


def describe_failing_layer(error: BaseException, model: Callable[..., Any] | str | None) -> list[str]:
    """Describe the innermost layer of the author's network in the traceback, with the shapes of its inputs."""
    # Local variables of each method of a module in the traceback; torch's Module._call_impl has `args`.
    calls = [frame.f_locals for frame in list_frames(error) if isinstance(frame.f_locals.get("self"), nn.Module)]
    if model is None or not calls:
        return []
    names = {id(layer): name for name, layer in calls[0]["self"].named_modules()}
    innermost = next((call for call in reversed(calls) if id(call["self"]) in names), calls[0])
    layer, name = innermost["self"], names[id(innermost["self"])]
    inputs = next((call["args"] for call in reversed(calls) if call["self"] is layer and "args" in call), ())
    shapes = ["x".join(map(str, value.shape)) or "a scalar" for value in inputs if isinstance(value, torch.Tensor)]
    location = f"in layer {name!r}" if name else "in the network itself"
    kind = repr(layer).partition("\n")[0] if not list(layer.children()) else type(layer).__name__
    line = f"{location}, {kind}" + (f", given {' and '.join(shapes)}" if shapes else "")
    # Layers of an nn.Sequential are called by torch's code, so that no line of the author is in the traceback: name the
    # function that builds the network.
    code = find_code(model)
    return [f"{line}; the network is made in {code.co_filename}, line {code.co_firstlineno}" if code else line]


def list_frames(error: BaseException) -> list[FrameType]:
    """Return the frames of the error, outermost first, followed by those of its cause."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    cause = error.__cause__ or error.__context__
    return [*frames, *(list_frames(cause) if cause is not None else [])]


def find_author_line(error: BaseException, functions: Iterable[Any]) -> list[str]:
    """Describe the innermost line of the traceback that is in a file of these functions; [] if there is none."""
    files = {code.co_filename for function in functions if (code := find_code(function))}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return [f"{frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}"] if frames else []


def find_code(function: Any) -> CodeType | None:
    """Return the code object of a function, of a functools.partial's function or of a class's __init__, or None."""
    entry = vars(function).get("__init__") if isinstance(function, type) else function
    return getattr(getattr(entry, "func", entry), "__code__", None)  # func: of a functools.partial
