"""Start scripts of a migrated project: run here, with a stand-in for the training script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from viaduct.cluster.project_scripts import EXAMPLE_SERVER, TABLE, render_tensorflow_files, render_torch_files
from viaduct.cluster.rules import examine
from viaduct.migration.options import Options
from viaduct.migration.run import migrate_project
from viaduct.migration.start_scripts import render_start_scripts

SCRIPT = """import os, sys
names = ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "ASCEND_DEVICE_ID", "JOB_ID")
print(*(os.environ.get(name) for name in names), "table" if os.environ.get("RANK_TABLE_FILE") else "none", sys.argv[1:])
sys.exit(3 if os.environ.get("FAIL") == os.environ["RANK_ID"] else 0)
"""
DDP = """\
    import torch
    from torch.utils.data import DataLoader

    def main():
        loader = DataLoader(build(), batch_size=8, shuffle=True)
        model = torch.nn.DataParallel(torch.nn.Linear(2, 2))
        for epoch in range(2):
            for x in loader:
                model(x).sum().backward()

    if __name__ == "__main__":
        main()
    """


def write(folder: Path, entry: str = "train it.py") -> Path:
    (folder / "train it.py").write_text(SCRIPT)
    scripts = folder / "scripts"
    scripts.mkdir()
    for name, text in render_tensorflow_files("npu", entry).items():
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
        output = (scripts / "logs" / f"rank_{rank}.log").read_text()
        assert output == f"{rank} 8 {rank} {rank} 10087 table ['a']\n"
    failed = run(scripts / "run_8p.sh", FAIL="5")
    assert failed.returncode == 1
    assert "a rank failed" in failed.stderr


def test_the_example_table_keeps_the_rules() -> None:
    assert not examine(render_tensorflow_files("npu", "a.py")[TABLE].encode(), "ascend-910", None).errors


@pytest.mark.parametrize("kind", ["npu", "mlu"])
def test_every_script_is_understood_by_bash(kind: str, tmp_path: Path) -> None:
    for name, text in render_tensorflow_files(kind, "it's.py").items():  # type: ignore[arg-type]
        if name.endswith(".sh"):
            answer = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
            assert answer.returncode == 0, answer.stderr


def test_the_mlu_is_started_by_horovod() -> None:
    files = render_tensorflow_files("mlu", "train.py")
    assert "horovodrun -np 8" in files["run_8p.sh"]
    assert TABLE not in files


def test_the_chip_is_named_unless_it_is_set(tmp_path: Path) -> None:
    scripts = write(tmp_path)
    shell = f'set -eu; . "{scripts}/env.sh"; echo "$SOC_VERSION"'
    for more, chip in (({}, "Ascend910"), ({"SOC_VERSION": "Ascend910B1"}, "Ascend910B1")):
        environment = {"PATH": os.environ["PATH"], **more}
        output = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment, check=True)
        assert output.stdout == f"{chip}\n"


def test_the_arguments_of_the_configuration_come_before_those_of_the_command_line(tmp_path: Path) -> None:
    scripts = write(tmp_path)
    config = scripts / "config.py"
    text = config.read_text()
    assert run(scripts / "run_1p.sh", "--steps", "3").stdout.endswith("['--steps', '3']\n")
    values = {"data_dir": "/image net's", "use_fp16": True, "steps": 5, "sizes": [1, 2], "none": None}
    config.write_text(text.replace("ARGUMENTS = {", f"ARGUMENTS = {{**{values!r},"))
    output = run(scripts / "run_1p.sh", "--steps=7").stdout
    assert output.endswith(
        """["--data_dir=/image net's", '--use_fp16', '--steps=5', '--sizes', '1', '2', '--steps=7']\n"""
    )


def test_a_configuration_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    scripts = write(tmp_path)
    (scripts / "config.py").write_text("ARGUMENTS = {")
    answer = run(scripts / "run_1p.sh")
    assert answer.returncode != 0
    assert answer.stdout == ""
    assert "config.py" in answer.stderr


def test_flags_are_listed_with_their_defaults_and_set_nothing() -> None:
    text = render_tensorflow_files("npu", "train.py", [("data_dir", "'/data'", "train.py"), ("rate", "", "flags.py")])[
        "config.py"
    ]
    assert "    # 'data_dir': '/data',  # train.py\n" in text
    assert "    # 'rate': ...,  # flags.py\n" in text
    namespace: dict[str, object] = {"__name__": "config"}
    exec(text, namespace)
    assert namespace["ARGUMENTS"] == {}


def test_without_a_known_script_there_is_nothing_to_configure() -> None:
    assert "config.py" not in render_tensorflow_files("npu", "")


def test_profiling_is_off_unless_it_is_set_and_its_options_can_be_sourced(tmp_path: Path) -> None:
    scripts = write(tmp_path)
    shell = tmp_path / "shell.sh"
    shell.write_text(f'set -eu; . "{scripts}/env.sh"; echo "$PROFILING_MODE $PROFILING_OPTIONS"\n')
    assert run(shell).stdout.startswith('false {"output": "/tmp/profiling", "training_trace": "on"')
    own = run(shell, PROFILING_MODE="true", PROFILING_OPTIONS='{"output": "/own"}')
    assert own.stdout == 'true {"output": "/own"}\n'


def test_a_script_of_one_process_is_not_started_several_times(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\ntorch.zeros(1).cuda()\n")
    files = render_start_scripts(migrate_project(tmp_path, Options(), jobs=1))
    assert set(files) == {"scripts/env.sh", "scripts/run_1p.sh"}
    assert "torch.distributed.run" not in files["scripts/run_1p.sh"]
    assert not any("npu_bridge" in text or "RANK_TABLE" in text for text in files.values())


def test_a_script_that_starts_its_ranks_itself_is_started_once(tmp_path: Path) -> None:
    text = "import torch.multiprocessing as mp\nimport torch\ndef work(local_rank): torch.cuda.set_device(local_rank)\n"
    (tmp_path / "train.py").write_text(text + "mp.spawn(work, nprocs=2)\n")
    files = render_start_scripts(migrate_project(tmp_path, Options(), jobs=1))
    assert set(files) == {"scripts/env.sh", "scripts/run_1p.sh"}


def test_what_became_distributed_is_started_by_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(dedent(DDP))
    files = render_start_scripts(migrate_project(tmp_path, Options(data_parallel="ddp"), jobs=1))
    assert '--nproc_per_node="${RANKS:-1}" "$here"/../train.py "$@"' in files["scripts/run_1p.sh"]
    assert '--nproc_per_node="${RANKS:-8}" "$here"/../train.py "$@"' in files["scripts/run_8p.sh"]


@pytest.mark.parametrize("kind", ["npu", "mlu"])
@pytest.mark.parametrize("entry", ["", "a folder/train it.py"])
def test_the_scripts_for_pytorch_are_bash(tmp_path: Path, kind: str, entry: str) -> None:
    for name, text in render_torch_files(kind, entry, can_run_as_ranks=True, needs_torchrun=False).items():  # type: ignore[arg-type]
        (tmp_path / name).write_text(text)
        checked = subprocess.run(["bash", "-n", str(tmp_path / name)], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
