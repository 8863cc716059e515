"""Messages for paths that the operating system refuses; our own mistakes stay tracebacks."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from forked_viaduct import start_command
from unprivileged import drop_file_privileges
from viaduct.path_errors import BadPath, explain_os_error, is_users_file, refuse_special_file
from viaduct.training.distributed import Group, explain_rank_errors


def error_for(path: Path | str, number: int) -> OSError:
    return OSError(number, os.strerror(number), str(path))


def explain(path: Path | str, number: int, *arguments: str) -> BadPath | None:
    return explain_os_error(error_for(path, number), arguments, ["--run", "--data", "--set"])


@pytest.fixture(autouse=True)
def no_output_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' folders lie in the temporary folder, where output goes by itself."""
    monkeypatch.setattr("viaduct.path_errors.is_users_file", lambda name: False)


def test_a_path_that_is_not_on_the_command_line_is_a_bug_of_ours(tmp_path: Path) -> None:
    assert explain("/usr/lib/x", errno.EACCES, "train", "--run", str(tmp_path)) is None
    assert explain_os_error(KeyError("x"), ["train", "x"]) is None
    assert explain_os_error(OSError(errno.EINVAL, "Invalid argument"), ["train", "/"]) is None


@pytest.mark.parametrize("given", ["{}", "--run={}", "--set=init.source={}", "init.source={}", "a,{}", "{}/deeper"])
def test_a_path_is_found_however_it_was_given(given: str, tmp_path: Path) -> None:
    assert explain(tmp_path / "x", errno.ENOSPC, "train", given.format(tmp_path / "x")) is not None


def test_the_flag_is_named_and_so_is_the_file_inside(tmp_path: Path) -> None:
    found = explain(tmp_path / "run" / "log.txt", errno.EROFS, "train", "--run", str(tmp_path / "run"))
    assert str(found) == (
        f"--run '{tmp_path}/run': '{tmp_path}/run/log.txt': the file system is read-only.\n"
        "  Choose a path on a file system that can be written."
    )


def test_files_beside_a_list_that_was_given_are_named(tmp_path: Path) -> None:
    (tmp_path / "list.csv").touch()
    found = explain(tmp_path / "image.png", errno.EACCES, "data", "build", str(tmp_path / "list.csv"))
    assert str(found).startswith(f"'{tmp_path}/list.csv': '{tmp_path}/image.png': ")


def test_a_switch_before_a_path_is_not_its_flag(tmp_path: Path) -> None:
    assert str(explain(tmp_path, errno.EIO, "weights", "--force", str(tmp_path))).startswith(f"'{tmp_path}': ")


def test_a_file_without_a_name_is_found_where_it_was_written() -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        Path("/dev/full").write_text("x")
    found = explain_os_error(caught.value, ["bench", "--json", "/dev/full"], ["--json"])
    assert str(found).startswith("--json '/dev/full': no space is left on the disk.")


def test_a_full_disk_is_never_our_bug() -> None:
    assert str(explain_os_error(OSError(errno.ENOSPC, "x"), ["train"])).startswith("no space is left on the disk.")


def test_a_link_that_leads_to_itself_is_explained_on_every_python(tmp_path: Path) -> None:
    error = RuntimeError(f"Symlink loop from {str(tmp_path)!r}")  # what Path.resolve raises before Python 3.13
    assert "lead in a circle" in str(explain_os_error(error, ["train", str(tmp_path)]))


def test_files_of_ours_are_no_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir("/")
    assert not is_users_file("/usr/lib/x")
    assert not is_users_file(explain_os_error.__code__.co_filename)
    monkeypatch.chdir(tmp_path)
    assert is_users_file("runs/x")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "deep" / "run"
    assert f"'{tmp_path}/file' is a file, not a folder" in str(explain(path, errno.ENOTDIR, str(path)))


def look_into(folder: str, out: str) -> None:
    drop_file_privileges()
    try:
        os.stat(f"{folder}/closed/inner/x")
    except OSError as error:
        Path(out).write_text(str(explain_os_error(error, ["train", f"{folder}/closed/inner/x"])))


def test_the_folder_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed" / "inner").mkdir(parents=True)
    (tmp_path / "closed").chmod(0)
    with start_command(look_into, str(tmp_path), str(tmp_path / "out")) as child:
        child.communicate()
    (tmp_path / "closed").chmod(0o700)
    assert f"the folder '{tmp_path}/closed' may not be entered" in (tmp_path / "out").read_text()


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/full")):
        with pytest.raises(OSError, match="not a file"):
            refuse_special_file(path)
    refuse_special_file(Path(__file__))


def test_what_the_shell_hands_over_is_read(tmp_path: Path) -> None:
    read, write = os.pipe()
    refuse_special_file(Path(f"/dev/fd/{read}"))
    os.close(read)
    os.close(write)


def remove_own_folder(folder: str, out: str) -> None:
    os.chdir(folder)
    os.rmdir(folder)
    try:
        Path("x").resolve()
    except OSError as error:
        Path(out).write_text(str(explain_os_error(error, ["train", "x"])))


def test_a_current_folder_that_is_gone_is_reported(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    with start_command(remove_own_folder, str(tmp_path / "gone"), str(tmp_path / "out")) as child:
        child.communicate()
    assert (tmp_path / "out").read_text().startswith("the current folder has been removed.")


def test_a_rank_other_than_the_first_says_which_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["viaduct", "train", "--run", str(tmp_path)])
    with pytest.raises(BadPath, match=r"^rank 1: .*no space is left on the disk"), explain_rank_errors(Group(1, 2)):
        raise error_for(tmp_path, errno.ENOSPC)
    with pytest.raises(PermissionError), explain_rank_errors(Group(1, 2)):
        raise error_for("/usr/lib/x", errno.EACCES)


def test_an_error_of_the_first_rank_alone_reaches_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr("sys.argv", ["viaduct", "train", "--run", str(tmp_path)])
    monkeypatch.setattr(Group, "broadcast_value", lambda self, value: heard.append(value))

    def fail() -> None:
        raise error_for(tmp_path, errno.EROFS)

    with pytest.raises(BadPath, match="read-only"):
        Group(0, 2).run_on_rank_zero(fail)
    assert "read-only" in heard[0][2]
