"""Check the fields of a frozen dataclass against their annotations, and describe types for error messages.

    check_fields(Sgd(lr="fast"), "optimizer")     optimizer.lr is 'fast'; it must be a number.
    check_fields(Sgd(lr=-1.0), "optimizer")       optimizer.lr is -1.0; it must be 0 or more.

Bounds are part of the annotation, with annotated-types: `lr: Annotated[float, Ge(0)]`. A list where a tuple is expected
is converted to a tuple. Numbers must be finite.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt

from viaduct.errors import BadValue

TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a name", type(None): "none"}
INTEGER_LIMIT = 1 << 63  # arrays and files hold whole numbers from -2**63 to 2**63 - 1
MAX_SHOWN_VALUE = 100  # characters; longer values in an error message are shortened


def cache_by_class(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """Cache a function of classes; mypy accepts no dataclass as an argument of a function that `cache` decorates."""
    return functools.cache(function)


@cache_by_class
def get_field_types(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass, without their bounds."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@cache_by_class
def get_bounded_annotations(kind: Any) -> dict[str, Any]:
    """Return the annotations, with bounds, of the fields that have bounds."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return {name: annotation for name, annotation in fields.items() if list_bounds(annotation)}


def list_bounds(annotation: Any) -> list[BaseMetadata]:
    """Return the distinct bounds of an annotation, including those nested in a union or tuple."""
    if typing.get_origin(annotation) is Annotated:
        return [bound for bound in annotation.__metadata__ if isinstance(bound, BaseMetadata)]
    inner = [bound for part in typing.get_args(annotation) for bound in list_bounds(part)]
    return list(dict.fromkeys(inner))


def is_within(value: Any, bounds: list[BaseMetadata]) -> bool:
    """Return True if a number, or each number of a tuple, is within the bounds. Other values have no bounds: True."""
    if isinstance(value, tuple | list):
        return all(is_within(item, bounds) for item in value)
    if not isinstance(value, float | int):
        return True
    tests = {Ge: operator.ge, Gt: operator.gt, Le: operator.le, Lt: operator.lt}
    return all(tests[type(bound)](value, get_limit(bound)) for bound in bounds)


def get_limit(bound: Any) -> Any:
    """Return the number of a bound, such as 0 for Ge(0)."""
    return next(getattr(bound, field.name) for field in dataclasses.fields(bound))


def spell_bounds(annotation: Any) -> str:
    """Return the bounds of a field in words, for an error message."""
    limits = {type(bound): get_limit(bound) for bound in list_bounds(annotation)}
    low = f"above {limits[Gt]}" if Gt in limits else f"at least {limits[Ge]}"
    interval = low if Gt in limits else f"{limits[Ge]} or more"
    if Le in limits:
        interval = f"from {limits[Ge]} to {limits[Le]}" if Ge in limits else f"{low}, at most {limits[Le]}"
    elif Lt in limits:
        interval = f"{low} and below {limits[Lt]}"
    others = [part for part in typing.get_args(annotation) if typing.get_origin(annotation) is not Annotated]
    choices = [str(choice) for part in others if typing.get_origin(part) is Literal for choice in typing.get_args(part)]
    return ", or ".join([interval, *choices, *(["none"] if type(None) in others else [])])


def check_fields(instance: Any, prefix: str = "") -> None:
    """Raise BadValue for the first field whose value has another type or is out of bounds.

    `prefix` is the instance's path within a recipe, such as `optimizer`, for the message.
    """
    try:
        hints = get_field_types(type(instance))
    except NameError:  # a user's class whose annotations are imported under TYPE_CHECKING only
        return
    for name, kind in hints.items():
        value = getattr(instance, name)
        if requirement := find_violated_requirement(value, kind):
            path = f"{prefix}.{name}" if prefix else name
            raise BadValue(f"{path} is {show_value(value)}; it must be {requirement}.")
        if typing.get_origin(kind) is tuple and isinstance(value, list):
            object.__setattr__(instance, name, tuple(value))  # the dataclass is frozen
    for name, annotation in get_bounded_annotations(type(instance)).items():
        value = getattr(instance, name)
        if not is_within(value, list_bounds(annotation)):
            path = f"{prefix}.{name}" if prefix else name
            raise BadValue(f"{path} is {show_value(value)}; it must be {spell_bounds(annotation)}.")


def find_violated_requirement(value: Any, kind: Any) -> str:
    """Return what the value must be, for an error message; empty if it has the type `kind`."""
    if matches(value, kind):
        return ""
    if isinstance(value, int) and not -INTEGER_LIMIT <= value < INTEGER_LIMIT:
        return "between -2**63 and 2**63"
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    return "finite" if is_infinite and matches(0.0, kind) else spell_type(kind)


def matches(value: Any, kind: Any) -> bool:
    """Return True if a value has a type, which may be a union, Literal, tuple or Callable.

    Unlike isinstance: an int is also a float, a bool is not a number, a list is also a tuple, floats must be finite and
    ints within 64 bits. The items of a dict are not tested.
    """
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(matches(value, part) for part in typing.get_args(kind))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in typing.get_args(kind))
    if origin is tuple:
        return isinstance(value, tuple | list) and matches_items(value, typing.get_args(kind))
    if origin is collections.abc.Callable:
        return callable(value)
    if kind is Any:
        return True
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool) and is_finite(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -INTEGER_LIMIT <= value < INTEGER_LIMIT
    return isinstance(value, origin or kind)


def list_alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; of any other type, the type alone."""
    return typing.get_args(kind) if typing.get_origin(kind) in (Union, types.UnionType) else (kind,)


def is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def matches_items(values: collections.abc.Sequence[Any], kinds: tuple[Any, ...]) -> bool:
    if kinds[-1] is Ellipsis:
        return all(matches(value, kinds[0]) for value in values)
    return len(values) == len(kinds) and all(matches(value, kind) for value, kind in zip(values, kinds, strict=True))


def spell_type(kind: Any) -> str:
    """Return the type in words, for an error message."""
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(spell_type(part) for part in typing.get_args(kind)))
    if origin is Literal:
        return " | ".join(map(str, typing.get_args(kind)))
    if origin is tuple:
        return spell_tuple(typing.get_args(kind))
    if origin is collections.abc.Callable:
        return "a function"
    if origin is dict:  # only a recipe's `metrics`
        return "a dictionary of functions, which a recipe file can hold"
    return TYPE_NAMES.get(kind) or str(getattr(kind, "__name__", kind))


def spell_tuple(kinds: tuple[Any, ...]) -> str:
    """Describe a tuple of these types as on the command line: "2 numbers such as 0.9,1"."""
    if kinds[-1] is not Ellipsis:
        example = ",".join({float: "0.9", int: "1"}.get(kind, "name") for kind in kinds)
        return f"{len(kinds)} numbers such as {example}" if set(kinds) <= {int, float} else f"{len(kinds)} values"
    return "a list of numbers such as 30,60,80" if kinds[0] in (int, float) else "a list"


def show_value(value: Any) -> str:
    """Return the repr of a value, shortened for a message."""
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        shown = "a number of thousands of digits"
    return shown if len(shown) <= MAX_SHOWN_VALUE else shown[: MAX_SHOWN_VALUE - 2] + " …"
