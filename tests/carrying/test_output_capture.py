"""Lines of both sides are labelled on the terminal; the files with their output have no labels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.carrying.output_capture import LineLabeller

CASES = {
    "lines": ([b"a\nb\n"], b"x | a\nx | b\n"),
    "in pieces": ([b"a", b"b\nc", b"\n"], b"x | ab\nx | c\n"),
    "an empty line": ([b"a\n\nb\n"], b"x | a\nx | \nx | b\n"),
    "a bar that is drawn again": ([b"\r 10%", b"\r 20%\n"], b"\rx |  10%\rx |  20%\n"),
    "a bar in pieces": ([b" 10%\r", b" 20%\n"], b"x |  10%\rx |  20%\n"),
    "line ends of Windows": ([b"a\r\nb\r\n"], b"x | a\r\nx | b\r\n"),
    "line ends of Windows in pieces": ([b"a\r", b"\nb\n"], b"x | a\r\nx | b\n"),
    "without an end": ([b"a\nb"], b"x | a\nx | b\n"),
    "nothing": ([], b""),
}


@pytest.mark.parametrize("name", CASES)
def test_every_line_begins_with_its_side(name: str) -> None:
    chunks, expected = CASES[name]
    labelled = LineLabeller("x")
    assert b"".join([*map(labelled.add, chunks), labelled.finish()]) == expected


@pytest.mark.process
def test_what_every_process_prints_is_labelled_and_kept(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom viaduct.carrying.output_capture import capture_output\n"
        f"with capture_output(Path({str(tmp_path / 'output.txt')!r}), 'original'):\n"
        "    print('one', flush=True)\n    os.system('echo two >&2')\n"
        "print('result')\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert (answer.returncode, answer.stdout) == (0, "result\n"), answer.stderr
    assert answer.stderr == "original | one\noriginal | two\n"
    assert (tmp_path / "output.txt").read_text() == "one\ntwo\n"
