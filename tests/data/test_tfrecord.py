"""TFRecord files: the bytes TensorFlow writes, and every kind of damage named."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from data.decoded_examples import decode_example
from data.mutations import mutate
from viaduct.data.crc32c import crc32c
from viaduct.data.example import decode_image_fields, encode_example
from viaduct.data.file_index import build_index
from viaduct.data.tfrecord import (
    MAX_UNPACKED_RECORD_BYTES,
    BadRecord,
    Record,
    RecordWriter,
    compute_masked_crc32c,
    find_compression,
    frame_record,
    iterate_records,
    make_header,
    read_records,
    unpack_records,
)
from viaduct.errors import BadData

RECORDS = [b"first", b"", b"third" * 1000, bytes(range(256))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train-00000-of-00001"
    path.write_bytes(b"".join(map(frame_record, RECORDS)))
    return path


def contents(path: Path, **options: bool) -> list[bytes]:
    return [bytes(data) for data in read_records(path, **options)]


def damage(path: Path, **options: bool) -> BadRecord:
    with pytest.raises(BadRecord) as caught:
        contents(path, **options)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: record {caught.value.record} at byte {caught.value.offset:,}: ")
    return caught.value


def overwrite(path: Path, at: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)


def test_the_published_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


def test_every_kind_of_buffer_has_the_same_checksum() -> None:
    data = np.random.default_rng(1).bytes(5000)
    for form in (bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        assert crc32c(form) == crc32c(data)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with RecordWriter(path) as writer:
        for data in RECORDS:
            writer.write(data)
        assert not path.exists()
    assert writer.count == len(RECORDS)
    assert path.read_bytes() == b"".join(map(frame_record, RECORDS))
    assert contents(path) == RECORDS
    assert os.listdir(tmp_path) == ["records"]


def test_a_file_whose_writing_fails_never_appears(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"the old one")
    writer = RecordWriter(path)
    with pytest.raises(TypeError), writer:
        writer.write(7)
    assert path.read_bytes() == b"the old one"
    assert os.listdir(tmp_path) == ["records"]
    with pytest.raises(RuntimeError, match="inside of its `with` block"):
        writer.write(b"too late")


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert contents(tmp_path / "empty") == []


def pack_gzip(content: bytes) -> bytes:
    return gzip.compress(content)


def pack_members(content: bytes) -> bytes:
    """Several gzip members and some padding, as `cat a.gz b.gz` and tapes make them."""
    middle = len(content) // 2
    return gzip.compress(content[:middle]) + gzip.compress(content[middle:]) + b"\0" * 512


@pytest.mark.parametrize("pack", [pack_gzip, pack_members, zlib.compress])
def test_compressed_files_are_read(file: Path, pack) -> None:
    file.write_bytes(pack(file.read_bytes()))
    assert find_compression(file) == ("zlib" if pack is zlib.compress else "gzip")
    assert contents(file) == RECORDS


@pytest.mark.parametrize("pack", [pack_gzip, zlib.compress])
def test_a_compressed_file_that_breaks_off(file: Path, pack) -> None:
    packed = pack(file.read_bytes())
    file.write_bytes(packed[: len(packed) // 2])
    assert "could not be read: the compressed stream ends too early" in damage(file).reason


def test_a_compressed_file_with_a_flipped_byte(file: Path) -> None:
    packed = bytearray(zlib.compress(file.read_bytes()))
    packed[-1] ^= 1
    file.write_bytes(packed)
    assert "could not be read: Error -3" in damage(file).reason


def test_a_length_that_looks_like_gzip_is_still_a_length(tmp_path: Path) -> None:
    path = tmp_path / "unlucky"
    data = bytes(0x088B1F)
    path.write_bytes(frame_record(data))
    assert path.read_bytes().startswith(b"\x1f\x8b\x08")
    assert find_compression(path) == ""
    assert contents(path) == [data]


def test_a_compressed_file_becomes_a_plain_one(file: Path, tmp_path: Path) -> None:
    plain = file.read_bytes()
    file.write_bytes(gzip.compress(plain))
    assert unpack_records(file, tmp_path / "plain") == len(RECORDS)
    assert (tmp_path / "plain").read_bytes() == plain


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="nowhere: could not be opened: No such file"):
        contents(tmp_path / "nowhere")
    with pytest.raises(BadData, match="could not be opened: Is a directory"):
        contents(tmp_path)


def test_a_wrong_checksum_of_the_length(file: Path) -> None:
    overwrite(file, len(frame_record(b"first")), b"\x01")
    error = damage(file)
    assert (error.record, error.offset) == (1, 21)
    assert "the checksum of its length is wrong: stored 0x" in error.reason
    assert damage(file, check=False).reason == error.reason, "lengths are always verified"


def test_a_wrong_checksum_of_the_data(file: Path) -> None:
    overwrite(file, 37 + 12 + 100, b"!")
    error = damage(file)
    assert (error.record, error.offset) == (2, 37)
    assert "the checksum of its data is wrong: stored 0x" in error.reason
    assert contents(file, check=False)[2][100:101] == b"!"


def test_records_after_a_damaged_one_are_still_read(file: Path) -> None:
    overwrite(file, 37 + 12 + 100, b"!")
    found = list(iterate_records(file))
    assert [isinstance(record, Record) for record in found] == [True, True, False, True]
    assert isinstance(found[3], Record)
    assert bytes(found[3].data) == RECORDS[3]


@pytest.mark.parametrize(
    ("kept", "record", "reason"),
    [
        (20, 0, "truncated: expected 5 bytes of data and 4 of checksum, found 8"),
        (21 + 3, 1, "truncated: expected a header of 12 bytes, found 3"),
        (21 + 12, 1, "truncated: expected 0 bytes of data and 4 of checksum, found 0"),
        (37 + 12 + 4000, 2, "truncated: expected 5,000 bytes of data and 4 of checksum, found 4,000"),
    ],
)
def test_a_truncated_file_tells_what_was_expected(file: Path, kept: int, record: int, reason: str) -> None:
    file.write_bytes(file.read_bytes()[:kept])
    error = damage(file)
    assert (error.record, error.reason) == (record, reason)


@pytest.mark.parametrize("length", [1 << 31, 1 << 63, (1 << 64) - 1])
def test_an_absurd_length_takes_no_memory(file: Path, length: int) -> None:
    file.write_bytes(make_header(length) + b"data")
    assert f"its length is impossible: {length:,} bytes" in damage(file).reason


def test_a_long_length_asks_only_for_what_is_there(file: Path) -> None:
    file.write_bytes(make_header((1 << 31) - 1) + b"data")
    assert "expected 2,147,483,647 bytes of data and 4 of checksum, found 4" in damage(file).reason
    file.write_bytes(gzip.compress(make_header(MAX_UNPACKED_RECORD_BYTES) + b"data"))
    assert "found 4" in damage(file).reason


def test_a_record_above_the_limit_is_not_unpacked(file: Path) -> None:
    file.write_bytes(gzip.compress(make_header(MAX_UNPACKED_RECORD_BYTES + 1) + b"data"))
    assert damage(file).reason == "its length is 67,108,865 bytes; the limit in a compressed file is 67,108,864"


def test_an_error_can_be_pickled(file: Path) -> None:
    file.write_bytes(b"short")
    error = damage(file)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset) == (str(error), error.offset)


def test_tensorflow_reads_our_files(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is the extra `tf`")
    path = tmp_path / "records"
    with RecordWriter(path) as writer:
        for data in RECORDS:
            writer.write(data)
    assert [item.numpy() for item in tensorflow.data.TFRecordDataset(str(path))] == RECORDS


@pytest.mark.parametrize("kind", ["", "GZIP", "ZLIB"])
def test_tensorflows_files_are_read(tmp_path: Path, kind: str) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is the extra `tf`")
    path = tmp_path / "records"
    with tensorflow.io.TFRecordWriter(str(path), kind) as writer:
        for data in RECORDS:
            writer.write(data)
    assert contents(path) == RECORDS
    if not kind:
        assert path.read_bytes() == b"".join(map(frame_record, RECORDS))


def seed_message() -> bytes:
    return encode_example(
        {
            "image/encoded": b"\xff\xd8\xff" + bytes(40),
            "image/class/label": 517,
            "image/class/text": "a cat",
            "image/object/bbox/xmin": [0.1, 0.2],
            "image/object/bbox/xmax": [0.3, 0.4],
            "image/object/bbox/ymin": [0.5, 0.6],
            "image/object/bbox/ymax": [0.7, 0.8],
            "counts": [1, -1, 1 << 40],
        }
    ) + struct.pack("<BI", 0x15, 7)  # and an unknown field


def fuzz(path: Path, count: int, seed: int) -> dict[str, int]:
    """Mutated files through reader, index and codec: a record or BadData, nothing else."""
    rng = random.Random(seed)
    message = seed_message()
    plain = frame_record(message) * 2
    packed = {"gzip": gzip.compress(plain, mtime=0), "zlib": zlib.compress(plain), "plain": plain}
    ends = {"record": 0, "refused": 0}
    for _ in range(count):
        kind = rng.choice(("message", "message", "message", "plain", "gzip", "zlib"))
        content = frame_record(mutate(message, rng)) if kind == "message" else mutate(packed[kind], rng)
        path.unlink(missing_ok=True)  # ext4 waits for the disk when a file is emptied and written again
        path.write_bytes(content)
        for read in (read_whole,) if kind == "message" else (read_whole, read_unchecked, build_index):
            try:
                read(path)
                ends["record"] += 1
            except BadData:
                ends["refused"] += 1
    return ends


def read_whole(path: Path) -> None:
    for data in read_records(path):
        decode_example(data)
        decode_image_fields(data)


def read_unchecked(path: Path) -> None:
    for data in read_records(path, check=False):
        decode_image_fields(data)


@pytest.mark.lengthy
def test_twenty_thousand_mutations_end_in_a_record_or_a_reason(tmp_path: Path) -> None:
    ends = fuzz(tmp_path / "mutated", 20_000, seed=1)
    assert min(ends.values()) > 1_000, "both ends are reached"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_mutations_end_in_a_record_or_a_reason(tmp_path: Path, seed: int) -> None:
    fuzz(tmp_path / "mutated", 100_000, seed=100 + seed)


def test_the_masked_checksum_is_tensorflows() -> None:
    assert (
        compute_masked_crc32c(b"123456789")
        == ((0xE3069283 >> 15 | 0xE3069283 << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF
    )
