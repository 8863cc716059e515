"""A script that reads the terminal's size gets 80 by 24."""

from __future__ import annotations

from pathlib import Path

from rehearsal.rehearsing import TRAINS, rehearse_script

ASKS = """\
import os, subprocess

height, width = os.popen("stty size", "r").read().split()
print(width, height, tuple(os.get_terminal_size()), os.isatty(0))
code = "import os; print(os.get_terminal_size().columns)"
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip(), sys.stdout.isatty())
for _ in range(3):
    try:
        input("yes? ")
    except EOFError:
        print("nobody is there")
train(1)
"""


def test_the_terminal_has_a_size_and_an_empty_stdin(tmp_path: Path) -> None:
    answer = rehearse_script(tmp_path, TRAINS + ASKS, "--on", "original")
    assert answer.code == 0, answer.stderr
    assert answer.stdout.splitlines()[:2] == ["80 24 (80, 24) True", "80 False"]
    assert answer.stdout.count("nobody is there") == 3
