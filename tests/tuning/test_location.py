"""Choice of the bank."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from viaduct.tuning import location
from viaduct.tuning.bank import BadBank
from viaduct.tuning.location import (
    is_repeat_wanted,
    locate_bank,
    prepare_writing,
    remove_empty_bank_on_failure,
)


def test_a_flag_comes_before_the_variable_and_the_variable_before_the_default(tmp_path: Path) -> None:
    environment = {"TUNE_BANK_PATH": str(tmp_path), "XDG_DATA_HOME": "/home/somebody/data"}
    assert locate_bank(Path("mine"), environment).path == Path("mine")
    assert locate_bank(None, environment).path == tmp_path
    del environment["TUNE_BANK_PATH"]
    assert locate_bank(None, environment).path == Path("/home/somebody/data/viaduct/bank")


def test_a_variable_that_names_no_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path, what in ((tmp_path / "absent", "does not exist"), (file, "is not a folder")):
        with pytest.raises(BadBank, match=what):
            locate_bank(None, {"TUNE_BANK_PATH": str(path)})


def test_a_variable_whose_folder_may_not_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location.os, "access", lambda path, right: right != os.W_OK)
    with pytest.raises(BadBank, match="may not be written"):
        locate_bank(None, {"TUNE_BANK_PATH": str(tmp_path)})


def test_a_bank_is_made_where_it_is_written(tmp_path: Path) -> None:
    prepare_writing(locate_bank(tmp_path / "new" / "bank"))
    assert (tmp_path / "new" / "bank").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(BadBank, match="is a file"):
        prepare_writing(locate_bank(tmp_path / "file"))
    with pytest.raises(BadBank, match="Name a folder: --out DIR"):
        prepare_writing(locate_bank(tmp_path / "file"), flag="--out")


def test_a_bank_into_which_nothing_was_written_is_removed_after_an_error(tmp_path: Path) -> None:
    found = locate_bank(tmp_path / "bank")

    def fail(write: bool) -> None:
        with remove_empty_bank_on_failure(found):
            prepare_writing(found)
            if write:
                (found.path / "entry.json").touch()
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        fail(write=False)
    assert not found.path.exists()
    with pytest.raises(ValueError, match="stopped"):
        fail(write=True)
    assert found.path.exists()
    (found.path / "entry.json").unlink()
    with pytest.raises(ValueError, match="stopped"):
        fail(write=False)
    assert found.path.exists(), "it was there before"


def test_repeating_is_requested_by_true() -> None:
    assert is_repeat_wanted({"REPEAT_TUNE": "True"})
    assert not is_repeat_wanted({"REPEAT_TUNE": "False"})
    assert not is_repeat_wanted({})
    with pytest.raises(BadBank, match="maybe"):
        is_repeat_wanted({"REPEAT_TUNE": "maybe"})
