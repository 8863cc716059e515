"""Commands of processes in which a user's script runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.scripts.child_process import HOOK_FOLDER, VIADUCT_ROOT, make_child_command


@pytest.mark.process
def test_the_current_folder_is_not_searched_and_viaduct_is_the_one_of_this_process(tmp_path: Path) -> None:
    (tmp_path / "viaduct.py").write_text("raise RuntimeError('the wrong viaduct')\n")
    (tmp_path / "mine.py").write_text("raise RuntimeError('the current folder is searched')\n")
    code = (
        "import importlib.util, sys\ndef main(word):\n    print(word, importlib.util.find_spec('mine'))\n    return 3\n"
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "entry.py").write_text(code)
    command = make_child_command(sys.executable, "entry", "hello")
    environment = {"PYTHONPATH": str(tmp_path / "elsewhere")}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("hello None\n", 3), ended.stderr


def test_the_folders_are_where_their_files_are() -> None:
    assert (HOOK_FOLDER / "sitecustomize.py").is_file()
    assert (VIADUCT_ROOT / "viaduct" / "__init__.py").is_file()
