"""`viaduct dump`: what is refused, printed and written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from viaduct.comparison.dump_options import DumpOptions
from viaduct.errors import BadValue
from viaduct.verbs._train_arguments import read_dump_options
from viaduct.verbs.dump import main

SCRIPT = """
import argparse, atexit, torch
flags = argparse.ArgumentParser()
flags.add_argument("--epochs", type=int)
print("epochs", flags.parse_args().epochs, flush=True)
atexit.register(print, "atexit")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


def viaduct(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "viaduct", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        timeout=600,
    )


def test_a_script_is_dumped_and_gets_its_own_arguments(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    answer = viaduct(tmp_path, "dump", "job.py", "--steps", "0,1", "--out", "d", "--", "--epochs", "7")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == ["epochs 7", "atexit"]
    assert "viaduct compare ACCELERATOR_DUMP d --explain" in answer.stderr
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["step_000000", "step_000001"]
    again = viaduct(tmp_path, "dump", "job.py", "--out", "d")
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_a_pattern_that_names_nothing_is_refused_with_close_names(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    with pytest.raises(BadValue, match=r"no operator is called like 'netwrk'; close are: network"):
        main(script=str(tmp_path / "job.py"), only="netwrk", out=tmp_path / "dump")
    assert not list((tmp_path / "dump").iterdir())


def test_a_step_that_is_not_reached_is_explained(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    with pytest.raises(BadValue, match=r"took 3 steps[\s\S]*steps are 0 to 2"):
        main(script=str(tmp_path / "job.py"), steps="9", out=tmp_path / "dump")
    assert not (tmp_path / "dump").exists()


def test_a_script_that_does_not_train_is_described(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("print('hello')\n")
    with pytest.raises(BadValue, match=r"without calling a torch\.nn\.Module"):
        main(script=str(tmp_path / "job.py"), out=tmp_path / "dump")


@pytest.mark.parametrize(
    "flags", [{"dump_only": "a"}, {"dump_mode": "input"}, {"dump_level": "op"}, {"dump_statistics_only": True}]
)
def test_dump_flags_of_train_without_dump_steps_are_refused(flags: dict[str, Any]) -> None:
    plain: dict[str, Any] = {
        **{f"dump_{name}": value for name, value in vars(DumpOptions()).items()},
        "dump_steps": None,
    }
    assert read_dump_options(plain) is None
    with pytest.raises(BadValue, match="need --dump-steps"):
        read_dump_options({**plain, **flags})
    assert read_dump_options({**plain, **flags, "dump_steps": "0|5|10-12"}) is not None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.py"], "no script"),
        (["job.py", "--steps", "5-1"], "--steps"),
        (["-m", "no_such_module"], "no module"),
        (["job.py", "--out", "job.py"], "is a file"),
    ],
)
def test_mistakes_are_answered_before_torch_is_imported(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "job.py").write_text("print('ran')\n")
    answer = viaduct(tmp_path, "dump", *words)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not answer.stdout


@pytest.mark.parametrize("name", ["thesis.txt", "step_by_step.txt", "last_step_weights.pt", "step_000000"])
@pytest.mark.parametrize("script", ["", "import tensorflow as tf\ntf.Session()\n"])
def test_replacing_never_touches_what_is_not_a_dump(tmp_path: Path, name: str, script: str) -> None:
    (tmp_path / "job.py").write_text(script)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / name).write_text("")
    answer = viaduct(tmp_path, "dump", "job.py", "--out", "home", "--force")
    assert answer.returncode == 2
    assert name in answer.stderr
    assert (tmp_path / "home" / name).is_file()
