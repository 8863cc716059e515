"""Protobuf's encoding of messages, read and written without the protobuf package.

    for number, wire_type, begin, end in iterate_fields(message, 0, len(message)): ...
    encode_bytes(1, encode_number(2, 7))         field 1: a message whose field 2 is the number 7

A message is a sequence of fields: a tag (the field's number and its wire type, which says how the content is encoded),
then the content. `BadMessage` is raised for data that are not such a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator

from viaduct.errors import BadData

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)  # the wire types
WORD_MASK = (1 << 64) - 1
MAX_PARTS = 100_000  # limit of the values of one field; each becomes a Python object of at least 200 bytes


class BadMessage(BadData):
    """An invalid message."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at byte {position:,} of one of its messages.")


def read_varint(data: memoryview, position: int, stop: int) -> tuple[int, int]:
    """Return an unsigned number of up to 64 bits, and the position after the number."""
    value = shift = 0
    for index in range(position, min(stop, position + 10)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & WORD_MASK, index + 1
        shift += 7
    raise BadMessage("a number does not end", position)


def iterate_fields(data: memoryview, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each field its number, its wire type, and the begin and end of its content."""
    while position < stop:
        number, wire_type, position = read_tag(data, position, stop)
        begin, position = find_content(data, number, wire_type, position, stop)
        yield number, wire_type, begin, position


def read_tag(data: memoryview, position: int, stop: int) -> tuple[int, int, int]:
    """Return the number and the wire type of a field, and the position after them."""
    value, after = read_varint(data, position, stop)
    if value < 8 or value >> 32:
        raise BadMessage("a field has an impossible number", position)
    return value >> 3, value & 7, after


def find_content(data: memoryview, number: int, wire_type: int, position: int, stop: int) -> tuple[int, int]:
    """Return the begin and the end of a field's content; `position` is after the field's tag."""
    begin, end = position, position
    if wire_type == BYTES:
        length, begin = read_varint(data, position, stop)
        end = begin + length
    elif wire_type == VARINT:
        _, end = read_varint(data, position, stop)
    elif wire_type == FIXED32:
        end += 4
    elif wire_type == FIXED64:
        end += 8
    elif wire_type == GROUP:
        end = skip_group(data, number, position, stop)
    else:
        raise BadMessage(f"a field has the unknown wire type {wire_type}", position)
    if end > stop:
        raise BadMessage(f"a field claims {end - begin:,} bytes where {stop - begin:,} are left", position)
    return begin, end


def skip_group(data: memoryview, number: int, position: int, stop: int) -> int:
    """Return the position after a group, a deprecated kind of field that is skipped like any unknown field."""
    opened = [number]
    while opened:
        number, wire_type, position = read_tag(data, position, stop)
        if wire_type == GROUP:
            opened.append(number)
        elif wire_type != GROUP_END:
            _, position = find_content(data, number, wire_type, position, stop)
        elif opened.pop() != number:
            raise BadMessage("a group ends that was not open", position)
    return position


def list_messages(data: memoryview, number: int) -> list[memoryview]:
    """Return the contents of every length-delimited field with this number; raise BadMessage for too many."""
    parts: list[memoryview] = []
    for field_number, wire_type, begin, end in iterate_fields(data, 0, len(data)):
        if (field_number, wire_type) == (number, BYTES):
            if len(parts) == MAX_PARTS:
                raise BadMessage(f"more than {MAX_PARTS:,} values of one field", begin)
            parts.append(data[begin:end])
    return parts


def join_parts(parts: list[memoryview]) -> memoryview:
    """Join the parts of a message that is stored in several; protobuf concatenates them."""
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def read_sole_field(data: memoryview) -> tuple[int, memoryview]:
    """Return number and content of a message's only field; (0, data) if it has several, or the field is unusual.

    The usual field is length-delimited and has a number below 16.
    """
    try:
        length, begin = read_length(data, 0, data[0])
    except LookupError:
        return 0, data
    number, wire_type = data[0] >> 3, data[0] & 7
    if begin + length != len(data) or wire_type != BYTES or not 1 <= number < 16:
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


def pack_varint(value: int) -> bytes:
    """Encode a number of at least 0: seven bits a byte, the lowest first; bit 8 says that more follow."""
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def encode_number(number: int, value: int) -> bytes:
    """Encode a field that is a number."""
    return pack_varint(number << 3) + pack_varint(value)


def encode_bytes(number: int, content: bytes) -> bytes:
    """Encode a field that is bytes, text or a message."""
    return pack_varint(number << 3 | BYTES) + pack_varint(len(content)) + content
