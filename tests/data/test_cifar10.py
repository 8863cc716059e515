"""CIFAR-10 files: read rightly, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from viaduct.data import cifar10
from viaduct.data.cifar10 import NAMES, TEST_FILE, TRAIN_FILES, Cifar10
from viaduct.errors import BadData

RECORDS = 20
SOURCE = Cifar10(global_batch=4, size=32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six files of 20 records instead of 10,000; image i of file f is filled with its own numbers."""
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", RECORDS)
    for number, name in enumerate((*TRAIN_FILES, TEST_FILE)):
        records(number).tofile(tmp_path / name)
    (tmp_path / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return tmp_path


def records(number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    made = rng.integers(0, 256, (RECORDS, 3073), dtype=np.uint8)
    made[:, 0] = np.arange(RECORDS) % 10
    return made


def refusal(path: Path | None) -> str:
    with pytest.raises(BadData) as caught:
        SOURCE.load(path)
    return str(caught.value)


def test_planes_become_pixels_and_files_follow_each_other(folder: Path) -> None:
    loaded = SOURCE.load(folder)
    assert loaded.train.images.shape == (5 * RECORDS, 32, 32, 3)
    assert loaded.validation.images.shape == (RECORDS, 32, 32, 3)
    assert loaded.train.images.flags.c_contiguous
    for record in (0, 19, 20, 77):
        planes = records(record // RECORDS)[record % RECORDS, 1:]
        for channel, row, column in ((0, 0, 0), (1, 3, 31), (2, 31, 5)):
            found = loaded.train.images[record, row, column, channel]
            assert found == planes[channel * 1024 + row * 32 + column]
    assert loaded.train.labels.tolist() == list(range(10)) * 10
    assert np.array_equal(loaded.validation.images[0, 0, :, 0], records(5)[0, 1:33])


def test_the_folder_around_the_archives_folder_is_accepted(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    above = tmp_path_factory.mktemp("above")
    folder.rename(above / "cifar-10-batches-bin")
    assert len(SOURCE.load(above).train) == 5 * RECORDS


def test_names_come_from_the_folder_if_it_has_them(folder: Path) -> None:
    names = folder / "batches.meta.txt"
    names.write_text("\n".join(f"class{number}" for number in range(10)))
    assert SOURCE.load(folder).names[3] == "class3"
    names.write_text("one two")
    assert "batches.meta.txt: expected 10 class names, found 2" in refusal(folder)
    names.unlink()
    assert SOURCE.load(folder).names == NAMES


def test_real_files_have_ten_thousand_records() -> None:
    assert cifar10.RECORDS_PER_FILE * cifar10.RECORD_BYTES == 30_730_000


def test_no_folder_given() -> None:
    assert "Give --data DIR" in refusal(None)


def test_missing_folder(tmp_path: Path) -> None:
    assert f"{tmp_path / 'nowhere'}: there is no such folder" in refusal(tmp_path / "nowhere")


def test_an_archive_instead_of_a_folder(tmp_path: Path) -> None:
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(b"")
    assert "unpack it" in refusal(archive)


def test_missing_file_is_named_with_what_is_there(folder: Path) -> None:
    (folder / "data_batch_4.bin").unlink()
    message = refusal(folder)
    assert f"{folder / 'data_batch_4.bin'}: there is no such file" in message
    assert "data_batch_3.bin" in message
    assert "data_batch_5.bin" in message


def test_empty_folder(tmp_path: Path) -> None:
    assert "is empty" in refusal(tmp_path)


def test_the_python_version_is_recognised(tmp_path: Path) -> None:
    for name in ("data_batch_1", "data_batch_2", "test_batch"):
        (tmp_path / name).write_bytes(b"pickle")
    assert "is the Python version; viaduct reads the binary version" in refusal(tmp_path)


def test_the_python_version_is_recognised_in_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"pickle")
    assert "is the Python version" in refusal(tmp_path)


def test_truncated_file_tells_both_sizes(folder: Path) -> None:
    file = folder / "data_batch_2.bin"
    file.write_bytes(file.read_bytes()[:-100])
    message = refusal(folder)
    assert f"{file}: expected 61,460 bytes, found 61,360" in message
    assert "ends 2,973 bytes into a record" in message


def test_whole_records_but_too_few(folder: Path) -> None:
    file = folder / TEST_FILE
    file.write_bytes(file.read_bytes()[: 3073 * 7])
    message = refusal(folder)
    assert f"{file}: expected 61,460 bytes, found 21,511" in message
    assert "holds 7 whole records" in message


def test_a_label_above_nine_is_mislabelled(folder: Path) -> None:
    made = records(0)
    made[13, 0] = 77
    made.tofile(folder / "data_batch_1.bin")
    message = refusal(folder)
    assert f"{folder / 'data_batch_1.bin'}: record 13 is mislabelled: expected 0 to 9, found 77" in message
