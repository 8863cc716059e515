"""The folder of a study: one search at a time, one study a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from viaduct.errors import BadRun
from viaduct.runs.search.study_folder import Definition, StudyFolder

DEFINITION = Definition("shapes_taster", None, ("optimizer.lr=0.1..1",), "top1", ("steps=10",))


def test_a_second_search_is_refused_while_the_first_holds_the_folder(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    with (
        folder.lock(),
        pytest.raises(BadRun, match=r"is in use: process \d+ is searching there"),
        StudyFolder(tmp_path / "study").lock(),
    ):
        pass


def test_a_search_that_was_refused_leaves_no_folder(tmp_path: Path) -> None:
    with StudyFolder(tmp_path / "study").lock():
        pass
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space": ("optimizer.lr=0.1..2",)}, r"another space: optimizer.lr=0.1..1 there, optimizer.lr=0.1..2 here"),
        ({"metric": "loss"}, "another metric"),
        ({"recipe": "resnet56_cifar10"}, "another recipe"),
        ({"data": "/elsewhere"}, "another data"),
        ({"settings": ()}, "another settings: steps=10 there, nothing here"),
    ],
)
def test_a_folder_with_another_study_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    folder = StudyFolder(tmp_path)
    folder.write_definition(DEFINITION)
    folder.write_definition(DEFINITION)
    with pytest.raises(BadRun, match=message):
        folder.write_definition(replace(DEFINITION, **change))  # type: ignore[arg-type]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(BadRun, match=r"holds no study \(notes.txt\)"):
        StudyFolder(tmp_path).write_definition(DEFINITION)


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.sqlite3").write_bytes(b"this is no database, but it is long enough to be read as one" * 20)
    with pytest.raises(BadRun, match=r"study\.sqlite3 cannot be used"):
        StudyFolder(tmp_path).open_study(DEFINITION)


def test_the_study_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "a #1?")
    folder.path.mkdir()
    study = folder.open_study(DEFINITION)
    study.tell(study.ask(), 0.5)
    assert StudyFolder(folder.path).open_study(DEFINITION).best_value == 0.5
