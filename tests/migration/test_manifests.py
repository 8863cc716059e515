from __future__ import annotations

import json
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project

PYPROJECT = """\
[project]
name = "apex"
dependencies = [
    "numpy",
    "flash-attn>=2",  # fast
]
[project.optional-dependencies]
gpu = ["cupy-cuda12x"]
[tool.poetry.dependencies]
xformers = "^0.0.20"
[tool.other]
triton = "no dependency"
"""


def project(folder: Path, files: dict[str, str], script: str = "import torch\nprint(torch.zeros(1))\n") -> Path:
    for name, text in {"train.py": script, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def list_findings(folder: Path, **options: object) -> list[tuple[str, int, str, str]]:
    outcome: Outcome = migrate_project(folder, Options(**options), jobs=1)  # type: ignore[arg-type]
    found = [finding for finding in outcome.findings if finding.rule in ("torch.kernels", "torch.packages")]
    return [(finding.file, finding.line, finding.status, finding.message) for finding in found]


def test_a_project_without_pytorch_is_not_looked_through(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "cupy\n", "kernel.cu": "__global__ void f() {}\n"}, "print('hello')\n")
    assert list_findings(tmp_path) == []


def test_what_is_no_requirement_is_not_mentioned(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "# cupy\nnumpy\ntorch==2.1\n-r other.txt\n",
        "notes.txt": "cupy\n",
        "Dockerfile": "FROM python:3.11\nRUN pip install numpy\n# CMD python train.py --device cuda\n"
        "ENV PATH=/usr/local/cuda/bin:$PATH\nRUN apt-get install cuda-toolkit\n",
        "environment.yml": "name: cupy\ndependencies:\n  - python=3.10\n",
    }
    assert list_findings(project(tmp_path, files)) == []


def test_packages_on_continued_lines_of_a_dockerfile_are_found(tmp_path: Path) -> None:
    text = (
        "FROM python:3.11\nRUN pip install --no-cache-dir \\\n    numpy \\\n    flash-attn==2.5 && \\\n    echo cupy\n"
    )
    found = list_findings(project(tmp_path, {"Dockerfile": text}))
    assert [finding[:2] for finding in found] == [("Dockerfile", 4)]


def test_commands_and_variables_of_a_dockerfile_that_name_cuda_are_not_passed_over(tmp_path: Path) -> None:
    text = 'FROM python:3.11\nENV CUDA_VISIBLE_DEVICES=0\nCMD ["python", "train.py", "--device", "cuda:0"]\n'
    for to in ("npu", "any"):
        found = list_findings(project(tmp_path, {"Dockerfile": text}), to=to)
        assert [finding[:3] for finding in found] == [("Dockerfile", 2, "manual"), ("Dockerfile", 3, "manual")]


def test_cuda_sources_are_listed_with_their_kernels(tmp_path: Path) -> None:
    kernel = "#include <cuda.h>\n__global__ void a() {}\n__global__ void b() {}\n"
    found = list_findings(project(tmp_path, {"csrc/op.cu": kernel, "csrc/op.cuh": "struct S {};\n"}))
    assert [(finding[0], finding[2]) for finding in found] == [("csrc/op.cu", "manual"), ("csrc/op.cuh", "manual")]
    assert "2 kernels" in found[0][3]
    assert "Ascend C" in found[0][3]


def test_requirements_environments_and_images(tmp_path: Path) -> None:
    files = {
        "requirements-dev.txt": "numpy\nflash_attn==2.5 # fast\ntorch==2.1.0+cu118\n",
        "environment.yml": "dependencies:\n  - conda-forge::cudatoolkit=11.8\n  - pip:\n    - bitsandbytes\n",
        "docker/Dockerfile": "FROM nvidia/cuda:12.1.0-devel\nRUN pip install 'xformers' && echo done\n",
        "pyproject.toml": PYPROJECT,
        "setup.cfg": "[options]\ninstall_requires =\n    numpy\n    triton>=2\n",
    }
    positions = [(file, line) for file, line, _, _ in list_findings(project(tmp_path, files))]
    assert positions == [
        ("docker/Dockerfile", 1),
        ("docker/Dockerfile", 2),
        ("environment.yml", 2),
        ("environment.yml", 4),
        ("pyproject.toml", 5),
        ("pyproject.toml", 8),
        ("pyproject.toml", 10),
        ("requirements-dev.txt", 2),
        ("requirements-dev.txt", 3),
        ("setup.cfg", 4),
    ]


@pytest.mark.parametrize("to", ["npu", "mlu", "any"])
def test_each_target_has_its_own_words(tmp_path: Path, to: str) -> None:
    found = list_findings(project(tmp_path, {"requirements.txt": "triton\n"}), to=to)
    text = {"npu": "triton-ascend", "mlu": "Cambricon", "any": "MLU:"}[to]
    assert text in found[0][3]


def test_skip_holds_here_too(tmp_path: Path) -> None:
    project(tmp_path, {"requirements.txt": "triton\n", "a.cu": "int x;\n"})
    assert {finding[0] for finding in list_findings(tmp_path, skip=("packages",))} == {"a.cu"}
    assert {finding[0] for finding in list_findings(tmp_path, only=("packages",))} == {"requirements.txt"}


def test_the_command_shows_and_reports_them_and_copies_the_files(tmp_path: Path) -> None:
    folder = project(tmp_path / "in", {"requirements.txt": "cupy\n"})
    out, page, record = tmp_path / "out", tmp_path / "page.html", tmp_path / "record.json"
    done = viaduct("migrate", str(folder), "--out", str(out), "--report", str(page), "--json", str(record))
    assert done.returncode == 0, done.stderr
    assert "requirements.txt:1" in done.stdout
    assert (out / "requirements.txt").read_text() == "cupy\n"
    assert "requirements.txt" in page.read_text()
    assert any(finding["file"] == "requirements.txt" for finding in json.loads(record.read_text())["findings"])


def test_shell_variables_are_named_where_only_a_patch_is_imported(tmp_path: Path) -> None:
    text = "# CUDA_VISIBLE_DEVICES\nexport CUDA_VISIBLE_DEVICES=0\npython train.py\n"
    folder = project(tmp_path / "in", {"run.sh": text})
    done = viaduct("migrate", str(folder), "--mode", "patch", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "run.sh:2" in done.stdout
    assert "run.sh:1" not in done.stdout
    assert (tmp_path / "out" / "run.sh").read_text() == text


def test_a_list_of_cuda_packages_is_one_finding_that_names_the_lines(tmp_path: Path) -> None:
    text = "nvidia-cublas-cu12==1\nnumpy\nnvidia-nccl-cu12==2\nnvidia-nvtx-cu12==3\ntriton==3\n"
    made = migrate_project(project(tmp_path, {"requirements.txt": text}), Options(to="npu"))
    found = [finding for finding in made.findings if finding.file == "requirements.txt"]
    assert [finding.line for finding in found] == [1, 5]
    assert found[0].message.endswith("also on lines 3, 4")
