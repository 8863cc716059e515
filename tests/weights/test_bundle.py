"""Tensor bundles: all types, several shards, and whatever a damaged or hostile file may say."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from data.mutations import mutate
from viaduct.data.tfrecord import compute_masked_crc32c
from viaduct.errors import BadData, BadValue, DiskFull, UnknownName
from viaduct.protobuf_wire import encode_bytes, pack_varint
from viaduct.weights import bundle
from viaduct.weights.bundle import DTYPES, Bundle, write_bundle
from viaduct.weights.table import FOOTER, read_table, write_table

MEMORY = 200 << 20


def tensors() -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(4)
    values = {f"layer_{index}/v": torch.rand((3, index), generator=rng) * 9 for index in range(12)}
    kinds = {
        f"of/{number}": (torch.rand(2, 3, generator=rng) * 2).to(getattr(torch, dtype))
        for number, dtype in DTYPES.items()
    }
    return {**values, **kinds, "global_step": torch.tensor(77), "empty": torch.zeros(0, 4)}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "model.ckpt-77", tensors())


def index_of(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")


def data_of(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".data-00000-of-00001")


def number(place: int, value: int) -> bytes:
    return pack_varint(place << 3) + pack_varint(value)


def message(kind: int = 1, shape: tuple[int, ...] = (2,), size: int = 8, checksum: int = 0, **more: int) -> bytes:
    axes = b"".join(encode_bytes(2, number(1, extent)) for extent in shape)
    fields = {"shard": 3, "offset": 4}
    extra = b"".join(number(fields[name], value) for name, value in more.items())
    return (
        number(1, kind)
        + encode_bytes(2, axes)
        + extra
        + number(5, size)
        + pack_varint(6 << 3 | 5)
        + struct.pack("<I", checksum)
    )


def forge(prefix: Path, *entries: bytes, header: bytes | None = None) -> Path:
    """An index that says these things of v0, v1 …, with every checksum of the table right."""
    first = [] if header == b"-" else [(b"", bundle.encode_header() if header is None else header)]
    index_of(prefix).write_bytes(write_table([*first, *((b"v%d" % index, text) for index, text in enumerate(entries))]))
    return prefix


def test_every_type_and_shape_is_read_as_it_was_written(prefix: Path) -> None:
    with Bundle(prefix) as stored:
        assert set(stored.entries) == set(tensors())
        for name, expected in tensors().items():
            found = stored.read(name)
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
            assert torch.equal(found, expected)
        assert stored.read_integer("global_step") == 77
        assert stored.read_integer("layer_3/v") is None


def test_a_transposed_view_is_written_in_its_logical_order(tmp_path: Path) -> None:
    view = torch.arange(6.0).reshape(2, 3).T
    with Bundle(write_bundle(tmp_path / "c", {"v": view})) as stored:
        assert torch.equal(stored.read("v"), view)


def test_the_same_values_are_the_same_bytes(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "a", tensors())
    other = write_bundle(tmp_path / "b", dict(reversed(tensors().items())))
    assert index_of(path).read_bytes() == index_of(other).read_bytes()
    assert data_of(path).read_bytes() == data_of(other).read_bytes()


def test_a_variable_that_does_not_exist_is_answered_with_the_closest(prefix: Path) -> None:
    with Bundle(prefix) as stored, pytest.raises(UnknownName, match="'global_step'"):
        stored.read("globalstep")


def test_a_type_without_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"v holds torch\.complex64"):
        write_bundle(tmp_path / "c", {"v": torch.zeros(2, dtype=torch.complex64)})
    assert list(tmp_path.iterdir()) == []


def test_shards_are_found_by_their_numbers(tmp_path: Path) -> None:
    header = number(1, 2)
    values = struct.pack("<2f", 3, 4)
    prefix = forge(tmp_path / "m", message(shard=1, offset=4, checksum=compute_masked_crc32c(values)), header=header)
    (tmp_path / "m.data-00001-of-00002").write_bytes(b"...." + values)
    with Bundle(prefix) as stored:
        assert stored.read("v0").tolist() == [3, 4]
    (tmp_path / "m.data-00001-of-00002").unlink()
    with Bundle(prefix) as stored:
        assert "data-00001-of-00002 is missing: 1 of its 1 variables" in next(stored.describe_shortages())
        with pytest.raises(BadData, match="data-00001-of-00002 is missing"):
            stored.read("v0")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (message(shape=(1 << 40, 1 << 40), size=8), "expected"),
        (message(shape=(1 << 40,), size=1 << 42), "cut short"),
        (message(size=1 << 62, shape=(1 << 60,)), "cut short"),
        (message(offset=1 << 62), "cut short"),
        (message(shard=7), "shard 7 of 1"),
        (message(kind=7), "string values"),
        (message(kind=99), "type 99 values"),
        (message(checksum=1), "checksum"),
        (message() + encode_bytes(7, b""), "partitioned"),
    ],
)
def test_impossible_entries_are_refused_before_memory_is_allocated(entry: bytes, reason: str, prefix: Path) -> None:
    forge(prefix, entry)
    tracemalloc.start()
    try:
        with Bundle(prefix) as stored, pytest.raises(BadData, match=reason):
            stored.read("v0")
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"-", "no header"),
        (b"", "0 data files"),
        (number(1, 10**6), "1,000,000 data files"),
        (number(1, 1) + number(2, 1), "big-endian"),
        (number(1, 1) + encode_bytes(3, number(2, 9)), "reader of version 9"),
        (b"\xff\xff", "does not end"),
    ],
)
def test_a_header_of_another_kind_is_refused(header: bytes, reason: str, prefix: Path) -> None:
    forge(prefix, message(), header=header)
    with pytest.raises(BadData, match=reason) as refusal:
        Bundle(prefix)
    assert str(index_of(prefix)) in str(refusal.value)
    assert "Example" not in str(refusal.value)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (message(shape=(1,) * 255), "impossible shape of 255 axes"),
        (message(shape=((1 << 64) - 1,)), "impossible shape"),
        (b"\x0a", "does not end"),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(entry: bytes, reason: str, prefix: Path) -> None:
    forge(prefix, entry)
    with pytest.raises(BadData, match=reason):
        Bundle(prefix)


def test_an_index_too_large_to_be_one_is_not_read(prefix: Path) -> None:
    with index_of(prefix).open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(BadData, match="the limit is"):
        Bundle(prefix)


def test_an_empty_index_has_no_header(prefix: Path) -> None:
    index_of(prefix).write_bytes(write_table([]))
    with pytest.raises(BadData, match="no header"):
        Bundle(prefix)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskFull, match="cannot write the checkpoint"):
        write_bundle(tmp_path / "file" / "model.ckpt", tensors())


def reseal(index: bytes, rng: random.Random) -> bytes:
    """Damage in the first block with its checksum made right again: what checksums do not find."""
    size = len(index) - FOOTER
    damaged = bytearray(mutate(index[: size // 2], rng))[: size // 2].ljust(size // 2, b"\0") + index[size // 2 :]
    entries = bytes(damaged[: first_block(index)])
    return entries + struct.pack("<I", compute_masked_crc32c(entries)) + bytes(damaged[len(entries) + 4 :])


def first_block(index: bytes) -> int:
    """Return the position of the first block's checksum, the last one in the file that is right."""
    return next(end for end in range(len(index) - FOOTER, 4, -1) if is_checksum(index, end))


def is_checksum(index: bytes, end: int) -> bool:
    return end + 4 <= len(index) and struct.unpack_from("<I", index, end)[0] == compute_masked_crc32c(index[:end])


def rewritten(index: bytes, rng: random.Random) -> bytes:
    """One or two entries damaged, and the table written anew around them."""
    pairs = [(key, bytes(value)) for key, value in read_table(index)]
    for _ in range(rng.choice((1, 2))):
        position = rng.randrange(len(pairs))
        pairs[position] = (pairs[position][0], mutate(pairs[position][1], rng))
    return write_table(pairs)


def attack(prefix: Path, rounds: int) -> int:
    """Damage, open, read everything; how often that was refused."""
    rng, refused = random.Random(20), 0
    index, data = index_of(prefix).read_bytes(), data_of(prefix).read_bytes()
    for round_number in range(rounds):
        damage = (mutate, reseal, rewritten)[round_number % 3]
        index_of(prefix).write_bytes(damage(index, rng))
        data_of(prefix).write_bytes(mutate(data, rng) if round_number % 5 == 0 else data)
        try:
            with Bundle(prefix) as stored:
                for name in stored.entries:
                    stored.read(name)
        except BadData:
            refused += 1
    return refused


def survive(prefix: Path, rounds: int) -> None:
    tracemalloc.start()
    try:
        refused = attack(prefix, rounds)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY
    assert 0.5 * rounds < refused < rounds  # some damage, such as in an unused field, does no harm


def few(folder: Path) -> Path:
    return write_bundle(folder / "few", dict(list(tensors().items())[-8:]))


@pytest.mark.lengthy
def test_damage_by_the_thousand_ends_in_a_tensor_or_a_named_error(tmp_path: Path) -> None:
    survive(few(tmp_path), 3000)


@pytest.mark.slow
def test_damage_by_the_hundred_thousand(tmp_path: Path) -> None:
    survive(few(tmp_path), 100_000)


@pytest.fixture(scope="module")
def tf() -> Any:
    """Names of TensorFlow 1; without TensorFlow the test is skipped."""
    pytest.importorskip("tensorflow", reason="reads and writes checkpoints with TensorFlow; install viaduct[tf]")
    return pytest.importorskip("tensorflow.compat.v1")


KINDS = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")


@pytest.fixture(scope="module")
def theirs(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with every type, three hundred variables, a string and a partitioned variable."""
    folder = tmp_path_factory.mktemp("theirs")
    with tf.Graph().as_default(), tf.Session() as session:
        for index, kind in enumerate(KINDS):
            values = tf.constant(np.random.default_rng(index).uniform(0, 5, (3, index + 1)))
            tf.get_variable(f"kinds/{kind}", initializer=tf.cast(values, kind))
        for index in range(300):
            tf.get_variable(f"many/block_{index}/kernel", initializer=np.full((2, 2), index, np.float32))
        tf.get_variable("global_step", initializer=np.int64(77))
        tf.get_variable("text", initializer="words")
        tf.get_variable("parted", (10, 4), partitioner=tf.fixed_size_partitioner(2))
        session.run(tf.global_variables_initializer())
        return Path(tf.train.Saver().save(session, str(folder / "model.ckpt"), 77, write_meta_graph=False))


def as_floats(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def test_all_variables_that_tensorflow_saved_are_listed_and_read(tf: Any, theirs: Path) -> None:
    reader = tf.train.load_checkpoint(str(theirs))
    with Bundle(theirs.parent) as stored:
        assert {name: list(entry.shape) for name, entry in stored.entries.items()} == (
            reader.get_variable_to_shape_map()
        )
        for name, entry in stored.entries.items():
            if name in ("text", "parted"):
                with pytest.raises(BadData, match=r"string values|partitioned"):
                    stored.read(name)
                continue
            np.testing.assert_array_equal(as_floats(stored.read(name).double()), as_floats(reader.get_tensor(name)))
            if name.startswith("kinds/"):
                assert entry.dtype == name.removeprefix("kinds/")
        assert stored.read_integer("global_step") == 77


def test_tensorflow_reads_every_type_that_we_write(tf: Any, tmp_path: Path) -> None:
    values = {f"scope/{dtype}": (torch.rand(2, 3) * 2).to(getattr(torch, dtype)) for dtype in DTYPES.values()}
    values |= {f"many/block_{index}": torch.tensor(index) for index in range(300)}
    values["empty"] = torch.zeros(0, 3)
    write_bundle(tmp_path / "model.ckpt-5", values)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")
    reader = tf.train.load_checkpoint(str(tmp_path))
    assert set(reader.get_variable_to_shape_map()) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(as_floats(reader.get_tensor(name)), as_floats(value.double()))


def test_a_saver_restores_what_we_write(tf: Any, tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path / "model.ckpt-5", {"dense/kernel": torch.arange(6.0).reshape(2, 3)})
    with tf.Graph().as_default(), tf.Session() as session:
        kernel = tf.get_variable("dense/kernel", (2, 3))
        tf.train.Saver().restore(session, str(prefix))
        np.testing.assert_array_equal(session.run(kernel), np.arange(6.0).reshape(2, 3))
