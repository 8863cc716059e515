"""A checkpoint's prefix from a user's input, without leaving the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from viaduct.errors import BadData
from viaduct.weights.bundle import write_bundle
from viaduct.weights.locate import find_prefix, is_tf_checkpoint, record_latest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (5, 10):
        write_bundle(tmp_path / "train" / f"model.ckpt-{step}", {"global_step": torch.tensor(step)})
    return tmp_path / "train"


@pytest.mark.parametrize("ending", ["", ".index", ".data-00000-of-00001", ".meta"])
def test_a_checkpoint_is_found_by_any_of_its_files(ending: str, folder: Path) -> None:
    assert find_prefix(folder / f"model.ckpt-5{ending}") == folder / "model.ckpt-5"


def test_an_earlier_checkpoint_with_a_quote_in_its_name_remains_listed(tmp_path: Path) -> None:
    for name in ('a"b-1', "c-2"):
        write_bundle(tmp_path / name, {"x": torch.zeros(1)})
    listed = (tmp_path / "checkpoint").read_text().splitlines()[1:]
    assert listed == [r'all_model_checkpoint_paths: "a\"b-1"', 'all_model_checkpoint_paths: "c-2"']


def test_a_folder_stands_for_its_latest_checkpoint(folder: Path) -> None:
    assert find_prefix(folder) == folder / "model.ckpt-10"
    record_latest(folder / "model.ckpt-5")
    assert find_prefix(folder) == folder / "model.ckpt-5"
    assert (folder / "checkpoint").read_text().count("all_model_checkpoint_paths") == 2


@pytest.mark.parametrize(
    "written", ["/home/somebody/train/model.ckpt-5", "../elsewhere/model.ckpt-5", "./model.ckpt-5", "model.ckpt\\055"]
)
def test_a_path_of_another_machine_stands_for_the_same_name_here(written: str, folder: Path) -> None:
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{written}"\n')
    if "\\" in written:
        with pytest.raises(BadData, match="not in this folder"):
            find_prefix(folder)
    else:
        assert find_prefix(folder).resolve() == folder / "model.ckpt-5"


def test_a_checkpoint_elsewhere_is_not_opened(folder: Path, tmp_path: Path) -> None:
    write_bundle(tmp_path / "secret" / "other.ckpt", {"v": torch.zeros(1)})
    for written in (tmp_path / "secret" / "other.ckpt", "../secret/other.ckpt"):
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{written}"\n')
        with pytest.raises(BadData, match="not in this folder") as refusal:
            find_prefix(folder)
        assert "model.ckpt-5" in str(refusal.value)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "checkpoint").write_text('model_checkpoint_path: "link/other.ckpt"\n')
    with pytest.raises(BadData, match="not in this folder"):
        find_prefix(folder)


@pytest.mark.parametrize(
    "text", ["", "nonsense", 'model_checkpoint_path: ""', 'model_checkpoint_path: "a\\0b"', "\xff"]
)
def test_a_text_that_names_nothing_is_refused(text: str, folder: Path) -> None:
    (folder / "checkpoint").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadData, match="checkpoint"):
        find_prefix(folder)


def test_without_the_text_the_only_checkpoint_is_used(folder: Path) -> None:
    (folder / "checkpoint").unlink()
    with pytest.raises(BadData, match="holds 2 checkpoints") as refusal:
        find_prefix(folder)
    assert "model.ckpt-10, model.ckpt-5" in str(refusal.value)
    (folder / "model.ckpt-10.index").unlink()
    assert find_prefix(folder) == folder / "model.ckpt-5"


def test_for_a_missing_checkpoint_the_existing_ones_are_listed(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"there is no checkpoint .*model\.ckpt-7.*\n.*model\.ckpt-10"):
        find_prefix(folder / "model.ckpt-7")
    (tmp_path / "old.ckpt").write_bytes((folder / "model.ckpt-5.index").read_bytes())  # V1 is such a table, too
    with pytest.raises(BadData, match="V1 checkpoint"):
        find_prefix(tmp_path / "old.ckpt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadData, match="holds no TensorFlow checkpoint"):
        find_prefix(tmp_path / "empty")
    assert not is_tf_checkpoint(tmp_path / "empty")
    assert is_tf_checkpoint(folder)


@pytest.mark.parametrize("name", ["nope.pth", "nope.pt", "nope.bin", "nope.safetensors"])
def test_a_missing_file_is_not_taken_for_a_prefix(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadData) as refusal:
        find_prefix(tmp_path / name)
    assert refusal.value.message == f"there is no file {tmp_path / name}."


def test_a_missing_ckpt_may_have_been_a_file_or_a_prefix(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"there is no file .*nope\.ckpt, and no TensorFlow checkpoint of that name"):
        find_prefix(tmp_path / "nope.ckpt")
