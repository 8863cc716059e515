"""A project that pip has installed in editable mode: the migrated side imports the migrated tree all the same."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import viaduct

SETUP = "from setuptools import setup\nsetup(name='tiny', version='1', package_dir={'': 'src'}, packages=['tiny'])\n"
FILES = {
    "setup.py": SETUP,
    "src/tiny/__init__.py": "",
    "src/tiny/settings.py": "RATE = 0.01\n",
    "tools/train.py": """\
import torch
from tiny.settings import RATE
torch.set_num_threads(1)
net = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
for step in range(3):
    loss = net(torch.ones(2, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def python(tmp_path: Path, project: Path) -> Path:
    """The Python of a new environment that sees this one's packages, with the project installed in editable mode."""
    if importlib.util.find_spec("setuptools") is None or importlib.util.find_spec("pip") is None:
        pytest.skip("setuptools and pip are needed to install a project in editable mode")
    folder = tmp_path / "env"
    venv.create(folder, symlinks=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    paths = [str(Path(viaduct.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "outer.pth").write_text("\n".join([*dict.fromkeys(paths), sysconfig.get_path("purelib")]) + "\n")
    found = folder / "bin" / "python"
    words = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-e", str(project)]
    answer = subprocess.run([found, *words], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return found


def carry(python: Path, project: Path, *words: str) -> tuple[int, dict[str, object], str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-m", "viaduct", "carry", "tools/train.py", "--steps", "3", *words]
    answer = subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment)
    record = project.parent / "carried" / "carry.json"
    assert record.exists(), answer.stdout + answer.stderr
    return answer.returncode, json.loads(record.read_text()), answer.stdout + answer.stderr


@pytest.mark.slow
def test_an_editable_install_is_imported_from_each_sides_own_tree(python: Path, project: Path) -> None:
    where = subprocess.run([python, "-c", "import tiny; print(tiny.__file__)"], capture_output=True, text=True)
    assert where.stdout.strip() == str(project / "src/tiny/__init__.py"), where.stderr
    code, record, output = carry(python, project, "--out", "../carried")
    assert (code, record["verdict"]) == (0, "agrees"), output
    copy = project.parent / "carried" / "migrated"
    assert (copy / "src/tiny/settings.py").is_file()
    copy = copy.rename(project.parent / "copy")
    (copy / "src/tiny/settings.py").write_text("RATE = 0.09\n")
    code, record, output = carry(python, project, "--migrated", "../copy", "--out", "../carried", "--force")
    assert (code, record["verdict"]) == (1, "differs"), output
    assert "src/tiny/settings.py:1: RATE = 0.09" in output
