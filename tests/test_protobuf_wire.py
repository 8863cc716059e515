"""Fields of protobuf messages, beyond what the tests of the formats made of them cover."""

from __future__ import annotations

import pytest

from viaduct.protobuf_wire import (
    BYTES,
    VARINT,
    BadMessage,
    encode_bytes,
    encode_number,
    iterate_fields,
    pack_varint,
    read_sole_field,
    read_varint,
)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 64) - 1])
def test_a_number_is_read_as_it_was_packed(value: int) -> None:
    packed = pack_varint(value)
    assert read_varint(memoryview(packed), 0, len(packed)) == (value, len(packed))


def test_fields_are_read_in_order() -> None:
    message = encode_number(2, 300) + encode_bytes(16, b"text")
    fields = list(iterate_fields(memoryview(message), 0, len(message)))
    assert [(number, wire_type) for number, wire_type, _, _ in fields] == [(2, VARINT), (16, BYTES)]
    assert message[fields[1][2] : fields[1][3]] == b"text"


def test_only_a_message_of_one_usual_field_has_a_sole_field() -> None:
    assert read_sole_field(memoryview(encode_bytes(3, b"x"))) == (3, b"x")
    for unusual in (b"", encode_bytes(16, b"x"), encode_number(3, 1), encode_bytes(3, b"x") * 2):
        assert read_sole_field(memoryview(unusual)) == (0, unusual)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x80", "a number does not end at byte 0"),
        (b"\x0a\x05xy", "claims 5 bytes where 2 are left"),
        (b"\x07", "impossible number"),
        (b"\x0f", "unknown wire type 7"),
    ],
)
def test_what_is_no_message_is_refused_with_the_reason(message: bytes, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        list(iterate_fields(memoryview(message), 0, len(message)))
