"""A function of an installed package, or of a module in the working directory: `package.module:function`.

The function is called with the number of classes: as the keyword `num_classes` or `classes` if it has such a parameter,
otherwise usually as the first positional argument (see `find_class_parameter`).
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from viaduct.errors import BadValue, UnknownName, ViaductError
from viaduct.models.sources import InputSettings

CLASS_PARAMETERS = ("num_classes", "classes")
UNNAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # *arguments and **keywords


def build(name: str, classes: int, **options: Any) -> Any:
    """Return the network that the function builds; raise BadValue if it fails or returns something else."""
    from torch import nn

    function = find_function(name)
    keyword = find_class_parameter(name, function, options)
    try:
        network = function(**{keyword: classes}, **options) if keyword else function(classes, **options)
    except ViaductError:
        raise
    except (Exception, SystemExit) as error:
        raise BadValue(f"{name} fails: {type(error).__name__}: {error}") from error
    if not isinstance(network, nn.Module):
        raise BadValue(f"{name} made a {type(network).__name__}, not a torch.nn.Module.")
    return network


def list_names() -> list[str]:
    """Return no names: functions are not registered."""
    return []


def read_input(name: str) -> InputSettings:
    """Return ImageNet's usual settings."""
    return InputSettings()


def find_function(name: str) -> Callable[..., Any]:
    """Import the module, also from the working directory, and return its function."""
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise BadValue(
                f"there is no module {module_name!r} to take the network {name!r} from.",
                "Other sources are timm:NAME and torchvision:NAME; a module must be installed or lie in this folder.",
            ) from None
        raise BadValue(f"{module_name} cannot be imported: {error}.") from error
    except (Exception, SystemExit) as error:
        raise BadValue(f"{module_name} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, attribute, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UnknownName(f"function of {module_name}", attribute, known)
    if not callable(function):
        raise BadValue(f"{name} is a {type(function).__name__}, not a function that makes a network.")
    network_function: Callable[..., Any] = function
    return network_function


def find_class_parameter(name: str, function: Callable[..., Any], options: dict[str, Any]) -> str:
    """Return the keyword under which a function takes the number of classes; empty if it takes it by position.

    A function with **keywords and no positional parameter gets `num_classes`. Raise BadValue for a function that takes
    no number of classes, or has other required arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in function without a signature
        return ""
    kinds = {parameter.kind for parameter in parameters}
    named = [parameter for parameter in parameters if parameter.kind not in UNNAMED]
    by_position = [parameter.name for parameter in named if parameter.kind != parameter.KEYWORD_ONLY]
    keyword = next((known for known in CLASS_PARAMETERS if any(parameter.name == known for parameter in named)), "")
    supplied = {keyword, *options} if keyword else {*by_position[:1], *options}
    required = [parameter.name for parameter in named if parameter.default is parameter.empty]
    missing = [key for key in required if key not in supplied]
    if missing:
        message = f"{name} needs more arguments than the number of classes: {', '.join(missing)}."
        raise BadValue(message, "Write a function of your own that gives them: def make(classes): return …")
    if keyword or by_position:
        return keyword
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return "num_classes"
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return ""
    raise BadValue(f"{name} takes no number of classes.", "Give it a parameter called num_classes or classes.")
