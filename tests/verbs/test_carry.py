"""Mistakes on the command line of `viaduct carry`."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import TORCH
from forked_viaduct import viaduct


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train.py", "--out", "."), "contains the script or project"),
        (("nothing.py",), "there is no nothing.py"),
        ((".",), "--out carried lies within '.'."),
        (("train.py", "--migrated", "nowhere"), "there is no such file or folder"),
        (("train.py", "--migrated", "empty"), "has no train.py"),
        (("train.py", "--limit", "speed=warn"), "no limit called 'speed'"),
        (("other.py",), "import neither torch nor tensorflow"),
        (("missing.py",), "not installed here, though the script imports it: not_there_at_all (missing.py:2)"),
    ],
)
def test_a_mistake_is_answered_before_anything_is_run_or_written(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    (tmp_path / "other.py").write_text("print(1)\n")
    (tmp_path / "missing.py").write_text("import torch\nimport not_there_at_all\n")
    (tmp_path / "empty").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    answer = viaduct("carry", *words, cwd=tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "this executes" not in answer.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
