"""`tf.train.Example`, the message in a TFRecord, read and written without the protobuf package.

    Example { 1: Features { 1 (map): { 1: name, 2: Feature { 1: bytes | 2: floats | 3: int64s } } } }

`decode_image_fields` decodes the features that training on the ImageNet schema needs. It follows the rules of protobuf:
numbers may be packed or not, unknown fields are skipped, the last of several equal names wins. `encode_example` sorts
names by their UTF-8 bytes, as TensorFlow's deterministic serialisation does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from viaduct.data.crc32c import Buffer
from viaduct.errors import BadData, BadValue
from viaduct.protobuf_wire import (
    BYTES,
    FIXED32,
    MAX_PARTS,
    VARINT,
    WORD_MASK,
    BadMessage,
    encode_bytes,
    iterate_fields,
    join_parts,
    list_messages,
    pack_varint,
    read_length,
    read_sole_field,
    read_varint,
)
from viaduct.terminal import escape_controls

Floats: TypeAlias = npt.NDArray[np.float32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Encodable: TypeAlias = bytes | str | float | Sequence[bytes] | Sequence[str] | Sequence[float] | npt.NDArray[np.generic]

BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3  # field numbers in a Feature
KINDS = {BYTES_LIST: "bytes", FLOAT_LIST: "floats", INT64_LIST: "whole numbers"}
MAX_LABEL_BYTES = 64  # limit of the encoded list that contains the label, one number

ENCODED, LABEL, TEXT = b"image/encoded", b"image/class/label", b"image/class/text"
BOX_SIDES = tuple(b"image/object/bbox/" + side for side in (b"ymin", b"xmin", b"ymax", b"xmax"))
# Sets of names, for `pick_features`.
IMAGE_NAMES = frozenset((ENCODED, LABEL, TEXT, *BOX_SIDES))
LABEL_NAMES = frozenset((LABEL,))
FILENAME = b"image/filename"
FILENAME_NAMES = frozenset((FILENAME,))
FIRST_FIELD, SECOND_FIELD = 0x0A, 0x12  # tag (first byte) of a length-delimited field 1 and 2
MAX_NAME_LENGTH = 300  # characters of a name in messages
NO_BOXES = np.empty((0, 4), np.float32)


class ImageFields(NamedTuple):
    """Fields of a record that training needs."""

    encoded: memoryview  # the JPEG or PNG file
    label: int
    text: str  # class name; empty if the record has none
    boxes: Floats  # (N, 4): ymin, xmin, ymax, xmax as fractions of the image


Decoded = TypeVar("Decoded")


def report_bad_message(decode: Callable[[Buffer], Decoded]) -> Callable[[Buffer], Decoded]:
    """Make a decoding function say that data are no example if they are not a valid message."""

    @wraps(decode)
    def decode_or_report(data: Buffer) -> Decoded:
        try:
            return decode(data)
        except BadMessage as error:
            raise BadData(f"not a tf.train.Example: {error.message}") from error

    return decode_or_report


@report_bad_message
def decode_image_fields(data: Buffer) -> ImageFields:
    """Return the fields of a record in the ImageNet schema; other features are skipped.

    Raise `BadData` if the data are no example, or image or label are not a single value of the right kind.
    """
    features = pick_features(memoryview(data), IMAGE_NAMES)
    text = read_byte_values(features, TEXT)
    return ImageFields(
        encoded=require_single(read_byte_values(features, ENCODED), ENCODED),
        label=read_label(features),
        text=str(text[0], "utf-8", "replace") if text else "",
        boxes=read_boxes(features),
    )


@report_bad_message
def decode_label(data: Buffer) -> int:
    """Return the label alone; raise `BadData` as `decode_image_fields` does."""
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
        encode_bytes(1, encode_bytes(1, name) + encode_bytes(2, encode_feature(name, value))) for name, value in named
    )
    return encode_bytes(1, b"".join(entries))


# Reading


def iterate_features(data: memoryview) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield name and encoded `Feature` message of each feature."""
    for features in list_messages(data, 1):
        for entry in list_messages(features, 1):
            names, values = list_messages(entry, 1), list_messages(entry, 2)
            yield names[-1] if names else memoryview(b""), join_parts(values)


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


def read_list(data: memoryview) -> tuple[int, memoryview]:
    """Return the kind of list in a `Feature` (a key of KINDS; 0: none) and the encoded list.

    If there are lists of several kinds, the last one counts, as in protobuf.
    """
    kind, content = read_sole_field(data)
    if kind in KINDS:
        return kind, content
    kind, parts = 0, list[memoryview]()
    for number, wire_type, begin, end in iterate_fields(data, 0, len(data)):
        if wire_type == BYTES and number in KINDS:
            if number != kind:
                kind, parts = number, []
            if len(parts) == MAX_PARTS:
                raise BadMessage(f"a list in more than {MAX_PARTS:,} parts", begin)
            parts.append(data[begin:end])
    return kind, join_parts(parts)


def read_floats(data: memoryview) -> Floats:
    """Decode a FloatList, packed or not."""
    sole_number, content = read_sole_field(data)
    if sole_number == 1 and len(content) % 4 == 0:
        return np.frombuffer(content, dtype="<f4").astype(np.float32)
    parts = []
    for number, wire_type, begin, end in iterate_fields(data, 0, len(data)):
        if number == 1 and wire_type in (BYTES, FIXED32):
            if (end - begin) % 4:
                raise BadMessage(f"a list of floats has {end - begin:,} bytes, not a multiple of 4,", begin)
            parts.append(data[begin:end])
    return np.frombuffer(b"".join(parts), dtype="<f4").astype(np.float32)


def read_int64s(data: memoryview) -> Int64s:
    """Decode an Int64List, packed or not."""
    parts = []
    for number, wire_type, begin, end in iterate_fields(data, 0, len(data)):
        if number == 1 and wire_type in (BYTES, VARINT):
            if end > begin and data[end - 1] > 0x7F:
                raise BadMessage("a number does not end", begin)
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
        raise BadMessage("a number of more than ten bytes", int(begins[lengths.argmax()]))
    shifts = (np.arange(len(packed)) - np.repeat(begins, lengths)) * 7
    bits = (packed & np.uint8(0x7F)).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(bits, begins).astype(np.int64)


def read_values(features: Mapping[bytes, memoryview], name: bytes, kind: int) -> memoryview:
    """Return the encoded list of a feature, which must be of this kind; empty if the feature is missing."""
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


def encode_feature(name: bytes, value: Encodable) -> bytes:
    """Return the encoded `Feature` of a value; `name` is for errors."""
    if isinstance(value, bytes | str):
        value = [value]  # type: ignore[assignment]
    if isinstance(value, list | tuple) and all(isinstance(item, bytes | str) for item in value):
        items = [item.encode() if isinstance(item, str) else item for item in value]
        # An empty list has no kind: it reads back as a feature without a value.
        return encode_bytes(BYTES_LIST, b"".join(encode_bytes(1, item) for item in items)) if items else b""
    numbers = np.atleast_1d(np.asarray(value)).reshape(-1)
    if numbers.dtype.kind in "ib":
        packed = b"".join(pack_varint(number & WORD_MASK) for number in numbers.tolist())
        return encode_bytes(INT64_LIST, encode_bytes(1, packed) if packed else b"")
    if numbers.dtype.kind == "f":
        packed = numbers.astype("<f4").tobytes()
        return encode_bytes(FLOAT_LIST, encode_bytes(1, packed) if packed else b"")
    raise BadValue(f"{name.decode()}: a feature holds bytes, int64 or float32, got {type(value).__name__}: {value!r}.")
