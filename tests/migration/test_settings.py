"""Configuration files of a PyTorch project: names of cards in them are changed like those in scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from viaduct.migration.options import Options
from viaduct.migration.results import FileResult
from viaduct.migration.run import migrate_project
from viaduct.migration.summary import summarise


def project(folder: Path, name: str, text: str, script: str = "import torch\n") -> Path:
    (folder / "train.py").write_text(script)
    (folder / name).write_bytes(text.encode())
    return folder


def migrate_settings(
    folder: Path, name: str, text: str, script: str = "import torch\n", **options: object
) -> FileResult:
    outcome = migrate_project(project(folder, name, text, script), Options(**options), jobs=1)  # type: ignore[arg-type]
    found = [file for file in outcome.files if file.path == name]
    return found[0] if found else FileResult(name)


@pytest.mark.parametrize(
    "text",
    [
        "# device: cuda\nlog_dir: runs/cuda_baseline\n",
        "device: cpu  # not cuda\n",
        "kernel: cuda\nname: nccl\n",
        "device_name: Quadro\nmy_backend: gloo\n",
        "backend: cudnn\n",
        "text: say device\ncuda: true\n",
    ],
)
def test_what_is_no_device_stays(tmp_path: Path, text: str) -> None:
    result = migrate_settings(tmp_path, "a.yaml", text)
    assert not result.changed
    assert not result.findings


def test_a_project_without_torch_is_not_looked_through(tmp_path: Path) -> None:
    result = migrate_settings(tmp_path, "a.yaml", "device: cuda\n", script="import tensorflow\n")
    assert not result.changed
    assert not result.findings


def test_a_file_that_is_not_utf_8_is_reported_instead_of_counting_as_migrated(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    for name in ("a.yaml", "run.sh"):
        (tmp_path / name).write_bytes("author: Müller\ndevice: cuda\n".encode("latin-1"))
    (tmp_path / "b.yaml").write_bytes("author: Müller\naccelerator: cpu\n".encode("latin-1"))
    outcome = migrate_project(tmp_path, Options(), jobs=1)
    assert not outcome.changed_files
    assert [finding.file for finding in outcome.unfinished_findings] == ["a.yaml", "run.sh"]
    assert summarise(outcome).verdict == "incomplete"


def test_other_files_and_other_words_are_not_touched(tmp_path: Path) -> None:
    assert not migrate_settings(tmp_path, "a.txt", "device: cuda\n").changed
    assert not migrate_settings(tmp_path, "environment.yml", "device: cuda\n").changed
    assert not migrate_settings(tmp_path, "b.yaml", "device: cuda\n", mode="patch").changed
    assert not migrate_settings(tmp_path, "c.yaml", "device: cuda\n", skip=("torch.device_string",)).changed


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.yaml", "device: cuda\n", "device: npu\n"),
        ("a.yaml", "# CUDA\nmodel:\n  device: 'cuda:1'   # card\n", "# CUDA\nmodel:\n  device: 'npu:1'   # card\n"),
        ("a.yml", "- {train_device: cuda, x: 1}\n", "- {train_device: npu, x: 1}\n"),
        ("a.yaml", "dist:\r\n  backend: nccl\r\n", "dist:\r\n  backend: hccl\r\n"),
        ("a.yaml", "train.device: cuda", "train.device: npu"),
        ("a.yaml", "device_backend: nccl", "device_backend: hccl"),
        ("a.yaml", "device_backend: cuda", "device_backend: npu"),
        ("a.json", '{"device": "cuda", "dist_backend": "nccl"}\n', '{"device": "npu", "dist_backend": "hccl"}\n'),
        ("a.toml", '[run]\ndevice = "cuda:0"\n', '[run]\ndevice = "npu:0"\n'),
        ("a.ini", "[run]\ndevice=cuda ; card\n", "[run]\ndevice=npu ; card\n"),
    ],
)
def test_a_device_is_the_accelerators(tmp_path: Path, name: str, before: str, after: str) -> None:
    result = migrate_settings(tmp_path, name, before)
    assert result.after.decode() == after
    assert {finding.status for finding in result.findings} == {"changed"}
    assert all(finding.before and finding.after for finding in result.findings)
    again = tmp_path / "again"
    again.mkdir()
    assert not migrate_settings(again, name, after).changed


def test_a_list_of_devices_needs_manual_review(tmp_path: Path) -> None:
    result = migrate_settings(tmp_path, "a.yaml", "devices: [cuda:0, cuda:1]\n")
    assert not result.changed
    assert [(finding.status, finding.line) for finding in result.findings] == [("manual", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "device: &card cuda\n",
        "device: !!str cuda\n",
        "devices: {0: cuda, 1: cpu}\n",
        "args: --device cuda --epochs 3\n",
        '{"args": [\n"--device",\n"cuda"\n]}\n',
        "args: --dist-backend nccl\n",
        "env:\n  CUDA_VISIBLE_DEVICES: '0,1'\n",
    ],
)
def test_a_line_in_another_form_is_never_passed_over(tmp_path: Path, text: str) -> None:
    for to in ("npu", "any"):
        result = migrate_settings(tmp_path, "a.yaml", text, to=to)
        assert not result.changed
        (finding,) = result.findings
        assert finding.status == "manual"
        assert finding.message_zh
    rules = ("torch.device_string", "torch.backend", "torch.visible_devices")
    assert not migrate_settings(tmp_path, "a.yaml", text, skip=rules).findings


@pytest.mark.parametrize("text", ["gpu: cuda:0\n", "gpus:\n  - cuda:1\n", '{"card": "cuda:3"}\n'])
def test_a_numbered_device_under_any_key_needs_manual_review(tmp_path: Path, text: str) -> None:
    result = migrate_settings(tmp_path, "a.yaml", text)
    assert not result.changed
    (finding,) = result.findings
    assert (finding.status, "mentions cuda" in finding.message) == ("manual", True)


def test_what_is_to_run_everywhere_names_no_card(tmp_path: Path) -> None:
    script = "import torch\nx = torch.zeros(3, device='cuda')\n"
    result = migrate_settings(tmp_path, "a.yaml", "device: cuda\nbackend: nccl\n", script, to="any")
    assert not result.changed
    assert [(finding.status, finding.risk) for finding in result.findings] == [("manual", "high")] * 2


FLOW = """\
train: {device: cuda, backend: nccl}
map_location: "cuda:0"
device: ${oc.env:DEV,cuda}
---
model:
  device:
    cuda
kernels:
  - cuda
"""


def test_a_file_is_not_half_migrated_and_every_place_is_named(tmp_path: Path) -> None:
    result = migrate_settings(tmp_path, "a.yaml", FLOW)
    assert not result.changed
    assert [(finding.status, finding.line) for finding in result.findings] == [
        *[("manual", line) for line in (1, 1, 2, 3, 7)],
    ]


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("a.yaml", "train: {device: cuda, backend: nccl}\n"),
        ("a.json", '{"dist": {"backend": "nccl"}, "model": {"net": {"device": "cuda:1"}}, "device": "cuda"}\n'),
        ("b.json", '{"a":{"device":"cuda"},"dist":{"backend":"nccl"}}'),
    ],
)
def test_nested_places_follow_too(tmp_path: Path, name: str, before: str) -> None:
    result = migrate_settings(tmp_path, name, before)
    assert result.after.decode() == before.replace("cuda", "npu").replace("nccl", "hccl")


def test_a_list_over_several_lines_is_named(tmp_path: Path) -> None:
    result = migrate_settings(tmp_path, "a.json", '{\n  "devices": [\n    "cuda:0",\n    "cuda:1"\n  ],\n  "x": 1\n}\n')
    assert [(finding.status, finding.line) for finding in result.findings] == [("manual", 3), ("manual", 4)]


@pytest.mark.parametrize(("path", "text"), [("a.gin", "build.device = 'cuda:0'\n"), ("a.conf", "device = cuda\n")])
def test_gin_and_conf_files_are_configuration_too(tmp_path: Path, path: str, text: str) -> None:
    (tmp_path / "train.py").write_text("import torch\ndef build(device):\n    return torch.ones(2).to(device)\n")
    (tmp_path / path).write_text(text)
    outcome = migrate_project(tmp_path, Options(to="npu"))
    assert outcome.by_path[path].new_text == text.replace("cuda", "npu")
