"""Read and write JSON records; every field that is read is checked.

    record = load_object(Path("manifest.json"))     Damaged: it is not UTF-8, holds no object, is nested too deeply …
    require_fields(record, {"files": dict})         Damaged: files is []; it must be an object
    decode_record(Profile, record)                  a dataclass; Damaged: steps[3].end_us is 'x'; it must be a number
    encode_record(profile)                          its fields as JSON values, without those that have their default

A dataclass is checked against its annotations, also their bounds (`Annotated[float, Ge(0)]`). Unknown fields are
skipped, so that a newer version may add some. A class whose JSON is not an object of its fields has a class method
`decode_json(value)`, which raises Damaged.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, Union

from viaduct.path_errors import refuse_special_file
from viaduct.typed_fields import (
    get_bounded_annotations,
    get_field_types,
    is_within,
    list_bounds,
    matches,
    show_value,
    spell_bounds,
    spell_type,
)

MAX_JSON_BYTES = 64 << 20  # of a JSON file
MAX_NESTING = 50  # levels of lists and objects
Json = dict[str, Any]
Decoder = Callable[[Any, str], Any]


class Damaged(ValueError):
    """JSON text that cannot be used."""


# Text


def load_object(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Json:
    """Return the object in a JSON file; raise Damaged if it is damaged or too large, OSError if it cannot be read."""
    refuse_special_file(path)
    size = path.stat().st_size
    if size > max_bytes:
        raise Damaged(f"it has {size:,} bytes; the limit is {max_bytes:,}")
    return parse_object(path.read_bytes())


def parse_object(text: str | bytes) -> Json:
    """Parse a JSON object; raise Damaged for anything else."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        if not decoded.strip():
            raise Damaged("it is empty")
        record = json.loads(decoded, parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise Damaged(f"byte {error.start:,} is not UTF-8") from None
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except ValueError as error:
        raise Damaged(str(error).rstrip(".")) from None
    if is_deeper(record, MAX_NESTING):
        raise Damaged("it is nested too deeply")
    if not isinstance(record, dict):
        raise Damaged(f"it holds {describe_kind(record)}, not an object")
    return record


def is_deeper(value: Any, limit: int) -> bool:
    """Return True if lists and objects are nested more than `limit` levels deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)]
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def describe_kind(value: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def finite_or_null(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None in a value and in its dicts and lists."""
    if isinstance(value, dict):
        return {name: finite_or_null(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Single fields


def require_fields(record: Mapping[str, Any], fields: Mapping[str, Any], prefix: str = "") -> None:
    """Raise Damaged for the first field that is missing or has another type."""
    for name, kind in fields.items():
        if name not in record:
            raise Damaged(f"{prefix}{name} is missing")
        require_type(record[name], kind, f"{prefix}{name}")


def require_type(value: Any, kind: Any, name: str) -> None:
    if not matches(value, kind):
        # spell_type uses the words of recipes; these are the words of JSON.
        expected = spell_type(kind).replace("dict", "an object").replace("a name", "a text")
        raise Damaged(f"{name} is {show_value(value)}; it must be {expected}")


def has_fields(record: Json, fields: Mapping[str, Any]) -> bool:
    try:
        require_fields(record, fields)
    except Damaged:
        return False
    return True


# Dataclasses


def encode_record(record: Any) -> Json:
    """Return the fields of a dataclass that differ from their defaults."""
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
    """Return the value of a field as JSON data."""
    if dataclasses.is_dataclass(value):
        return encode_record(value)
    if isinstance(value, dict):
        return {str(name): encode_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encode_value(element) for element in value]
    return value.item() if hasattr(value, "item") else value  # scalars of numpy and torch


def decode_record(record_class: Any, value: Any, path: str = "") -> Any:
    """Return an instance of a dataclass; raise Damaged for the first field that is missing or wrong.

    `path` is the position of the value, for messages: "steps[3]".
    """
    return find_decoder(record_class)(value, path)


@functools.cache
def find_decoder(annotation: Any) -> Decoder:
    """Return the function that makes a value of this type from a JSON value and its path."""
    if hasattr(annotation, "decode_json"):
        return lambda value, path: annotation.decode_json(value)
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
    if origin in (dict, collections.abc.Mapping):
        return lambda value, path: decode_entries(arguments[1], value, path)
    return functools.partial(decode_leaf, annotation)


def decode_fields(record_class: Any, value: Any, path: str) -> Any:
    """Return the dataclass of a JSON object; unknown fields are skipped, missing ones take their defaults."""
    require_type(value, dict, path or "it")
    prefix = f"{path}." if path else ""
    types_by_name, bounded = get_field_types(record_class), get_bounded_annotations(record_class)
    decoded = {}
    for field in dataclasses.fields(record_class):
        name = field.name
        if name in value:
            decoded[name] = find_decoder(types_by_name[name])(value[name], prefix + name)
            if name in bounded and not is_within(decoded[name], list_bounds(bounded[name])):
                raise Damaged(f"{prefix}{name} is {show_value(value[name])}; it must be {spell_bounds(bounded[name])}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Damaged(f"{prefix}{name} is missing")
    return record_class(**decoded)


def decode_elements(annotation: Any, value: Any, path: str) -> list[Any]:
    require_type(value, list, path)
    decoder = find_decoder(annotation)
    return [decoder(element, f"{path}[{number}]") for number, element in enumerate(value)]


def decode_entries(annotation: Any, value: Any, path: str) -> Json:
    require_type(value, dict, path)
    decoder = find_decoder(annotation)
    return {name: decoder(entry, f"{path}.{name}") for name, entry in value.items()}


def decode_leaf(annotation: Any, value: Any, path: str) -> Any:
    require_type(value, annotation, path)
    return value


def rename_pictures(record: Json) -> Json:
    """Rename the key `pictures`, which runs and builds of earlier versions have, to `images`; return the record."""
    if "pictures" in record:
        record["images"] = record.pop("pictures")
    return record
