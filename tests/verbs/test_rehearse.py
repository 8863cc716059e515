"""Mistakes on the command line of `viaduct rehearse`."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py"], "there is no script 'nothing.py'"),
        (["plain.py"], "import neither torch nor tensorflow"),
        (["torches.py", "--memory", "much"], "--memory 'much' is not a size"),
        (["torches.py", "--limit", "float46=off"], "no limit called 'float46'"),
        (["torches.py", "--record", "."], "--record . exists already"),
        (["broken.py"], "invalid syntax (broken.py, line 2)"),
    ],
)
def test_a_users_mistake_is_answered_with_a_message(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "plain.py").write_text("print(1)\n")
    (tmp_path / "torches.py").write_text("import torch\n")
    (tmp_path / "broken.py").write_text("import torch\nif:\n")
    answer = viaduct("rehearse", *words, cwd=tmp_path)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
