"""Convert dataclasses to JSON objects and back; every field is checked against its annotation.

    encode_record(profile)                      fields with their default value are left out
    decode_record(Profile, json.loads(text))    Damaged: steps[3].end_us is "x"; it must be a number

Unknown fields are skipped, so that a newer version may add some.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Union

from viaduct.run_files import Damaged, require_type
from viaduct.typed_fields import get_field_types

Decoder = Callable[[Any, str], Any]


def encode_record(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults."""
    encoded = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if not is_default(field, value):
            encoded[field.name] = encode_value(value)
    return encoded


def is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    """Return True if a field can be left out: its value is the default, or empty like the default."""
    if field.default_factory is not dataclasses.MISSING:
        return not value
    if isinstance(field.default, tuple):
        return len(value) == 0
    return field.default is not dataclasses.MISSING and type(value) is type(field.default) and value == field.default


def encode_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return encode_record(value)
    if isinstance(value, dict):
        return {str(name): encode_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encode_value(element) for element in value]
    return value.item() if hasattr(value, "item") else value  # scalars of numpy and torch


def decode_record(record_class: Any, value: Any, path: str = "") -> Any:
    """Return a record of a class; raise Damaged for the first field that is missing or of another type.

    `path` is the position of the value, for messages: "steps[3]".
    """
    return find_decoder(record_class)(value, path)


@functools.cache
def find_decoder(annotation: Any) -> Decoder:
    if dataclasses.is_dataclass(annotation):
        return functools.partial(decode_fields, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType) and any(map(dataclasses.is_dataclass, arguments)):
        (record,) = [argument for argument in arguments if argument is not type(None)]
        return lambda value, path: None if value is None else find_decoder(record)(value, path)
    if origin is collections.abc.Sequence:
        return lambda value, path: decode_elements(arguments[0], value, path)
    if origin is tuple:  # such as tuple[Collective, ...]
        return lambda value, path: tuple(decode_elements(arguments[0], value, path))
    if origin is dict:
        return lambda value, path: decode_entries(arguments[1], value, path)
    return functools.partial(decode_leaf, annotation)


def decode_fields(record_class: Any, value: Any, path: str) -> Any:
    """Return the record of a JSON object; unknown fields are skipped, missing ones take their defaults."""
    require_type(value, dict, path or "it")
    prefix = f"{path}." if path else ""
    decoded = {}
    for field in dataclasses.fields(record_class):
        if field.name in value:
            decoder = find_decoder(get_field_types(record_class)[field.name])
            decoded[field.name] = decoder(value[field.name], prefix + field.name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Damaged(f"{prefix}{field.name} is missing")
    return record_class(**decoded)


def decode_elements(annotation: Any, value: Any, path: str) -> list[Any]:
    require_type(value, list, path)
    decoder = find_decoder(annotation)
    return [decoder(element, f"{path}[{number}]") for number, element in enumerate(value)]


def decode_entries(annotation: Any, value: Any, path: str) -> dict[str, Any]:
    require_type(value, dict, path)
    decoder = find_decoder(annotation)
    return {name: decoder(entry, f"{path}.{name}") for name, entry in value.items()}


def decode_leaf(annotation: Any, value: Any, path: str) -> Any:
    require_type(value, annotation, path)
    return value
