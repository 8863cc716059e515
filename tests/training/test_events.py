"""TensorBoard's own reader reads what we write."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path
from typing import Any

import pytest

from viaduct.protobuf_wire import pack_varint
from viaduct.training.events import EventFile


def crc32c(data: bytes) -> int:
    """Bit by bit, from the polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mask_checksum(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def write_events(folder: Path, step: int, **scalars: float) -> Path:
    file = EventFile(folder, step)
    file.write_scalars(step + 1, scalars)
    [path] = folder.iterdir()
    return path


def records(path: Path) -> list[bytes]:
    """The records of a file, each checked against both of its checksums."""
    data, found = path.read_bytes(), []
    while data:
        head, (length,) = data[:8], struct.unpack("<Q", data[:8])
        body = data[12 : 12 + length]
        assert struct.unpack("<I", data[8:12]) == (mask_checksum(head),)
        assert struct.unpack("<I", data[12 + length : 16 + length]) == (mask_checksum(body),)
        found.append(body)
        data = data[16 + length :]
    return found


def test_every_record_has_the_checksums_of_the_format(tmp_path: Path) -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    assert crc32c(b"\x00" * 32) == 0x8A9136AA  # RFC 3720, B.4
    found = records(write_events(tmp_path, 0, loss=1.0))
    assert len(found) == 3
    assert found[0].endswith(b"\x1a\x0dbrain.Event:2")


@pytest.mark.parametrize(
    ("number", "coded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (700665, "f9e12a")]
)
def test_numbers_are_coded_as_protobuf_does(number: int, coded: str) -> None:
    assert pack_varint(number).hex() == coded


def test_the_name_is_one_that_tensorboard_looks_for(tmp_path: Path) -> None:
    assert write_events(tmp_path, 0, loss=1.0).name.startswith("events.out.tfevents.")


def test_what_was_written_is_on_disk_at_once(tmp_path: Path) -> None:
    file = EventFile(tmp_path, 0)
    file.write_scalars(5, {"loss": 1.0})
    [path] = tmp_path.iterdir()
    assert len(records(path)) == 3


@pytest.fixture
def reader() -> Any:
    """TensorBoard's reader of a whole folder, which drops what a restarted run has trained again."""
    reason = "reads our files with TensorBoard; install viaduct[tf]"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=reason)

    def read(folder: Path) -> Any:
        accumulator = module.EventAccumulator(str(folder))
        accumulator.Reload()
        return accumulator

    return read


def test_tensorboard_reads_tags_steps_and_values(tmp_path: Path, reader: Any) -> None:
    file = EventFile(tmp_path, 0)
    file.write_scalars(100, {"train/loss": 2.5, "train/lr": 0.1})
    file.write_scalars(700_665, {"train/loss": -1e-20, "validation/top1": 0.75})
    found = reader(tmp_path)
    assert set(found.Tags()["scalars"]) == {"train/loss", "train/lr", "validation/top1"}
    assert [(event.step, event.value) for event in found.Scalars("train/loss")] == [
        (100, 2.5),
        (700_665, pytest.approx(-1e-20)),
    ]
    assert [event.value for event in found.Scalars("validation/top1")] == [0.75]
    assert found.Scalars("train/lr")[0].wall_time > 1.6e9


def test_tensorboard_reads_losses_that_are_no_numbers(tmp_path: Path, reader: Any) -> None:
    write_events(tmp_path, 0, nan=float("nan"), infinite=float("inf"))
    found = reader(tmp_path)
    assert str(found.Scalars("nan")[0].value) == "nan"
    assert found.Scalars("infinite")[0].value == float("inf")


def test_a_resumed_run_shows_no_step_twice(tmp_path: Path, reader: Any) -> None:
    first = EventFile(tmp_path, 0)
    for step in (10, 20, 30, 40):
        first.write_scalars(step, {"loss": float(step)})
    second = EventFile(tmp_path, 20)  # the checkpoint it continues from
    for step in (30, 40, 50):
        second.write_scalars(step, {"loss": 100.0 + step})
    assert [(event.step, event.value) for event in reader(tmp_path).Scalars("loss")] == [
        (10, 10.0),
        (20, 20.0),
        (30, 130.0),
        (40, 140.0),
        (50, 150.0),
    ]
