"""Readers that leave: the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from viaduct.training.output_streams import print_line

QUICK = "train shapes_taster --device cpu --steps 4 --log-every 1 --batch 16 --set data.train_images=64"
QUICK += " --set data.validation_images=16 --run run"
FULL = Path("/dev/full")


@pytest.fixture
def unread() -> Iterator[IO[str]]:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        yield stream


def test_a_closed_pipe_is_not_reported(unread: IO[str], capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("one", "two"):
        print_line(line, unread)
    unread.write("what others print leads nowhere, too\n")
    unread.flush()
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full on this system")
def test_a_full_disk_is_named_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with FULL.open("w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        print_line("one")
        print_line("two")
    warning = "standard output cannot be written (No space left on device); going on without it.\n"
    assert capsys.readouterr().err == warning


def test_a_line_goes_where_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("to everybody")
    print_line("aside", sys.stderr)
    assert capsys.readouterr() == ("to everybody\n", "aside\n")


@pytest.mark.parametrize("where", ["2>stderr | head -2", "2>&1 | head -1", "2>stderr >/dev/full"])
def test_a_run_whose_output_nobody_reads_any_more_comes_to_its_end(where: str, tmp_path: Path) -> None:
    """The run has its own Python: how an interpreter ends is part of the test."""
    if "/dev/full" in where and not FULL.exists():
        pytest.skip("there is no /dev/full on this system")
    line = f"set -o pipefail; {sys.executable} -m viaduct {QUICK} {where}"
    answer = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert answer.returncode == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 4
    steps = [row for row in (tmp_path / "run" / "log.txt").read_text().splitlines() if row.startswith("step: ")]
    assert len(steps) == 4
    stderr = (tmp_path / "stderr").read_text() if (tmp_path / "stderr").exists() else answer.stdout
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
