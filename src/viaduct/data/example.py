"""`tf.train.Example`, the message in a TFRecord, read and written without the protobuf package.

    Example { 1: Features { 1 (map): { 1: name, 2: Feature { 1: bytes | 2: floats | 3: int64s } } } }

`decode_example` decodes all features, `decode_image_fields` only those that training on the ImageNet schema needs. Both
follow the rules of protobuf: numbers may be packed or not, unknown fields are skipped, the last of several equal names
wins. `encode_example` sorts names by their UTF-8 bytes, as TensorFlow's deterministic serialisation does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from viaduct.data.crc32c import Buffer
from viaduct.errors import BadData, BadValue
from viaduct.terminal import escape_controls

Floats: TypeAlias = npt.NDArray[np.float32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Feature: TypeAlias = list[bytes] | Floats | Int64s
Encodable: TypeAlias = bytes | str | float | Sequence[bytes] | Sequence[str] | Sequence[float] | npt.NDArray[np.generic]

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)  # protobuf's wire types
BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3  # field numbers in a Feature
KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "whole numbers"}
WORD_MASK = (1 << 64) - 1
MAX_PARTS = 100_000  # limit of the values of one field; each becomes a Python object of at least 200 bytes
MAX_LABEL_BYTES = 64  # limit of the list that contains the label

ENCODED, LABEL, TEXT = b"image/encoded", b"image/class/label", b"image/class/text"
BOX_SIDES = tuple(b"image/object/bbox/" + side for side in (b"ymin", b"xmin", b"ymax", b"xmax"))
IMAGE_NAMES = frozenset((ENCODED, LABEL, TEXT, *BOX_SIDES))
LABEL_NAMES = frozenset((LABEL,))
FILENAME = b"image/filename"
FILENAME_NAMES = frozenset((FILENAME,))
FIRST_FIELD, SECOND_FIELD = 0x0A, 0x12  # first byte of a length-delimited field 1 and 2
MAX_NAME_LENGTH = 300  # characters of a name in messages
NO_BOXES = np.empty((0, 4), np.float32)


class ImageFields(NamedTuple):
    """Fields of a record that training needs."""

    encoded: memoryview  # the JPEG or PNG file
    label: int
    text: str  # class name; empty if the record has none
    boxes: Floats  # (N, 4): ymin, xmin, ymax, xmax as fractions of the image


def decode_example(data: Buffer) -> dict[str, Feature]:
    """Return every feature by its name; a feature that has no list of values becomes an empty Python list."""
    view = memoryview(data)
    return {decode_name(name): decode_feature(value) for name, value in iterate_features(view)}


def decode_image_fields(data: Buffer) -> ImageFields:
    """Return the fields of the ImageNet schema; other features are skipped."""
    features = pick_features(memoryview(data), IMAGE_NAMES)
    text = read_byte_values(features, TEXT)
    return ImageFields(
        encoded=require_single(read_byte_values(features, ENCODED), ENCODED),
        label=read_label(features),
        text=str(text[0], "utf-8", "replace") if text else "",
        boxes=read_boxes(features),
    )


def decode_label(data: Buffer) -> int:
    """Return the label alone."""
    return read_label(pick_features(memoryview(data), LABEL_NAMES))


def decode_filename(data: Buffer) -> str:
    """Return the name of the file that a record was made from, for messages; empty if unknown."""
    try:
        names = read_byte_values(pick_features(memoryview(data), FILENAME_NAMES), FILENAME)
    except BadData:
        return ""
    return escape_controls(str(names[0], "utf-8", "backslashreplace"))[:MAX_NAME_LENGTH] if names else ""


def encode_example(values: Mapping[str, Encodable]) -> bytes:
    """Encode features: bytes and str as bytes, int and bool as int64, float as float32; one value or a list."""
    named = sorted((name.encode(), value) for name, value in values.items())
    entries = (
        encode_field(1, encode_field(1, name) + encode_field(2, encode_feature(name, value))) for name, value in named
    )
    return encode_field(1, b"".join(entries))


# Reading


def format_error(reason: str, position: int) -> BadData:
    """Return the error for an invalid message."""
    return BadData(f"not a tf.train.Example: {reason} at byte {position:,} of one of its messages.")


def read_varint(data: memoryview, position: int, stop: int) -> tuple[int, int]:
    """Return an unsigned number of up to 64 bits, and the position after the number."""
    value = shift = 0
    for index in range(position, min(stop, position + 10)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & WORD_MASK, index + 1
        shift += 7
    raise format_error("a number does not end", position)


def iterate_fields(data: memoryview, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each field its number, its wire type, and the begin and end of its content."""
    while position < stop:
        number, wire, position = read_tag(data, position, stop)
        begin, position = find_content(data, number, wire, position, stop)
        yield number, wire, begin, position


def read_tag(data: memoryview, position: int, stop: int) -> tuple[int, int, int]:
    """Return the number and the wire type of a field, and the position after them."""
    value, after = read_varint(data, position, stop)
    if value < 8 or value >> 32:
        raise format_error("a field has an impossible number", position)
    return value >> 3, value & 7, after


def find_content(data: memoryview, number: int, wire: int, position: int, stop: int) -> tuple[int, int]:
    """Return the begin and the end of a field's content; `position` is after the field's tag."""
    begin, end = position, position
    if wire == BYTES:
        length, begin = read_varint(data, position, stop)
        end = begin + length
    elif wire == VARINT:
        _, end = read_varint(data, position, stop)
    elif wire == FIXED32:
        end += 4
    elif wire == FIXED64:
        end += 8
    elif wire == GROUP:
        end = skip_group(data, number, position, stop)
    else:
        raise format_error(f"a field has the unknown wire type {wire}", position)
    if end > stop:
        raise format_error(f"a field claims {end - begin:,} bytes where {stop - begin:,} are left", position)
    return begin, end


def skip_group(data: memoryview, number: int, position: int, stop: int) -> int:
    """Return the position after a group, a deprecated kind of field that is skipped like any unknown field."""
    opened = [number]
    while opened:
        number, wire, position = read_tag(data, position, stop)
        if wire == GROUP:
            opened.append(number)
        elif wire != GROUP_END:
            _, position = find_content(data, number, wire, position, stop)
        elif opened.pop() != number:
            raise format_error("a group ends that was not open", position)
    return position


def list_messages(data: memoryview, number: int) -> list[memoryview]:
    """Return the contents of every field with this number."""
    parts: list[memoryview] = []
    for field_number, wire, begin, end in iterate_fields(data, 0, len(data)):
        if (field_number, wire) == (number, BYTES):
            if len(parts) == MAX_PARTS:
                raise format_error(f"more than {MAX_PARTS:,} values of one field", begin)
            parts.append(data[begin:end])
    return parts


def iterate_features(data: memoryview) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield name and encoded `Feature` message of each feature."""
    for features in list_messages(data, 1):
        for entry in list_messages(features, 1):
            names, values = list_messages(entry, 1), list_messages(entry, 2)
            yield names[-1] if names else memoryview(b""), join_parts(values)


def join_parts(parts: list[memoryview]) -> memoryview:
    """Join the parts of a message that is stored in several; protobuf concatenates them."""
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def pick_features(data: memoryview, names: frozenset[bytes]) -> dict[bytes, memoryview]:
    """Return the `Feature` messages with these names."""
    quick = pick_features_quickly(data, names)
    if quick is not None:
        return quick
    return {key: value for name, value in iterate_features(data) if (key := bytes(name)) in names}


def pick_features_quickly(data: memoryview, names: frozenset[bytes]) -> dict[bytes, memoryview] | None:
    """Return the `Feature` messages with these names, ten times as fast as `iterate_features`; None if unusual.

    The usual encoding, which common writers produce, has in each entry a name of less than 128 bytes and then a value.
    """
    features: dict[bytes, memoryview] = {}
    try:
        stop = len(data)
        length, position = read_length(data, 0, FIRST_FIELD)
        if position + length != stop:
            return None
        while position < stop:
            length, position = read_length(data, position, FIRST_FIELD)
            end, name_begin = position + length, position + 2
            if end > stop or data[position] != FIRST_FIELD or data[position + 1] > 0x7F:
                return None
            name_end = name_begin + data[position + 1]
            length, begin = read_length(data, name_end, SECOND_FIELD)
            if begin + length != end:
                return None
            key = bytes(data[name_begin:name_end])
            if key in names:
                features[key] = data[begin:end]
            position = end
    except LookupError:  # also an IndexError, where the data ends
        return None
    return features


def read_sole_field(data: memoryview) -> tuple[int, memoryview]:
    """Return number and content of a message's only field; (0, data) if it has several, or the field is unusual.

    The usual field is length-delimited and has a number below 16.
    """
    try:
        length, begin = read_length(data, 0, data[0])
    except LookupError:
        return 0, data
    number, wire = data[0] >> 3, data[0] & 7
    if begin + length != len(data) or wire != BYTES or not 1 <= number < 16:
        return 0, data
    return number, data[begin:]


def read_length(data: memoryview, position: int, expected: int) -> tuple[int, int]:
    """Return the length after the one-byte tag `expected`, and the position after it; LookupError for other bytes."""
    if data[position] != expected:
        raise LookupError
    length = data[position + 1]
    if length < 0x80:
        return length, position + 2
    length &= 0x7F
    for count in range(1, 5):
        byte = data[position + 1 + count]
        length |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return length, position + 2 + count
    raise LookupError


def decode_name(name: memoryview) -> str:
    try:
        return str(name, "utf-8")
    except UnicodeDecodeError as error:
        raise BadData(f"not a tf.train.Example: the name {bytes(name)!r} is not UTF-8.") from error


def decode_feature(data: memoryview) -> Feature:
    kind, values = read_list(data)
    if kind == FLOAT_LIST:
        return read_floats(values)
    if kind == INT64_LIST:
        return read_int64s(values)
    return [bytes(value) for value in list_messages(values, 1)]


def read_list(data: memoryview) -> tuple[int, memoryview]:
    """Return the kind of list in a `Feature` (0: none) and the list's message; of several kinds, the last is read."""
    kind, content = read_sole_field(data)
    if kind in KINDS:
        return kind, content
    kind, parts = 0, list[memoryview]()
    for number, wire, begin, end in iterate_fields(data, 0, len(data)):
        if wire == BYTES and number in KINDS:
            if number != kind:
                kind, parts = number, []
            if len(parts) == MAX_PARTS:
                raise format_error(f"a list in more than {MAX_PARTS:,} parts", begin)
            parts.append(data[begin:end])
    return kind, join_parts(parts)


def read_floats(data: memoryview) -> Floats:
    sole_number, content = read_sole_field(data)
    if sole_number == 1 and len(content) % 4 == 0:
        return np.frombuffer(content, dtype="<f4").astype(np.float32)
    parts = []
    for number, wire, begin, end in iterate_fields(data, 0, len(data)):
        if number == 1 and wire in (BYTES, FIXED32):
            if (end - begin) % 4:
                raise format_error(f"a list of floats has {end - begin:,} bytes, not a multiple of 4,", begin)
            parts.append(data[begin:end])
    return np.frombuffer(b"".join(parts), dtype="<f4").astype(np.float32)


def read_int64s(data: memoryview) -> Int64s:
    parts = []
    for number, wire, begin, end in iterate_fields(data, 0, len(data)):
        if number == 1 and wire in (BYTES, VARINT):
            if end > begin and data[end - 1] > 0x7F:
                raise format_error("a number does not end", begin)
            parts.append(data[begin:end])
    return unpack_varints(np.frombuffer(b"".join(parts), dtype=np.uint8))


def unpack_varints(packed: npt.NDArray[np.uint8]) -> Int64s:
    """Decode varints that follow one another; the last byte must end a number."""
    ends = np.flatnonzero(packed < 0x80)
    if not len(ends):
        return np.empty(0, dtype=np.int64)
    begins = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - begins + 1
    if lengths.max() > 10:
        raise format_error("a number of more than ten bytes", int(begins[lengths.argmax()]))
    shifts = (np.arange(len(packed)) - np.repeat(begins, lengths)) * 7
    bits = (packed & np.uint8(0x7F)).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(bits, begins).astype(np.int64)


def read_values(features: Mapping[bytes, memoryview], name: bytes, kind: int) -> memoryview:
    """Return the list of a feature, which must be of this kind; empty if the feature is missing."""
    stored, values = read_list(features[name]) if name in features else (0, memoryview(b""))
    if stored not in (0, kind):
        raise BadData(f"{name.decode()} holds {KINDS[stored]}, expected {KINDS[kind]}.")
    return values


def read_byte_values(features: Mapping[bytes, memoryview], name: bytes) -> list[memoryview]:
    values = read_values(features, name, BYTES_LIST)
    number, content = read_sole_field(values)
    return [content] if number == 1 else list_messages(values, 1)


def require_single(values: list[memoryview], name: bytes) -> memoryview:
    """Return the single value of a feature; raise `BadData` for none or several."""
    if len(values) != 1:
        raise BadData(f"{name.decode()} has {len(values):,} values, expected one.")
    return values[0]


def read_label(features: Mapping[bytes, memoryview]) -> int:
    values = read_values(features, LABEL, INT64_LIST)
    number, content = read_sole_field(values)
    if number == 1 and 0 < len(content) < 10:  # ten bytes: a negative number
        label, after = read_varint(content, 0, len(content))
        if after == len(content):
            return label
    if len(values) > MAX_LABEL_BYTES:
        raise BadData(f"{LABEL.decode()} has a list of {len(values):,} bytes, expected one number.")
    labels = read_int64s(values)
    if len(labels) != 1:
        raise BadData(f"{LABEL.decode()} has {len(labels):,} values, expected one.")
    return int(labels[0])


def read_boxes(features: Mapping[bytes, memoryview]) -> Floats:
    """Return the bounding boxes, N x 4: top, left, bottom, right."""
    if not any(name in features for name in BOX_SIDES):
        return NO_BOXES
    sides = [read_floats(read_values(features, name, FLOAT_LIST)) for name in BOX_SIDES]
    if len({len(side) for side in sides}) > 1:
        counts = ", ".join(f"{len(side)} {name.decode()[-4:]}" for side, name in zip(sides, BOX_SIDES, strict=True))
        raise BadData(f"image/object/bbox: the four sides differ in number: {counts}.")
    return np.stack(sides, axis=1)


# Writing


def pack_varint(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def encode_varint(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return pack_varint(number << 3) + pack_varint(value)


def encode_field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    return bytes((number << 3 | BYTES,)) + pack_varint(len(content)) + content


def encode_feature(name: bytes, value: Encodable) -> bytes:
    if isinstance(value, bytes | str):
        value = [value]  # type: ignore[assignment]
    if isinstance(value, list | tuple) and all(isinstance(item, bytes | str) for item in value):
        items = [item.encode() if isinstance(item, str) else item for item in value]
        # An empty list has no kind: it reads back as a feature without a value.
        return encode_field(BYTES_LIST, b"".join(encode_field(1, item) for item in items)) if items else b""
    numbers = np.atleast_1d(np.asarray(value)).reshape(-1)
    if numbers.dtype.kind in "ib":
        packed = b"".join(pack_varint(number & WORD_MASK) for number in numbers.tolist())
        return encode_field(INT64_LIST, encode_field(1, packed) if packed else b"")
    if numbers.dtype.kind == "f":
        packed = numbers.astype("<f4").tobytes()
        return encode_field(FLOAT_LIST, encode_field(1, packed) if packed else b"")
    raise BadValue(f"{name.decode()}: a feature holds bytes, int64 or float32, got {type(value).__name__}: {value!r}.")
