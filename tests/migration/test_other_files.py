from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project
from viaduct.migration.summary import Summary, summarise

RULE = "engine.gpu_mention"


def migrate(folder: Path, files: dict[str, str | bytes], script: str = "import torch\n", **options: object) -> Outcome:
    for name, content in {"train.py": script, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return migrate_project(folder, Options(**options), jobs=1)  # type: ignore[arg-type]


def list_mentions(outcome: Outcome) -> list[tuple[str, int]]:
    return [(finding.file, finding.line) for finding in outcome.findings if finding.rule == RULE]


def summary_of(folder: Path, files: dict[str, str | bytes], **options: object) -> Summary:
    return summarise(migrate(folder, files, **options))


@pytest.mark.parametrize(
    "name",
    [
        "README", "README.txt", "readme.md", "docs/install.rst", "LICENSE", "LICENSE-APACHE", "CHANGELOG.txt",
        "results.csv", "train.log", "poetry.lock", "package-lock.json", ".gitignore", "fix.patch", "plot.svg",
        "notes.MD", "page.html",
    ],
)  # fmt: skip
def test_prose_and_data_are_not_reported(tmp_path: Path, name: str) -> None:
    files: dict[str, str | bytes] = {name: "CUDA_VISIBLE_DEVICES=0 python train.py --device cuda:0\n"}
    assert summary_of(tmp_path, files).verdict == "nothing to change"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("weights", b"\x00\x01cuda:0"),
        ("data.txt", "cuda:0\n" * 200_000),
        ("Makefile", "train:  # cuda:0\n\t# CUDA_VISIBLE_DEVICES=0\n\tpython train.py // nccl\n"),
        ("song.txt", "barracuda\nCUSP and gpu\n"),
        ("Makefile", ""),
    ],
)
def test_binary_files_huge_files_and_comments_are_not_reported(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert summary_of(tmp_path, {name: content}).verdict == "nothing to change"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Makefile", "train:\n\tCUDA_VISIBLE_DEVICES=0 python train.py\n"),
        ("Makefile", "check:\n\tnvidia-smi\n"),
        (".env", "MODE=train\nDEVICE=cuda\n"),
        ("kernels.pyx", "def f(x):\n    return x.cuda()\n"),
        ("src/ops.cpp", "#include <vector>\n#include <cuda_runtime.h>\n"),
        ("CMakeLists.txt", "project(x)\nfind_package(CUDA REQUIRED)\n"),
        ("args.txt", "--epochs 3\n--use_cuda\n"),
        (".gitlab-ci.yml", "test:\n  image: nvcr.io/nvidia/pytorch\n"),
        ("history.cfg", "[run]\nenv = NCCL_DEBUG\n"),
        ("Jenkinsfile", "steps {\n  sh 'NCCL_DEBUG=INFO ./run'\n"),
        ("devices.json", '[\n[["cuda:0", "cuda:1"]]]\n'),
        ("compose.yaml", "train:\n  runtime: nvidia\n"),
        ("pod.yaml", "limits:\n  nvidia.com/gpu: 1\n"),
        ("Dockerfile", "FROM python:3.11\nRUN nvidia-smi\n"),
    ],
)
def test_a_mention_in_a_file_that_is_not_migrated_makes_the_verdict_incomplete(
    tmp_path: Path, name: str, content: str
) -> None:
    outcome = migrate(tmp_path, {name: content})
    assert list_mentions(outcome) == [(name, 2)]
    assert summarise(outcome).verdict == "incomplete"
    assert not outcome.changed_files
    assert not outcome.unread  # the exit code stays 0: the file was read


def test_a_settings_file_that_was_changed_is_searched_for_what_remains(tmp_path: Path) -> None:
    outcome = migrate(tmp_path, {"a.yaml": "device: cuda\npair: [[cuda:0]]\nimage: nvcr.io/nvidia/pytorch\n"})
    assert [file.path for file in outcome.changed_files] == ["a.yaml"]
    assert list_mentions(outcome) == [("a.yaml", 2)]
    assert summarise(outcome).verdict == "incomplete"


def test_a_shell_script_without_a_suffix_is_migrated(tmp_path: Path) -> None:
    script = "#!/usr/bin/env bash\nCUDA_VISIBLE_DEVICES=0 python train.py\n"
    outcome = migrate(tmp_path, {"run": script, "tools/start.job": script})
    after = script.replace("CUDA", "ASCEND_RT").encode()
    assert {file.path: file.after for file in outcome.changed_files} == {"run": after, "tools/start.job": after}


@pytest.mark.parametrize(("name", "line"), [("run.sh", 1), ("Makefile", 1), ("config.yaml", 1)])
def test_a_tensorflow_project_is_searched_for_texts_that_mean_a_card(tmp_path: Path, name: str, line: int) -> None:
    outcome = migrate(tmp_path, {name: "CUDA_VISIBLE_DEVICES=0\nx\n"}, script="import tensorflow as tf\n")
    assert list_mentions(outcome) == [(name, line)]
    assert summarise(outcome).verdict == "incomplete"


def test_the_word_cuda_alone_means_nothing_in_a_tensorflow_project(tmp_path: Path) -> None:
    outcome = migrate(tmp_path, {"notes": "a cuda build\n"}, script="import tensorflow as tf\n")
    assert not list_mentions(outcome)


@pytest.mark.parametrize("options", [{"only": ("backend",)}, {"mode": "patch"}])
def test_a_partial_migration_does_not_search_other_files(tmp_path: Path, options: dict[str, object]) -> None:
    outcome = migrate(tmp_path, {"Makefile": "\tnvidia-smi\n"}, **options)
    assert not list_mentions(outcome)
    assert summarise(outcome).verdict == "incomplete"


def test_a_folder_without_scripts_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("\tnvidia-smi\n")
    assert not migrate_project(tmp_path, Options(), jobs=1).files
