"""The checksum of TFRecord files, against published values."""

from __future__ import annotations

import pytest

from viaduct.data.crc32c import crc32c


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],  # RFC 3720, B.4
)
def test_checksums_are_the_published_ones_for_any_kind_of_buffer(kind: type, data: bytes, expected: int) -> None:
    assert crc32c(kind(data)) == expected


def test_a_part_of_a_buffer_has_the_checksum_of_that_part() -> None:
    assert crc32c(memoryview(b"--123456789--")[2:-2]) == 0xE3069283


def test_one_flipped_bit_is_another_checksum() -> None:
    assert crc32c(b"123456788") != crc32c(b"123456789")
