"""The output folder of a carry: a new one, or one whose old content is moved aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from viaduct.carrying.output_folder import check_output_folder, move_aside, prepare_folder
from viaduct.errors import BadRun, BadValue


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("")
    return folder


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("project", "contains the script or project"),
        (".", "contains the script or project"),
        ("project/carried", "lies within"),
        ("taken", "is not a folder"),
        ("link", "is not a folder"),
    ],
)
def test_a_folder_that_would_destroy_or_copy_itself_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, out: str, reason: str
) -> None:
    monkeypatch.chdir(project.parent)
    Path("taken").write_text("")
    Path("link").symlink_to("nowhere")
    with pytest.raises(BadValue, match=reason):
        check_output_folder(project, Path(out), force=True)


def test_a_full_folder_needs_force_and_an_empty_one_does_not(project: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    check_output_folder(project, out, force=False)
    out.mkdir()
    check_output_folder(project, out, force=False)
    (out / "mine.txt").write_text("mine")
    with pytest.raises(BadRun, match="exists already"):
        check_output_folder(project, out, force=False)
    check_output_folder(project, out, force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(project: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    with pytest.raises(BadValue, match="cannot be written to"):
        check_output_folder(project, locked / "a" / "b", force=False)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_or_an_interruption_the_old_content_is_back(tmp_path: Path, error: type[BaseException]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")

    def fail() -> None:
        with prepare_folder(out):
            (out / "half.txt").write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_after_an_error_an_empty_folder_is_empty_and_a_new_one_gone(tmp_path: Path) -> None:
    def fail(out: Path) -> None:
        with prepare_folder(out):
            (out / "half.txt").write_text("half")
            raise ZeroDivisionError

    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        with pytest.raises(ZeroDivisionError):
            fail(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert not list((tmp_path / "empty").iterdir())


def test_old_content_is_kept_under_the_first_free_number(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    (tmp_path / "out.1").symlink_to("nowhere")
    with prepare_folder(tmp_path / "out") as aside:
        assert aside == tmp_path / "out.2"
        assert not list((tmp_path / "out").iterdir())
    assert (tmp_path / "out.2" / "mine.txt").read_text() == "mine"
    assert move_aside(tmp_path / "out") == tmp_path / "out.3"
