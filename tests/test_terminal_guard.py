"""Names that hold escape sequences are shown by every verb, and sent by none."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from forked_viaduct import viaduct
from viaduct.terminal import print_table, start_escaping_output, stop_escaping_output
from viaduct.training.output_streams import print_line

EVIL = "a\x1b[2J\x1b]0;owned\x07b\u202ec"
SHOWN = "\\x1b[2J"


def check_output(*words: str | Path, cwd: Path | None = None, shown: bool = True) -> None:
    """The verb names it, and sends none of its controls."""
    ended = viaduct(*words, cwd=cwd)
    assert "Traceback" not in ended.stderr
    for text in (ended.stdout, ended.stderr):
        assert not any(control in text for control in "\x1b\x07\u202e\r"), text
    if shown:
        assert SHOWN in ended.stdout + ended.stderr


def test_weights_and_tensors(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        save_file({EVIL: np.zeros(3, np.float32)}, tmp_path / name / "x.safetensors")
    check_output("weights", "show", tmp_path / "left" / "x.safetensors")
    check_output("compare", tmp_path / "left", tmp_path / "right", shown=False)
    np.save(tmp_path / "left" / f"{EVIL}.npy", np.zeros(3))
    check_output("compare", tmp_path / "left", tmp_path / "right")


def test_data_and_its_files(tmp_path: Path) -> None:
    for name in ("one", EVIL):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / f"{EVIL}.jpg").write_bytes(b"no image")
    check_output("data", "build", "--from", tmp_path / "images", "--out", tmp_path / "records", shown=False)
    (tmp_path / "records2").mkdir()
    (tmp_path / "records2" / f"train-{EVIL}-00000-of-00001").write_bytes(gzip.compress(b"x"))
    check_output("data", "check", tmp_path / "records2", shown=False)
    check_output("data", "check", tmp_path / EVIL)


@pytest.mark.parametrize(
    "words",
    [
        ("train", EVIL),
        ("train", "shapes_taster", "--run", EVIL, "--set", f"{EVIL}=3"),
        ("evaluate", EVIL),
        ("predict", EVIL, EVIL),
        ("models", EVIL),
        ("ranktable", "check", EVIL),
        ("migrate", EVIL, "--to", "npu"),
        ("launch", "--ranks", "2", "--", EVIL),
        ("devices", EVIL),
        (EVIL,),
    ],
    ids=lambda words: words[0] if words[0] != EVIL else "verb",
)
def test_errors(words: tuple[str, ...], tmp_path: Path) -> None:
    check_output(*words, cwd=tmp_path)


def test_a_run_of_such_a_name(tmp_path: Path) -> None:
    run = tmp_path / EVIL
    run.mkdir()
    (run / "recipe.json").write_text(json.dumps({"name": EVIL, "file": None, "recipe": {}}))
    check_output("evaluate", run)


def test_a_table_shows_controls_and_keeps_its_colours() -> None:
    for terminal in (True, False):
        written = io.StringIO()
        table = Table("name", "colour")
        table.add_row(EVIL, Text(EVIL, "red"))
        table.add_row("plain", Text("red", "red"))
        print_table(table, Console(file=written, force_terminal=terminal, width=200))
        assert "\x1b[2J" not in written.getvalue()
        assert written.getvalue().count(SHOWN) >= 2
        assert ("\x1b[31m" in written.getvalue()) is terminal


def test_what_a_users_own_code_prints_is_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    start_escaping_output()
    start_escaping_output()
    print("a\x1b[31m\tb\r")
    assert written.getvalue() == "a\\x1b[31m\tb\\r\n"
    Console(force_terminal=True).print("[red]x[/]")
    assert "\x1b[31mx" in written.getvalue()
    stop_escaping_output()
    assert sys.stdout is written
    print("50 %\r", end="")
    print_line(f"class {EVIL}")
    assert written.getvalue().endswith(f"50 %\rclass a{SHOWN}\\x1b]0;owned\\x07b\\u202ec\n")


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-"])
def test_a_stream_that_is_closed_at_the_start_changes_no_exit_code(tmp_path: Path, closed: str) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.zeros(2).cuda()\n")
    line = f'"{sys.executable}" -m viaduct migrate a.py --to npu {closed}'
    assert subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True).returncode == 0


def test_a_refusal_keeps_its_exit_code_without_stderr(tmp_path: Path) -> None:
    line = f'"{sys.executable}" -m viaduct migrate absent.py --to npu 2>&-'
    assert subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True).returncode == 2
