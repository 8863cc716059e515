"""Start scripts of a migrated project: run here, with a stand-in for the training script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from viaduct.cluster.rules import examine
from viaduct.cluster.tf1_scripts import EXAMPLE_SERVER, TABLE, make

SCRIPT = """import os, sys
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "ASCEND_DEVICE_ID", "JOB_ID")
print(*(os.environ.get(name) for name in names), "table" if os.environ.get("RANK_TABLE_FILE") else "none", sys.argv[1:])
sys.exit(3 if os.environ.get("FAIL") == os.environ["RANK_ID"] else 0)
"""


def write(folder: Path, entry: str = "train it.py") -> Path:
    (folder / "train it.py").write_text(SCRIPT)
    scripts = folder / "scripts"
    scripts.mkdir()
    for name, text in make("npu", entry).items():
        (scripts / name).write_text(text)
    return scripts


def run(script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "JOB_ID", "DEVICE"))}
    return subprocess.run(
        ["bash", str(script), *words],
        capture_output=True,
        text=True,
        env={**clean, "LOGS": str(script.parent / "logs"), **environment},
        timeout=600,
    )


def test_one_device_gets_its_variables_and_arguments(tmp_path: Path) -> None:
    answer = run(write(tmp_path) / "run_1p.sh", "--steps", "3 4", DEVICE_ID="5")
    assert answer.stdout == "0 1 5 5 10087 none ['--steps', '3 4']\n", answer.stderr


def test_without_an_entry_the_script_is_the_first_argument(tmp_path: Path) -> None:
    scripts = write(tmp_path, entry="")
    assert run(scripts / "run_1p.sh").returncode != 0
    assert run(scripts / "run_1p.sh", str(tmp_path / "train it.py"), "x").stdout.endswith("['x']\n")


def test_eight_devices_want_a_rank_table_of_this_machine(tmp_path: Path) -> None:
    scripts = write(tmp_path)
    answer = run(scripts / "run_8p.sh")
    assert answer.returncode == 2
    assert "viaduct ranktable make" in answer.stderr


def test_eight_ranks_are_started_each_with_its_own_variables(tmp_path: Path) -> None:
    scripts = write(tmp_path)
    table = (scripts / TABLE).read_text().replace(EXAMPLE_SERVER, "10.0.0.1")
    (scripts / TABLE).write_text(table)
    answer = run(scripts / "run_8p.sh", "a")
    assert answer.returncode == 0, answer.stderr
    for rank in range(8):
        said = (scripts / "logs" / f"rank_{rank}.log").read_text()
        assert said == f"{rank} 8 {rank} {rank} 10087 table ['a']\n"
    failed = run(scripts / "run_8p.sh", FAIL="5")
    assert failed.returncode == 1
    assert "a rank failed" in failed.stderr


def test_the_example_table_keeps_the_rules() -> None:
    assert not examine(make("npu", "a.py")[TABLE].encode(), "ascend-910", None).errors


@pytest.mark.parametrize("kind", ["npu", "mlu"])
def test_every_script_is_understood_by_bash(kind: str, tmp_path: Path) -> None:
    for name, text in make(kind, "it's.py").items():  # type: ignore[arg-type]
        if name.endswith(".sh"):
            answer = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
            assert answer.returncode == 0, answer.stderr


def test_the_mlu_is_started_by_horovod() -> None:
    files = make("mlu", "train.py")
    assert "horovodrun -np 8" in files["run_8p.sh"]
    assert TABLE not in files
