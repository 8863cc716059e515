"""A project that could not be read completely: that is reported first, the verdict is incomplete, the exit code 1."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from migration.small_project import migrated_project
from unprivileged import drop_file_privileges, make_public_folder
from viaduct.migration.summary import headline, summarise

SCRIPT = "import torch\ntorch.cuda.synchronize()\n"


@pytest.fixture
def project() -> Iterator[Path]:
    with make_public_folder() as folder:
        folder.chmod(0o777)
        (folder / "project").mkdir()
        (folder / "project/train.py").write_text(SCRIPT)
        yield folder / "project"


def as_user(*given: str) -> subprocess.CompletedProcess[str]:
    """Run `viaduct …` as a user who may not read everything."""
    code = "import sys; sys.argv[0] = 'viaduct'; from viaduct.cli import main; main()"
    words = [sys.executable, "-c", code, *given]
    return subprocess.run(words, capture_output=True, text=True, preexec_fn=drop_file_privileges)


def make_unreadable(project: Path) -> str:
    (project / "secret.py").write_text(SCRIPT)
    (project / "secret.py").chmod(0)
    return "secret.py"


def make_locked_folder(project: Path) -> str:
    (project / "locked").mkdir()
    (project / "locked/inner.py").write_text(SCRIPT)
    (project / "locked").chmod(0)
    return "locked"


def make_listable_folder(project: Path) -> str:
    """Make a folder that can be listed but not entered."""
    make_locked_folder(project)
    (project / "locked").chmod(0o444)
    return "locked/inner.py"


def make_unreadable_data(project: Path) -> str:
    (project / "weights.bin").write_bytes(b"x")
    (project / "weights.bin").chmod(0)
    return "weights.bin"


def make_fifo(project: Path) -> str:
    os.mkfifo(project / "pipe.py")
    return "pipe.py"


def make_socket(project: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(project / "s.sock"))
    return "s.sock"


def make_dangling(project: Path) -> str:
    os.symlink("gone.py", project / "link.py")
    return "link.py"


def make_outside(project: Path) -> str:
    os.symlink("/etc", project / "etc")
    return "etc"


def make_undecodable(project: Path) -> str:
    (project / "latin.py").write_bytes(b"import torch\nx = '\xe9'\n")
    return "latin.py"


def make_python2(project: Path) -> str:
    (project / "old.py").write_text("import torch\nprint 'x'\n")
    return "old.py"


MAKERS = [make_fifo, make_socket, make_dangling, make_outside, make_undecodable, make_python2]
PERMISSIONS = [make_unreadable, make_locked_folder, make_listable_folder, make_unreadable_data]


@pytest.mark.parametrize("make", [*MAKERS, *PERMISSIONS])
def test_what_was_not_read_is_reported_first_and_never_called_complete(
    project: Path, make: Callable[[Path], str]
) -> None:
    name = make(project)
    out = project.parent / "out"
    out_files = {flag: project.parent / f"report.{flag}" for flag in ("json", "sarif", "html")}
    reports = ["--json", str(out_files["json"]), "--sarif", str(out_files["sarif"]), "--report", str(out_files["html"])]
    result = as_user("migrate", str(project), "--out", str(out), *reports)
    for path in project.iterdir():
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("Incomplete: 1 path not read")
    assert name in result.stdout.splitlines()[1]
    assert "nothing left" not in result.stdout
    assert "\ncomplete" not in result.stdout
    assert "torch.npu" in (out / "train.py").read_text(), "the rest is migrated"
    record = json.loads(out_files["json"].read_text())
    assert [file["path"] for file in record["incomplete"]] == [name]
    assert record["summary"]["verdict"] == "incomplete"
    (invocation,) = json.loads(out_files["sarif"].read_text())["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert name in invocation["toolExecutionNotifications"][0]["message"]["text"]
    page = out_files["html"].read_text()
    assert "Incomplete: 1 path not read" in page
    assert name in page


@pytest.mark.parametrize("flags", [[], ["--check"], ["--quiet"], ["--in-place"]])
def test_it_is_reported_whatever_is_requested(project: Path, flags: list[str]) -> None:
    make_python2(project)
    result = viaduct("migrate", str(project), *flags)
    assert result.returncode == 1
    assert result.stdout.startswith("Incomplete: 1 path not read")


def test_caches_and_ignored_files_make_nothing_incomplete(project: Path) -> None:
    for name in (".git", "__pycache__", "node_modules"):
        (project / name).mkdir()
    outcome = migrated_project(project)
    assert outcome.unread == []
    assert "incomplete" not in headline(summarise(outcome))


def test_a_file_that_cannot_be_read_to_its_end_is_left_out_of_the_copy(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from viaduct.migration import writing

    (project / "data.bin").write_bytes(b"x" * 100)
    (project / "fine.bin").write_bytes(b"y" * 100)
    outcome = migrated_project(project)

    def failing(file: object) -> bytes:
        if getattr(file, "name", 0) and os.readlink(f"/proc/self/fd/{file.fileno()}").endswith("data.bin"):  # type: ignore[attr-defined]
            raise writing.SourceError("Input/output error")
        return read_chunk(file)  # type: ignore[arg-type]

    read_chunk = writing.read_chunk
    monkeypatch.setattr(writing, "read_chunk", failing)
    writing.write_out(outcome, project.parent / "out", {})
    assert sorted(os.listdir(project.parent / "out")) == ["fine.bin", "train.py"]
    assert [(file.path, file.reason_in("en")) for file in outcome.unread] == [
        ("data.bin", "cannot be read: Input/output error")
    ]


# ---- one script


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"import torch\nprint 'x'\n", "line 2: this is Python 2"),
        (b"try:\n    pass\nexcept IOError, e:\n    pass\n", "line 3: this is Python 2"),
        (b"x = 1\nraise ValueError, 'no'\n", "line 2: this is Python 2"),
        (b"if 1 <> 2:\n    pass\n", "line 1: this is Python 2"),
        (b"x = 0777\n", "line 1: this is Python 2"),
        (b"exec 'x = 1'\n", "line 1: this is Python 2"),
        (b"x = 10L\n", "line 1: this is Python 2"),
        (b"import torch\ndef f(:\n    pass\n", "line 2: invalid syntax"),
        (b"x = 1\ny = '\xe9'\n", "line 2: cannot be decoded"),
        (b"\0\1", "NUL"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--in-place"]])
def test_a_single_script_that_does_not_parse_is_refused_in_two_lines(
    project: Path, data: bytes, message: str, flags: list[str]
) -> None:
    script = project / "alone.py"
    script.write_bytes(data)
    result = viaduct("migrate", str(script), *flags)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2, lines
    assert "alone.py" in lines[0]
    assert message in lines[0]
    assert script.read_bytes() == data
    assert not result.stdout


def test_a_single_script_that_may_not_be_read_is_refused_in_two_lines(project: Path) -> None:
    result = as_user("migrate", str(project / make_unreadable(project)))
    assert result.returncode == 2
    first, hint = result.stderr.splitlines()
    assert first.endswith("secret.py': the file may not be read (permission denied).")
    assert "ask its owner" in hint


@pytest.mark.parametrize("path", ["locked", "locked/inner.py", "locked/none/x.py"])
def test_a_path_that_may_not_be_entered_is_refused_in_two_lines(project: Path, path: str) -> None:
    make_locked_folder(project)
    result = as_user("migrate", str(project / path))
    (project / "locked").chmod(0o755)
    assert result.returncode == 2
    assert "permission denied" in result.stderr.splitlines()[0].lower()
    assert len(result.stderr.splitlines()) == 2, result.stderr


# ---- what would steer a terminal


def test_escapes_in_names_and_source_are_shown_and_not_sent(project: Path) -> None:
    name = "a\x1b[2J\nfine\u202e.py"
    (project / name).write_text(f"{SCRIPT}x = 'a\x1b]0;mine\x07\u202eb'; torch.cuda.empty_cache()\n")
    (project / "b\x1b[31m.py").write_bytes(b"print 'x'\x1b\n")
    code = "import sys; sys.argv[0] = 'viaduct'; from viaduct.cli import main; main()"
    words = [sys.executable, "-c", code, "migrate", str(project), "--report", str(project.parent / "r.html")]
    shown = in_terminal(words)
    for raw in (b"\x1b[2J", b"\x1b]0;", b"\x07", "\u202e".encode(), b"\x1b[31m.py"):
        assert raw not in shown, raw
    assert b"a\\x1b[2J\\nfine\\u202e.py" in shown
    assert b"\\x1b]0;mine\\x07" in shown
    page = (project.parent / "r.html").read_text()
    for raw in ("\x1b", "\x07", "\u202e"):
        assert raw not in page


def in_terminal(words: list[str]) -> bytes:
    """Return what a command writes to its terminal."""
    import pty

    sent = bytearray()

    def keep(number: int) -> bytes:
        data = os.read(number, 65536)
        sent.extend(data)
        return data

    saved = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # pty.spawn copies to stdout
    try:
        pty.spawn(words, keep)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(null)
    return bytes(sent)
