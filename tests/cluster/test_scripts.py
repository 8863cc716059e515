"""The scripts are what they say: bash reads them, they run here on the CPU, and the manifest is YAML."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from viaduct.cluster.generate import make_table
from viaduct.cluster.ranktable import parse_table, read_table
from viaduct.cluster.scripts import Job, Kind, build_pytorchjob, render_yaml, render_yaml_scalar, write_all
from viaduct.errors import BadValue
from viaduct.profiling.options import ProfilingOptions, read_environment

KINDS: tuple[Kind, ...] = get_args(Kind)
COMMAND = ["train", "resnet50_imagenet", "--data", "/data/image net", "--set", "log.format=tf"]


def write_scripts(folder: Path, **changes: Any) -> Path:
    write_all(folder, Job(**{"command": COMMAND, "kind": "npu", **changes}), force=False)
    return folder


def unyaml(text: str) -> Any:
    """Enough of YAML to read ours back: block mappings and lists of two spaces, plain and JSON scalars."""
    lines = [(len(line) - len(line.lstrip()), line.lstrip()) for line in text.splitlines()]

    def value(words: str) -> Any:
        try:
            return json.loads(words)
        except json.JSONDecodeError:
            return words

    def block(place: int, indent: int) -> tuple[Any, int]:
        found: Any = [] if lines[place][1].startswith("- ") else {}
        while place < len(lines) and lines[place][0] == indent:
            words = lines[place][1]
            if isinstance(found, list):
                remainder = words[2:]
                if re.match(r'("[^"]*"|[\w./-]+):( |$)', remainder):
                    lines[place] = (indent + 2, remainder)
                    item, place = block(place, indent + 2)
                else:
                    item, place = value(remainder), place + 1
                found.append(item)
                continue
            key, _, remainder = words.partition(":")
            if remainder:
                found[value(key)], place = value(remainder.strip()), place + 1
            else:
                found[value(key)], place = block(place + 1, lines[place + 1][0])
        return found, place

    return block(0, 0)[0]


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    (tmp_path / "run_8p.sh").write_text("mine")
    with pytest.raises(BadValue, match=r"there already: .*run_8p\.sh"):
        write_all(tmp_path, Job(COMMAND, "npu"), force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["run_8p.sh"]
    write_all(tmp_path, Job(COMMAND, "npu"), force=True)
    assert "viaduct launch" in (tmp_path / "run_8p.sh").read_text()


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadValue, match="cannot be a folder"):
        write_all(tmp_path / "file" / "x", Job(COMMAND, "npu"), force=False)


def test_a_name_that_no_shell_or_cluster_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot be a JOB_ID"):
        write_scripts(tmp_path, name="a b; rm")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_reads_every_script_of_every_vendor(tmp_path: Path, kind: Kind) -> None:
    scripts = sorted(write_scripts(tmp_path, kind=kind, nodes=2).glob("*.sh"))
    names = ["enter_docker.sh", "env.sh", "run_1p.sh", "run_8p.sh", "run_cluster.sh", "run_docker.sh"]
    if kind != "cpu":
        names += ["run_1p_fp32.sh", "run_1p_amp.sh", "run_8p_fp32.sh", "run_8p_amp.sh"]
    assert [path.name for path in scripts] == sorted(names)
    for path in scripts:
        subprocess.run(["bash", "-n", path], check=True)
        if path.name != "env.sh":
            assert path.read_text().startswith("#!/usr/bin/env bash\n")
            assert "set -eu\n" in path.read_text()
            assert os.access(path, os.X_OK)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("kind", KINDS)
def test_shellcheck_finds_nothing(tmp_path: Path, kind: Kind) -> None:
    for path in write_scripts(tmp_path, kind=kind, nodes=2).glob("*.sh"):
        subprocess.run(["shellcheck", "--shell=bash", "--exclude=SC1091", path], check=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_environment_can_be_sourced_where_nothing_is_installed(tmp_path: Path, kind: Kind) -> None:
    write_scripts(tmp_path, kind=kind)
    shell = f'set -eu; . "{tmp_path}/env.sh"; env'
    answer = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert answer.returncode == 0, answer.stderr
    expected = {"npu": "HCCL_CONNECT_TIMEOUT=600", "mlu": "NEUWARE_HOME=/usr/local/neuware", "cuda": "NCCL_DEBUG=WARN"}
    assert expected.get(kind, "PATH=") in answer.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_options_of_profiling_are_what_train_reads(tmp_path: Path) -> None:
    write_scripts(tmp_path, kind="cpu")
    shell = f'set -eu; . "{tmp_path}/env.sh"; echo "$PROFILING_MODE $PROFILING_OPTIONS"'
    answer = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    mode, _, options = answer.stdout.strip().partition(" ")
    assert read_environment({"PROFILING_MODE": mode, "PROFILING_OPTIONS": options}) is None
    assert read_environment({"PROFILING_MODE": "true", "PROFILING_OPTIONS": options}) == ProfilingOptions()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_variables_that_are_set_are_not_replaced(tmp_path: Path) -> None:
    write_scripts(tmp_path)
    environment = {"PATH": os.environ["PATH"], "HCCL_CONNECT_TIMEOUT": "7"}
    shell = f'set -eu; . "{tmp_path}/env.sh"; echo "$HCCL_CONNECT_TIMEOUT"'
    answer = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment)
    assert answer.stdout == "7\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_script_for_two_really_starts_two_ranks(tmp_path: Path) -> None:
    work = tmp_path / "my work.py"
    work.write_text(
        "import os, sys\nopen(f'{sys.argv[1]}/{os.environ[\"RANK\"]}', 'w').write(' '.join(sys.argv[2:]))\n"
    )
    output = tmp_path / "said"
    output.mkdir()
    folder = write_scripts(
        tmp_path / "scripts", command=["python", str(work), str(output), "it's"], kind="cpu", ranks=2
    )
    answer = subprocess.run(
        [folder / "run_2p.sh", "more"], env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert {path.name: path.read_text() for path in output.iterdir()} == {"0": "it's more", "1": "it's more"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_cluster_without_a_table_needs_a_rendezvous(tmp_path: Path) -> None:
    folder = write_scripts(tmp_path, kind="cpu", nodes=2)
    environment = {name: value for name, value in os.environ.items() if name != "RDZV"}
    answer = subprocess.run([folder / "run_cluster.sh"], env=environment, capture_output=True, text=True)
    assert answer.returncode != 0
    assert "set RDZV to HOST:PORT" in answer.stderr


def test_the_table_travels_with_the_scripts(tmp_path: Path) -> None:
    table = parse_table(make_table(["10.0.0.1", "10.0.0.2"], range(8), ["auto"]))
    folder = write_scripts(tmp_path, table=table)
    assert read_table(folder / "rank_table.json") == table
    script = (folder / "run_cluster.sh").read_text()
    assert '--ranktable "$here/rank_table.json"' in script
    copied = re.findall(r"^COPY (.*) \./$", (folder / "Dockerfile").read_text(), re.MULTILINE)[0].split()
    assert copied == [
        *("env.sh", "run_1p.sh", "run_1p_fp32.sh", "run_1p_amp.sh", "run_8p.sh", "run_8p_fp32.sh", "run_8p_amp.sh"),
        *("run_cluster.sh", "rank_table.json"),
    ]
    assert all((folder / name).exists() for name in copied)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("npu", ["/dev/davinci[0-9]*", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"]),
        ("mlu", ["/dev/cambricon_dev[0-9]*", "/dev/cambricon_ctl"]),
        ("cuda", ["--gpus all"]),
    ],
)
def test_a_container_is_given_the_vendors_devices(tmp_path: Path, kind: Kind, parts: list[str]) -> None:
    text = (write_scripts(tmp_path, kind=kind) / "run_docker.sh").read_text()
    assert all(part in text for part in parts)


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_names_a_registry(tmp_path: Path, kind: Kind) -> None:
    folder = write_scripts(tmp_path, kind=kind, nodes=4)
    assert (folder / "Dockerfile").read_text().count("FROM ${BASE_IMAGE}") == 1
    for path in folder.iterdir():
        assert not re.search(r"https?://|\bhub\.|\.io/|\.cn/", path.read_text()), path


@pytest.mark.parametrize(
    ("kind", "resource"), [("npu", "huawei.com/Ascend910"), ("mlu", "cambricon.com/mlu"), ("cuda", "nvidia.com/gpu")]
)
def test_the_manifest_is_a_pytorchjob_with_the_vendors_resource(tmp_path: Path, kind: Kind, resource: str) -> None:
    job = Job(COMMAND, kind, nodes=4, name="My_Job")
    manifest = unyaml((write_scripts(tmp_path, kind=kind, nodes=4, name="My_Job") / "pytorchjob.yaml").read_text())
    assert manifest == build_pytorchjob(job)
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert manifest["metadata"]["name"] == "my-job"
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert {name: part["replicas"] for name, part in replicas.items()} == {"Master": 1, "Worker": 3}
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {resource: 8}
    assert "'/data/image net'" in container["args"][0]
    assert '--rdzv "$MASTER_ADDR:$MASTER_PORT" --node-rank "$RANK"' in container["args"][0]


def test_an_independent_reader_agrees(tmp_path: Path) -> None:
    reader = pytest.importorskip("yaml", reason="PyYAML is not installed")
    text = (write_scripts(tmp_path, nodes=2) / "pytorchjob.yaml").read_text()
    assert reader.safe_load(text) == build_pytorchjob(Job(COMMAND, "npu", nodes=2))


def test_strings_that_yaml_takes_for_something_else_are_quoted() -> None:
    assert [render_yaml_scalar(scalar) for scalar in ("no", "-c", "1", "a b", "x: y", "plain-one")] == [
        '"no"', '"-c"', '"1"', '"a b"', '"x: y"', "plain-one",
    ]  # fmt: skip
    assert render_yaml({"a": [], "b": {"c": [1, {"d": "e"}]}}) == "a: []\nb:\n  c:\n    - 1\n    - d: e\n"


def test_several_machines_get_a_secret_that_only_its_owner_reads(tmp_path: Path) -> None:
    folder = write_scripts(tmp_path, nodes=2)
    secret = folder / "job_secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert len(secret.read_text().strip()) == 32
    before = secret.read_text()
    write_all(folder, Job(COMMAND, "npu", nodes=2), force=True)
    assert secret.read_text() == before, "machines that have it already must still find one another"
    assert before.strip() not in "".join(path.read_text() for path in folder.iterdir() if path != secret)
    assert "job_secret" not in (folder / "Dockerfile").read_text()
    assert not (write_scripts(tmp_path / "alone", nodes=1) / "job_secret").exists()


def test_the_script_of_a_cluster_hands_its_secret_on(tmp_path: Path) -> None:
    folder = write_scripts(tmp_path, kind="cpu", nodes=2)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$VIADUCT_JOB_SECRET"\n')
    python.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(python), "RDZV": "127.0.0.1:1"}
    output = [
        subprocess.run([folder / "run_cluster.sh"], env=environment | more, capture_output=True, text=True).stdout
        for more in ({}, {"VIADUCT_JOB_SECRET": "of the environment"})
    ]
    assert output == [(folder / "job_secret").read_text(), "of the environment\n"]


# FP32 and mixed precision


def list_python_arguments(tmp_path: Path, script: Path, *words: str) -> list[str]:
    """Return the command lines with which a script would start python."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    answer = subprocess.run(
        ["bash", str(script), *words],
        env={"PATH": os.environ["PATH"], "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()


def test_fp32_and_mixed_precision_train_into_directories_of_their_own(tmp_path: Path) -> None:
    folder = write_scripts(tmp_path / "scripts", command=["train", "resnet50_v15_imagenet", "--data", "/d"], kind="mlu")
    plain, fp32, amp = (
        list_python_arguments(tmp_path, folder / f"run_8p{end}.sh", "--seed", "3") for end in ("", "_fp32", "_amp")
    )
    assert fp32 == [*plain[:-2], "--precision", "fp32", "--run", "runs/resnet50_v15_imagenet_fp32", "--seed", "3"]
    assert amp == [
        *plain[:-2],
        *("--precision", "fp16", "--loss-scale", "dynamic", "--run", "runs/resnet50_v15_imagenet_amp", "--seed", "3"),
    ]


@pytest.mark.parametrize("form", [["--run", "my runs/a"], ["--run=my runs/a"], ["--run=old", "--run", "my runs/a"]])
def test_a_run_directory_of_the_command_is_kept_apart_too(tmp_path: Path, form: list[str]) -> None:
    folder = write_scripts(tmp_path / "scripts", command=["viaduct", "train", "mine.py", *form], kind="npu")
    assert list_python_arguments(tmp_path, folder / "run_1p_fp32.sh")[-2:] == ["--run", "my runs/a_fp32"]


@pytest.mark.parametrize(
    "command",
    [
        ["python", "mine.py"],
        ["train", "resnet50_imagenet", "--precision", "bf16"],
        ["train", "resnet50_imagenet", "--loss-scale=512"],
        ["train", "resnet50_imagenet", "--set", "precision.compute=fp16"],
        ["train", "--run", "runs/continued"],
    ],
)
def test_a_command_with_a_precision_of_its_own_gets_no_others(tmp_path: Path, command: list[str]) -> None:
    names = {path.name for path in write_scripts(tmp_path, command=command).iterdir()}
    assert not [name for name in names if "fp32" in name or "amp" in name]
    assert "run_8p.sh" in names


def test_train_takes_what_the_written_scripts_give_it() -> None:
    from viaduct.cluster.scripts import PRECISIONS
    from viaduct.verbs.train import check_command

    for flags in PRECISIONS.values():
        words = ["resnet50_v15_imagenet", "--data", "synthetic", "--device", "cpu", *flags.split(), "--run", "no-such"]
        assert check_command(words, 8, 8, has_rank_0=True) == []


# A container that stays

DOCKER = """#!/usr/bin/env bash
printf '%s ' "$@" >> "$DOCKER_LOG"; echo >> "$DOCKER_LOG"
case "$1 ${2:-}" in
    "container inspect") [ -f "$DOCKER_LOG.there" ];;
    "create "*) touch "$DOCKER_LOG.there";;
esac
"""


def dockers(tmp_path: Path, script: Path, *words: str, **more: str) -> list[str]:
    """Return the arguments of every docker call."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / "docker").write_text(DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)
    log = tmp_path / "docker.log"
    log.unlink(missing_ok=True)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "DOCKER_LOG": str(log), "RUNS": str(tmp_path / "r")}
    subprocess.run(["bash", str(script), *words], env=environment | more, stdin=subprocess.DEVNULL, check=True)
    return [line.strip() for line in log.read_text().splitlines()]


def test_a_named_container_is_created_once_and_entered_ever_after(tmp_path: Path) -> None:
    script = write_scripts(tmp_path / "scripts", kind="mlu", name="resnet") / "enter_docker.sh"
    inspect, create, start, enter = dockers(tmp_path, script)
    assert (inspect, start, enter) == ("container inspect resnet-mlu", "start resnet-mlu", "exec resnet-mlu bash")
    assert create.startswith(
        "create --name resnet-mlu --net=host --shm-size=16g --privileged=true --cap-add=SYS_PTRACE"
    )
    assert create.endswith("viaduct-mlu infinity")
    assert dockers(tmp_path, script, "viaduct", "devices") == [inspect, start, "exec resnet-mlu viaduct devices"]


def test_a_container_need_not_be_privileged(tmp_path: Path) -> None:
    script = write_scripts(tmp_path / "scripts", kind="npu") / "enter_docker.sh"
    _, create, *_ = dockers(tmp_path, script, PRIVILEGED="0", CONTAINER="mine")
    assert create.startswith("create --name mine ")
    assert "privileged" not in create
    assert "PTRACE" not in create
