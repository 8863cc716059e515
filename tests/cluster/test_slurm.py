"""The batch script, submitted to a Slurm of three small programs that hand out the same variables as the real one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from viaduct.cluster.generate import make_table
from viaduct.cluster.ranktable import parse_table
from viaduct.cluster.scripts import Job, Kind, write_all

KINDS: tuple[Kind, ...] = get_args(Kind)
SBATCH = """#!/usr/bin/env python3
# Runs a copy of the script, as slurmd does, and gives its #SBATCH lines to srun.
import os, re, shutil, subprocess, sys
script, spool = sys.argv[1], os.environ["SPOOL"]
flags = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", open(script).read(), re.MULTILINE))
shutil.copy(script, f"{spool}/slurm_script")
names = [f"node{number}" for number in range(int(flags["nodes"]))]
given = {
    "SLURM_JOB_ID": "17", "SLURM_NNODES": flags["nodes"], "SLURM_NODEID": "0", "SLURM_PROCID": "0",
    "SLURM_JOB_NODELIST": f"node[0-{len(names) - 1}]", "FAKE_HOSTS": os.environ.get("FAKE_HOSTS", " ".join(names)),
    "SLURM_SUBMIT_DIR": os.getcwd(),
}
sys.exit(subprocess.run(["bash", f"{spool}/slurm_script", *sys.argv[2:]], env={**os.environ, **given}).returncode)
"""
SCONTROL = """#!/bin/sh
[ "$1 $2 $3" = "show hostnames $SLURM_JOB_NODELIST" ] && printf '%s\\n' $FAKE_HOSTS
"""
SRUN = """#!/usr/bin/env python3
# One task on each node, all at once; the first failure is the exit code.
import os, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("--"):
    words.pop(0)
tasks = [
    subprocess.Popen(words, env={**os.environ, "SLURM_NODEID": str(n), "SLURM_PROCID": str(n), "SLURM_LOCALID": "0"})
    for n in range(int(os.environ["SLURM_NNODES"]))
]
sys.exit(max(task.wait() for task in tasks))
"""
PYTHON = """#!/usr/bin/env python3
import json, os, sys
names = ("ASCEND_RT_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "HCCL_CONNECT_TIMEOUT", "NEUWARE_HOME", "NCCL_DEBUG")
names += ("CNCL_MEM_POOL_MULTI_CLIQUE_ENABLE", "VIADUCT_JOB_SECRET")
values = {"argv": sys.argv[1:], **{name: os.environ[name] for name in names if name in os.environ}}
open(f"{os.environ['OUTPUT']}/{os.environ['SLURM_NODEID']}", "w").write(json.dumps(values))
"""


def submit(tmp_path: Path, job: Job, *words: str, **more: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Submit job.sbatch to the small Slurm. Return the finished process and the folder with the output of each task."""
    bin_folder, output = tmp_path / "bin", tmp_path / "values"
    for folder in (bin_folder, output, tmp_path / "spool"):
        folder.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "scontrol": SCONTROL, "fake_python": PYTHON}.items():
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    scripts = tmp_path / "my scripts"
    write_all(scripts, job, force=False)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "VIADUCT", "RDZV"))}
    environment = kept | {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "SPOOL": str(tmp_path / "spool"),
        "OUTPUT": str(output),
        "PYTHON": str(bin_folder / "fake_python"),
    }
    answer = subprocess.run(
        ["sbatch", "job.sbatch", *words],
        cwd=more.pop("CWD", str(scripts)),
        env=environment | more,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return answer, output


def read_outputs(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nodes", [1, 4])
def test_bash_reads_the_batch_script(tmp_path: Path, kind: Kind, nodes: int) -> None:
    write_all(tmp_path, Job(["train", "x"], kind, nodes=nodes), force=False)
    subprocess.run(["bash", "-n", tmp_path / "job.sbatch"], check=True)


@pytest.mark.parametrize(("kind", "cards"), [("npu", "npu:8"), ("mlu", "mlu:8"), ("cuda", "gpu:8"), ("cpu", None)])
def test_slurm_is_requested_the_vendors_cards(tmp_path: Path, kind: Kind, cards: str | None) -> None:
    write_all(tmp_path, Job(["train", "x"], kind, nodes=4, name="my_job"), force=False)
    lines = (tmp_path / "job.sbatch").read_text().splitlines()
    asked = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert {"job-name=my_job", "nodes=4", "ntasks-per-node=1", "signal=TERM@120"} <= set(asked)
    assert [line for line in asked if line.startswith("gres")] == ([f"gres={cards}"] if cards else [])
    assert lines[len(asked) + 1].startswith("# "), "Slurm stops reading at the first command"


def test_every_machine_gets_its_number_and_the_rendezvous_address(tmp_path: Path) -> None:
    job = Job(["train", "resnet50_imagenet", "--data", "/image net"], "npu", nodes=3, port=29511)
    answer, output = submit(tmp_path, job, "--epochs", "2", SLURM_STEP_GPUS="0,1,2,3,4,5,6,7")
    assert answer.returncode == 0, answer.stderr
    machines = read_outputs(output)
    secret = (tmp_path / "my scripts" / "job_secret").read_text().strip()
    for number in range(3):
        machine = machines[str(number)]
        where = ["--nodes", "3", "--ranks", "8", "--rdzv", "node0:29511", "--node-rank", str(number)]
        command = ["train", "resnet50_imagenet", "--data", "/image net", "--epochs", "2"]
        assert machine.pop("argv") == [
            *("-m", "viaduct", "launch", *where, "--target", "npu", "--job", "viaduct", "--", *command)
        ]
        assert machine == {
            "ASCEND_RT_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
            "HCCL_CONNECT_TIMEOUT": "600",
            "VIADUCT_JOB_SECRET": secret,
        }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("mlu", {"MLU_VISIBLE_DEVICES": "2,3", "CNCL_MEM_POOL_MULTI_CLIQUE_ENABLE": "1"}),
        ("cuda", {"NCCL_DEBUG": "WARN"}),
    ],
)
def test_a_machine_has_its_vendors_variables(tmp_path: Path, kind: Kind, expected: dict[str, str]) -> None:
    _, output = submit(tmp_path, Job(["train", "x"], kind, nodes=2, ranks=2), SLURM_JOB_GPUS="2,3")
    assert expected.items() <= read_outputs(output)["1"].items()


def test_cards_that_are_chosen_already_stay_chosen(tmp_path: Path) -> None:
    job = Job(["train", "x"], "mlu", ranks=2)
    _, output = submit(tmp_path, job, SLURM_JOB_GPUS="2,3", MLU_VISIBLE_DEVICES="6,7")
    assert read_outputs(output)["0"]["MLU_VISIBLE_DEVICES"] == "6,7"


def test_a_rank_table_numbers_the_machines_itself(tmp_path: Path) -> None:
    table = parse_table(make_table(["10.0.0.1", "10.0.0.2"], range(8), ["auto"]))
    answer, output = submit(tmp_path, Job(["train", "x"], "npu", table=table))
    assert answer.returncode == 0, answer.stderr
    for machine in read_outputs(output).values():
        assert machine["argv"][3:5] == ["--ranktable", f"{tmp_path}/my scripts/rank_table.json"]
        assert not {"--rdzv", "--node-rank"} & set(machine["argv"])


def test_one_machine_needs_no_rendezvous(tmp_path: Path) -> None:
    _, output = submit(tmp_path, Job(["train", "x"], "cuda"))
    assert read_outputs(output)["0"]["argv"][:5] == ["-m", "viaduct", "launch", "--ranks", "8"]


def test_a_job_submitted_from_elsewhere_says_what_to_do(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    job = Job(["train", "x"], "npu", nodes=2)
    (elsewhere / "job.sbatch").symlink_to(tmp_path / "my scripts" / "job.sbatch")
    answer, output = submit(tmp_path, job, CWD=str(elsewhere))
    assert answer.returncode == 2
    assert f"no env.sh in {elsewhere}" in answer.stderr
    assert "JOB_DIR" in answer.stderr
    assert not read_outputs(output)


@pytest.mark.slow
def test_two_machines_of_two_ranks_really_begin_and_each_rank_has_its_number(tmp_path: Path) -> None:
    work = tmp_path / "work.py"
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    work.write_text(
        f"import os, sys\nprint(*(os.environ[name] for name in {names}), sys.argv[2],\n"
        "      file=open(f'{sys.argv[1]}/{os.environ[\"RANK\"]}', 'w'))\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = Job(["python", str(work), str(tmp_path / "values")], "cpu", nodes=2, ranks=2, port=port)
    answer, output = submit(tmp_path, job, "more", PYTHON=sys.executable, FAKE_HOSTS="127.0.0.1 127.0.0.1")
    assert answer.returncode == 0, answer.stderr
    found = {path.name: path.read_text().split() for path in output.iterdir()}
    assert found == {str(rank): [str(rank), str(rank % 2), "4", "2", "more"] for rank in range(4)}
