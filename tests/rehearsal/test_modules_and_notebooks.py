"""`-m pkg.train` and notebooks are rehearsed and carried as they would be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from carrying.carry_scripts import CarryResult
from forked_viaduct import viaduct
from scripts.test_notebook_runs import notebook
from viaduct.rehearsal.project import find_module_file

TRAIN = """\
import sys
import torch
from .net import make

torch.set_num_threads(1)
net = make()
optimizer = torch.optim.SGD(net.parameters(), float(sys.argv[1]))
for _ in range(2):
    loss = net(torch.ones(3, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(__name__, __package__)
"""
CELLS = (
    "%matplotlib inline\nimport torch\ntorch.set_num_threads(1)",
    "net = torch.nn.Linear(4, 2).cuda()\noptimizer = torch.optim.SGD(net.parameters(), 0.1)",
    "for _ in range(2):\n    loss = net(torch.ones(3, 4).cuda()).square().mean()\n    optimizer.zero_grad()\n"
    "    loss.backward()\n    optimizer.step()\nprint(open('near.txt').read())",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "project" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "net.py").write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 2).cuda()\n")
    (package / "train.py").write_text(TRAIN)
    return package.parent


def write_notebook(folder: Path, *cells: str) -> Path:
    inside = folder / "notebooks"
    inside.mkdir(exist_ok=True)
    (inside / "near.txt").write_text("beside the notebook")
    (inside / "train.ipynb").write_bytes(notebook(*cells))
    return inside / "train.ipynb"


def test_the_main_module_of_a_package_may_be_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pkg" / "__main__.py").touch()
    monkeypatch.chdir(project)
    assert find_module_file("pkg.__main__") == find_module_file("pkg") == project / "pkg" / "__main__.py"


def test_a_module_runs_with_its_package(project: Path) -> None:
    answer = viaduct("rehearse", "-m", "pkg.train", "--on", "original", "--", "0.1", cwd=project)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "__main__ pkg\n"
    assert "2 steps" in answer.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pkg.nothing", "there is no module 'pkg.nothing'"),
        ("pkg", "'pkg' is a package without __main__.py"),
        ("pkg/train.py", "'pkg/train.py' is no module's name"),
    ],
)
def test_a_module_that_does_not_exist_is_named(name: str, message: str, project: Path) -> None:
    for verb in ("rehearse", "carry"):
        answer = viaduct(verb, "-m", name, cwd=project)
        assert answer.returncode == 2
        assert message in answer.stderr
        assert "Traceback" not in answer.stderr


def test_a_notebook_runs_in_its_own_folder(tmp_path: Path) -> None:
    path = write_notebook(tmp_path, *CELLS)
    answer = viaduct("rehearse", path, "--on", "original", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "beside the notebook\n"
    assert "2 steps" in answer.stderr


def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    path = write_notebook(tmp_path, *CELLS[:2], "x = 1\nraise ValueError('bad')")
    answer = viaduct("rehearse", path, "--on", "original", cwd=tmp_path)
    assert answer.returncode == 1
    assert "raise ValueError('bad')" in answer.stderr
    assert f"In {path} cell 6, line 2." in answer.stderr


@pytest.mark.slow
def test_a_module_and_a_notebook_are_carried(project: Path) -> None:
    answer = viaduct("carry", "-m", "pkg.train", "--out", "../module", "--", "0.1", cwd=project)
    module = CarryResult(answer, project.parent / "module")
    assert module.record["verdict"] == "agrees", answer.stderr
    assert {edit["file"] for edit in module.record["edits"]} == {"pkg/train.py", "pkg/net.py"}
    assert "python3 -m pkg.train 0.1" in module.record["commands"][2]["command"]
    path = write_notebook(project.parent, *CELLS)
    answer = viaduct("carry", path, "--out", "../cells", cwd=project)
    cells = CarryResult(answer, project.parent / "cells")
    assert cells.record["verdict"] == "agrees", answer.stderr
    assert [edit["executed"] for edit in cells.record["edits"]] == [1, 1, 2]
