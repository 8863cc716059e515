"""Reading and changing the fields of a recipe by their path, checked against their types.

override(recipe, "optimizer.lr", "0.05")         changes a field
override(recipe, "optimizer", "AdamW")           replaces a part by another one, with the defaults of its class
record = to_record(recipe)                       turns a recipe into values that JSON has
from_record(record, base)                        turns them back; functions are taken from the recipe `base`
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, Union

from viaduct.errors import BadValue, UnknownName
from viaduct.typed_fields import get_field_types, show_value, spell_type

Part = TypeVar("Part")
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def override(recipe: Part, path: str, text: str, *, full_path: str = "") -> Part:
    """Return a copy of the recipe with the field at `path` set to the value of a text.

    Raise UnknownName for an unknown path; BadValue for a path into a field that has no fields, or a text that the
    field's type does not accept. In the recursion `recipe` is a part, and `full_path` its field's path for messages.
    """
    name, _, inner_path = path.partition(".")
    full_path = full_path or path
    types_by_name = get_field_types(type(recipe))
    if name not in types_by_name:
        prefix = full_path.removesuffix(path)
        known = [*(prefix + field for field in types_by_name), *list_field_paths(recipe, prefix)]
        raise UnknownName("field", full_path, known)
    part = getattr(recipe, name)
    if not inner_path:
        value = parse(text, types_by_name[name], full_path)
    elif dataclasses.is_dataclass(part):
        value = override(part, inner_path, text, full_path=full_path)
    else:
        outer = full_path.removesuffix("." + inner_path)
        remedy = f"The recipe's {outer} is a function of its author: change it in the file."
        message = f"{full_path!r} goes too deep: {outer!r} has no fields of its own."
        raise BadValue(message, *([remedy] if callable(part) else []))
    changed: Part = dataclasses.replace(recipe, **{name: value})  # type: ignore[type-var]
    return changed


def override_fields(recipe: Part, changes: Iterable[tuple[str, str]]) -> Part:
    """Return a copy of the recipe with changes (path, text) applied in order."""
    for path, text in changes:
        recipe = override(recipe, path, text)
    return recipe


def list_field_paths(part: Any, prefix: str = "") -> list[str]:
    """Return the paths of all fields of a recipe or a part, with a prefix."""
    paths = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        paths.append(prefix + field.name)
        if dataclasses.is_dataclass(value):
            paths += list_field_paths(value, f"{prefix}{field.name}.")
    return paths


def read_field(recipe: Any, path: str) -> Any:
    """Return the value of the field at a path."""
    for name in path.split("."):
        recipe = getattr(recipe, name)
    return recipe


def parse(text: str, kind: Any, path: str) -> Any:
    """Parse text as the type of a field; raise BadValue with the path if the type has no such value."""
    try:
        return parse_as(text, kind)
    except (ValueError, TypeError):
        is_unbounded = text.strip("+- ").lower() in ("nan", "inf", "infinity")
        raise BadValue(f"{path}={text} is not {'a finite number' if is_unbounded else spell_settable(kind)}.") from None


def spell_settable(kind: Any) -> str:
    """Describe the values that `--set` accepts, without functions, which only a recipe file may have."""
    kinds = [part for part in typing.get_args(kind) if typing.get_origin(part) is not Callable]
    is_union = typing.get_origin(kind) in (Union, types.UnionType) and kinds
    return " or ".join(spell_type(part) for part in kinds) if is_union else spell_type(kind)


def parse_as(text: str, kind: Any) -> Any:
    """Parse text as a type; raise ValueError or TypeError if the type has no such value."""
    origin = typing.get_origin(kind)
    if origin in (Union, types.UnionType):
        # The first type that accepts the text; a plain string accepts anything, so it is tried last.
        for option in sorted(typing.get_args(kind), key=lambda option: option is str):
            with contextlib.suppress(ValueError, TypeError):
                return parse_as(text, option)
        raise ValueError(text)
    if origin is Literal:
        if text not in typing.get_args(kind):
            raise ValueError(text)
        return text
    if origin is tuple:
        return parse_tuple(text, typing.get_args(kind))
    if origin is dict and text.strip() == "{}":  # the field `metrics` has functions: a text can only empty it
        return {}
    if kind is bool and text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    if kind is float and not math.isfinite(float(text)):  # no field accepts infinity, and JSON has none
        raise ValueError(text)
    if kind in (int, str, float):
        return kind(text)
    if kind is type(None) and text.lower() in ("none", "null"):
        return None
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and text.lower() == kind.__name__.lower():
        return kind()
    raise ValueError(text)


def parse_tuple(text: str, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Parse values separated by commas or blanks."""
    items = [item for item in text.strip("()[] ").replace(" ", ",").split(",") if item]
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(items)
    if len(items) != len(kinds):
        raise ValueError(text)
    return tuple(parse_as(item, kind) for item, kind in zip(items, kinds, strict=True))


def to_record(value: Any) -> Any:
    """Return the value in types of JSON.

    A part of a recipe becomes a dict of its fields, with the name of its class under the key "is"; a function becomes
    its name.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_record(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [to_record(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {"callable": getattr(value, "__qualname__", type(value).__qualname__)}


def from_record(record: Any, base: Any, kind: Any = Any) -> Any:
    """Return the value of a record that `to_record` made; functions are taken from the same field of `base`.

    `kind` is the type of the field, in which the class of a stored part is looked up by its name.
    """
    if isinstance(record, dict) and "callable" in record:
        return base
    if isinstance(record, dict):
        part = find_part_class(record.get("is"), base, kind)
        for entry in dataclasses.fields(part):
            is_required = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
            if is_required and entry.name not in record:
                raise BadValue(f"the stored recipe has a {part.__name__} without {entry.name}.")
        stored = {name: hint for name, hint in get_field_types(part).items() if name in record}
        values = {name: from_record(record[name], getattr(base, name, None), hint) for name, hint in stored.items()}
        return part(**values)
    if isinstance(record, list):
        items = base if isinstance(base, tuple) and len(base) == len(record) else [None] * len(record)
        return tuple(from_record(item, base_item) for item, base_item in zip(record, items, strict=True))
    return record


def find_part_class(name: object, base: Any, kind: Any) -> Any:
    """Return the class of a stored part by its name: that of the base recipe, or another one of the field's type."""
    if type(base).__name__ == name:
        return type(base)
    for candidate in typing.get_args(kind):
        if getattr(candidate, "__name__", "") == name:
            return candidate
    raise BadValue(f"the stored recipe has a part {show_value(name)} that this recipe does not know.")


def compare_records(before: Any, after: Any, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Return the paths at which two records differ, with both values; a part of another class is one difference."""
    are_parts = isinstance(before, dict) and isinstance(after, dict) and "is" in before
    if not are_parts or before["is"] != after.get("is"):
        return {} if before == after else {prefix.rstrip("."): (before, after)}
    differences: dict[str, tuple[Any, Any]] = {}
    for name in {**before, **after}:
        differences |= compare_records(before.get(name), after.get(name), f"{prefix}{name}.")
    return differences
