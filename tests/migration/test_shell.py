"""Shell scripts of a PyTorch project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migration.small_project import migrated_project
from viaduct.migration.inplace import write_in_place
from viaduct.migration.options import Options
from viaduct.migration.project import Project, survey
from viaduct.migration.results import Outcome
from viaduct.migration.shell import migrate, record_options
from viaduct.migration.writing import write_out

PROJECT = Project(device_options={"device"}, backend_options={"dist_backend"})
OLD, NEW = "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"


def after(text: str, **options: Any) -> str:
    """Return the migrated script, and check that a second run changes nothing."""
    asked = Options(**options)
    made = migrate("run.sh", text.encode(), asked, PROJECT)
    assert migrate("run.sh", made.after, asked, PROJECT).after == made.after
    return made.after.decode()


def list_messages(text: str, status: str, **options: Any) -> list[str]:
    made = migrate("run.sh", text.encode(), Options(**options), PROJECT)
    assert all(finding.message_zh for finding in made.findings)
    return [finding.message for finding in made.findings if finding.status == status]


@pytest.mark.parametrize(
    "text",
    [
        f"# {OLD}=0 python a.py\n",
        f"echo {OLD}=0\n",
        f"echo '{OLD}=0 and ${OLD}'\n",
        f"curl http://a.b/{OLD}\n",
        f"MY_{OLD}=0 python a.py\n",
        f"cat <<'E'\nexport {OLD}=0\n${OLD}\nE\n",
        "python a.py cuda --name 'cuda' # --device cuda\n",
        "export CUDA_HOME=/usr/local/cuda\n",
        "python a.py --device cpu --dist-backend gloo\n",
        "echo --device cuda\n",
    ],
)
def test_what_is_no_setting_stays(text: str) -> None:
    assert after(text) == text


@pytest.mark.parametrize("value", ["1,0", "'3,2'", "GPU-1234"])
def test_if_one_list_cannot_be_carried_none_of_the_script_moves(value: str) -> None:
    text = f"export {OLD}=0\n{OLD}={value} python a.py\necho ${OLD}\n"
    assert after(text) == text
    assert "strictly ascending" in list_messages(text, "manual")[0]


@pytest.mark.parametrize(
    "text",
    [
        "export {}=0,1\n",
        '{}="0" python a.py\n',
        "A=1 {}= python a.py  # keep\n",
        "env {}=0 python a.py\n",
        "env -u {} python a.py\n",
        "unset {}\n",
        "export {}\n",
        "docker run -e {}=0 image\n",
        "echo ${} ${{{}:-0}}\n",
        'echo "now $`{}`"\n'.replace("`", ""),
        "N=$(echo ${} | tr , ' ' | wc -w)\n",
        "for i in 0 1; do {}=$i python a.py & done\n",
        'if [ -z "${}" ]; then {}=0; fi\n',
        "cat <<E\n${}\nE\n",
        "{}=0 \\\r\n  python a.py\r\n",
    ],
)
def test_the_variable_is_the_accelerators(text: str) -> None:
    count = text.count("{}")
    assert after(text.format(*[OLD] * count)) == text.format(*[NEW] * count)
    assert after(text.format(*[OLD] * count), to="mlu") == text.format(*["MLU_VISIBLE_DEVICES"] * count)


def test_the_mlu_takes_any_order() -> None:
    assert after(f"export {OLD}=1,0\n", to="mlu") == "export MLU_VISIBLE_DEVICES=1,0\n"


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("python a.py --device cuda:1 x", "python a.py --device npu:1 x"),
        ("python a.py --device=cuda", "python a.py --device=npu"),
        ("python a.py --device 'cuda'", "python a.py --device 'npu'"),
        ("torchrun a.py --dist-backend 'nccl'", "torchrun a.py --dist-backend 'hccl'"),
        ("python a.py --dist_backend=nccl", "python a.py --dist_backend=hccl"),
    ],
)
def test_values_of_declared_options_follow(before: str, later: str) -> None:
    assert after(before) == later


@pytest.mark.parametrize("text", ["python a.py --kernel cuda\n", "python a.py --backend=nccl\n"])
def test_values_of_other_options_are_pointed_out(text: str) -> None:
    assert after(text) == text
    assert "no script seen declares a" in list_messages(text, "advice")[0]


def test_paths_and_longer_words_are_no_devices() -> None:
    text = "DEVICE_LIBRARY=/usr/local/cuda/lib64 DEVICE=cpu BACKEND=gloo python a.py --device-config cuda_a100.yaml\n"
    assert not list_messages(text, "manual")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("DEVICE=cuda\npython a.py --device $DEVICE\n", "DEVICE=cuda"),
        ('export TRAIN_DEVICE="${1:-cuda:0}"\n', "TRAIN_DEVICE=${1:-cuda:0}"),
        ("local backend=nccl\n", "backend=nccl"),
        ("python a.py trainer.device='cuda:1'\n", "trainer.device=cuda:1"),
        ("python a.py --devices cuda:0,cuda:1\n", "--devices cuda:0,cuda:1"),
        ("python a.py --dist-backend=cpu:gloo,cuda:nccl\n", "--dist-backend=cpu:gloo,cuda:nccl"),
    ],
)
def test_a_value_that_mentions_the_gpu_is_never_passed_over(text: str, named: str) -> None:
    assert after(text) == text
    (message,) = list_messages(text, "manual")
    assert message.startswith(f"{named} mentions ")
    (message,) = list_messages(text, "manual", to="any")
    assert message.startswith(f"{named} is valid on CUDA only")


def test_what_has_no_counterpart_is_reported() -> None:
    assert "HCCL_CONNECT_TIMEOUT" in list_messages("export NCCL_DEBUG=INFO\n", "manual")[0]
    assert "npu-smi info" in list_messages("nvidia-smi\n", "advice")[0]
    assert "npu-smi info" in list_messages('N="$(nvidia-smi -L | wc -l)"\n', "advice")[0]
    assert "set_device(LOCAL_RANK)" in list_messages("python -m torch.distributed.launch a.py\n", "advice")[0]
    assert "not migrated" in list_messages("python -c 'import torch; torch.cuda.init()'\n", "manual")[0]
    assert "not migrated" in list_messages("python <<E\nx.cuda()\nE\n", "manual")[0]
    assert not list_messages("grep '.cuda()' a.py\n", "manual")


def test_rules_that_are_not_wanted_are_silent() -> None:
    text = f"export {OLD}=0\nexport NCCL_DEBUG=INFO\npython a.py --device cuda\n"
    assert after(text, skip=("visible_devices", "nccl_variables", "device_argparse")) == text
    assert not list_messages(text, "manual", only=("device_argparse",))
    assert after(text, only=("device_argparse",)) == text.replace("--device cuda", "--device npu")


def test_the_projects_own_options_are_known() -> None:
    source = (
        "import torch\np.add_argument('--device')\np.add_argument('--where', default='cuda:0')\n"
        "p.add_argument('--dist-backend')\np.add_argument('--how', choices=['nccl', 'gloo'])\np.add_argument('--lr')\n"
        "p.add_argument('--on', choices=('cuda', 'cpu'))\n"
    )
    project = survey([("a.py", source.encode())])
    record_options(project)
    assert (project.device_options, project.backend_options) == ({"device", "on", "where"}, {"dist_backend", "how"})


# ---- within a project


def project(folder: Path, script: str = "import torch\n") -> Outcome:
    (folder / "train.py").write_text(script)
    (folder / "run.sh").write_bytes(f"#!/bin/sh\r\n{OLD}=0 python train.py\r\n".encode())
    (folder / "run.sh").chmod(0o755)
    (folder / "bad.sh").write_bytes(b"export CUDA_VISIBLE_DEVICES=0 # \xff\n")
    return migrated_project(folder)


def test_a_tensorflow_project_keeps_its_shell_scripts(tmp_path: Path) -> None:
    outcome = project(tmp_path, "import tensorflow as tf\n")
    assert not outcome.changed_files
    reported = {file.path for file in outcome.files} - {"train.py"}
    assert {finding.file for finding in outcome.findings if finding.rule == "engine.gpu_mention"} == reported


def test_shell_scripts_are_written_with_the_project(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    outcome = project(folder)
    write_out(outcome, tmp_path / "out", {})
    assert (tmp_path / "out/run.sh").read_bytes() == f"#!/bin/sh\r\n{NEW}=0 python train.py\r\n".encode()
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o111
    assert (tmp_path / "out/bad.sh").read_bytes() == (folder / "bad.sh").read_bytes()
    write_in_place(outcome)
    assert (folder / "run.sh").read_bytes() == (tmp_path / "out/run.sh").read_bytes()


def test_findings_name_the_file_and_the_line(tmp_path: Path) -> None:
    outcome = project(tmp_path)
    (finding,) = [note for note in outcome.findings if note.file == "run.sh"]
    assert (outcome.locate(finding), finding.before) == ("run.sh:2", f"{OLD}=0 python train.py")
    assert finding.after == f"{NEW}=0 python train.py"
    (finding,) = [note for note in outcome.findings if note.file == "bad.sh"]
    assert "cannot be decoded" in finding.message


@pytest.mark.parametrize("first_line", ["#!/bin/tcsh", "#!/usr/bin/env python3", "# no interpreter"])
def test_a_job_script_of_another_language_is_not_searched(tmp_path: Path, first_line: str) -> None:
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    (tmp_path / "job.sbatch").write_text(f"{first_line}\nexport {OLD}=0\n")
    job = migrated_project(tmp_path).by_path["job.sbatch"]
    assert not job.changed
    assert [(finding.rule, finding.line) for finding in job.findings] == [("engine.gpu_mention", 2)]


@pytest.mark.parametrize("suffix", ["sbatch", "slurm", "pbs", "lsf"])
def test_a_job_script_of_a_cluster_is_a_shell_script(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    (tmp_path / f"job.{suffix}").write_text(f"#!/bin/bash -l\n#SBATCH -n 2\nexport {OLD}=0\nDEVICE=cuda\n")
    job = migrated_project(tmp_path).by_path[f"job.{suffix}"]
    assert job.after == f"#!/bin/bash -l\n#SBATCH -n 2\nexport {NEW}=0\nDEVICE=cuda\n".encode()
    assert [(finding.line, finding.status) for finding in job.findings] == [(3, "changed"), (4, "manual")]
