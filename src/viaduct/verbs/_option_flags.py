"""Flags of a verb from the fields of a dataclass.

    @with_option_flags
    def main(path: Path, options: Options) -> None:

The parameter `options` is replaced by one flag for each field of `Options` that has a `viaduct.flags.Flag`. `main`
receives an `Options`, in which fields without a flag have their defaults. If it is `Annotated[Options, Fields("to",
"only")]`, only these two fields have flags.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from viaduct.flags import Flag


class Fields:
    """Names of the fields that have a flag in this verb."""

    def __init__(self, *names: str) -> None:
        self.names = names


def with_option_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each parameter of a verb that is a dataclass by flags for its fields."""
    parameters: list[inspect.Parameter] = []
    # Name of a parameter that is a dataclass -> the dataclass, and the parameters for its flags.
    replaced: dict[str, tuple[Any, list[inspect.Parameter]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind, *metadata = typing.get_args(parameter.annotation) or [parameter.annotation]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter)
            continue
        chosen = next((item.names for item in metadata if isinstance(item, Fields)), None)
        flags = build_parameters(kind, chosen)
        replaced[parameter.name] = kind, flags
        parameters += flags

    @functools.wraps(function)
    def verb(**values: Any) -> Any:
        for name, (kind, flags) in replaced.items():
            values[name] = kind(**{flag.name: freeze(values.pop(flag.name, flag.default)) for flag in flags})
        return function(**values)

    return set_parameters(verb, parameters)


def freeze(value: Any) -> Any:
    """Return a list, as typer gives it for a repeated flag, as a tuple; other values unchanged."""
    return tuple(value) if isinstance(value, list) else value


def set_parameters(verb: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> Callable[..., Any]:
    """Give a function the parameters that typer shall read from its signature and annotations."""
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(verb)["__signature__"] = inspect.Signature(keywords, return_annotation=None)
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords} | {"return": None}
    return verb


def build_parameters(
    kind: Any, names: Iterable[str] | None = None, prefix: str = "", heading: str = ""
) -> list[inspect.Parameter]:
    """Return the parameters for the fields of a dataclass that have a Flag; with `names` only for these fields.

    `prefix` begins the names of the flags; `heading`, if not empty, replaces the headings of the fields.
    """
    types = typing.get_type_hints(kind, include_extras=True)
    parameters = []
    for field in dataclasses.fields(kind):
        field_type, *metadata = typing.get_args(types[field.name]) or [types[field.name]]
        flag = next((item for item in metadata if isinstance(item, Flag)), None)
        if flag is not None and (names is None or field.name in names):
            flag = dataclasses.replace(flag, heading=heading or flag.heading)
            parameters.append(build_parameter(prefix + field.name, field_type, field.default, flag))
    return parameters


def build_parameter(name: str, kind: Any, default: Any, flag: Flag) -> inspect.Parameter:
    """Return the parameter of a verb for one field; a field with a tuple becomes a flag that may be repeated."""
    if typing.get_origin(kind) is tuple:
        kind, default = list[str], []
    option = typer.Option(
        flag.name or "--" + name.replace("_", "-"),  # named, so that a switch has no --no-… beside it
        help=flag.help,
        show_default=flag.default or default not in ("", None, []),
        metavar=flag.metavar or None,
        min=flag.minimum,
        rich_help_panel=flag.heading or None,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
