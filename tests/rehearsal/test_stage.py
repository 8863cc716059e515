"""A torch that cannot be given a device from Python is refused before anything is run or written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from old_torch import skip_with_old_torch
from viaduct.errors import BadValue
from viaduct.rehearsal import stage

SCRIPT = """
import pathlib, torch
pathlib.Path("was_run").touch()
model = torch.nn.Linear(2, 2).cuda()
model(torch.ones(1, 2).cuda()).sum().backward()
"""


@pytest.mark.parametrize("version", ["2.4.1", "2.12.1+cpu", "2.9.0a0+gitabc", "1.13.1"])
@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["rehearse", "train.py", "--on", "npu", "--record", "record"], "record"),
        (["rehearse", "train.py", "--on", "original", "--here"], "was_run"),
        (["carry", "train.py", "--to", "mlu", "--out", "carried"], "carried"),
    ],
    ids=["rehearse", "original", "carry"],
)
def test_an_older_torch_is_named_in_two_lines_with_what_works(
    tmp_path: Path, words: list[str], written: str, version: str
) -> None:
    installed = tmp_path / "site" / f"torch-{version}.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    before = sorted(project.iterdir())
    answer = subprocess.run(
        [sys.executable, "-m", "viaduct", *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed.parent), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 2
    assert answer.stderr.splitlines() == [
        f"viaduct {words[0]}: the rehearsal of a PyTorch script needs torch 2.13 or later; this is torch {version}.",
        "  Install torch>=2.13 in an environment of its own; with this one migrate, train, launch and compare work.",
    ]
    assert sorted(project.iterdir()) == before
    assert not (project / written).exists()


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.15.0+cu132", "3.0.0", "2.14.0a0+git1"])
def test_a_torch_that_is_new_enough_is_not_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(stage, "find_torch_version", lambda: version)
    stage.refuse_old_torch()


def test_the_version_of_a_torch_without_metadata_is_read_from_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    import torch

    def find_nothing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", find_nothing)
    monkeypatch.setattr(torch, "__version__", "2.6.0")
    with pytest.raises(BadValue, match=r"this is torch 2\.6\.0"):
        stage.refuse_old_torch()


def test_tests_that_need_a_newer_torch_are_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "carrying/test_carry.py",
        "rehearsal/torch_stage/test_amp.py",
        "rehearsal/test_tf1_stage.py",
        "data/test_a.py",
    )
    marks: dict[str, list[str]] = {name: [] for name in names}
    items = [
        SimpleNamespace(
            path=Path("/tests") / name, add_marker=lambda mark, name=name: marks[name].append(mark.kwargs["reason"])
        )
        for name in names
    ]
    skip_with_old_torch(items, Path("/tests"))
    assert not any(marks.values())
    monkeypatch.setattr(stage, "find_torch_version", lambda: "2.9.1")
    skip_with_old_torch(items, Path("/tests"))
    assert [bool(reasons) for reasons in marks.values()] == [True, True, False, False]
    assert "needs torch 2.13 or later; this is torch 2.9.1" in marks["carrying/test_carry.py"][0]
