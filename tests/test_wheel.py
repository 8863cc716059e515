"""`make wheel`, and what is installed from it: without torch, without a compiler, on every Python that is here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import no_torch_commands
from data.photographs import encode_photograph
from viaduct.data import geometry, region

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
OFFLINE = ("No matching distribution", "ConnectionError", "NewConnectionError", "Temporary failure in name resolution")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.version_info < (3, 11), reason="3.11 or later builds the wheel")]

# Prints what the extensions compute, and the libjpeg that the process has loaded.
PROBE = """
import hashlib, json, pathlib, sys
import numpy as np
from viaduct.data import compiled, geometry, region
data = pathlib.Path(sys.argv[1]).read_bytes()
rows, columns = geometry.stretch_axis(3, 40, 32), geometry.stretch_axis(5, 50, 32)
crop = np.empty((32, 32, 3), np.float32)
assert region.decode_view(data, rows, columns, crop)
pixels = np.arange(48 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(48, 64, 3)
resized = geometry.resample(pixels, rows, columns)
maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
print(json.dumps({
    "decoder": region.describe_decoder(),
    "compiled": compiled.find_compiled("_lerp", "lerp") is not None,
    "crop": hashlib.sha256(crop).hexdigest(),
    "resized": hashlib.sha256(resized).hexdigest(),
    "libraries": sorted({line.split()[-1] for line in maps if "libjpeg" in line}),
}))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_wheel.py"), "--out", str(out)], capture_output=True, text=True
    )
    skip_offline(done)
    if "make wheel: the extensions cannot be compiled here" in done.stderr or "licence was not found" in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stderr
    (built,) = out.iterdir()
    assert done.stdout.strip() == str(built)
    return built


def skip_offline(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode and any(sign in done.stderr + done.stdout for sign in OFFLINE):
        pytest.skip("pip reaches no index")


def make_environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """Return the interpreter of a new virtual environment with these packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    interpreter = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "-q", *map(str, packages)]
    done = subprocess.run(install, capture_output=True, text=True)
    skip_offline(done)
    assert done.returncode == 0, done.stderr
    return interpreter


def bare_environment(path: Path) -> dict[str, str]:
    """Variables of a process that finds no compiler and no other Python's packages."""
    return {"PATH": str(path), "HOME": os.environ.get("HOME", "/"), "COLUMNS": "200"}


@pytest.fixture(scope="session")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with viaduct and nothing but its own dependencies."""
    return make_environment(tmp_path_factory.mktemp("core") / "venv", sys.executable, wheel)


def test_the_wheel_serves_every_python_and_has_its_licences(wheel: Path) -> None:
    assert "-cp310-abi3-manylinux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.startswith("viaduct.libs/libjpeg") for name in names)
    licence = next(name for name in names if name.endswith("licenses/LICENSE.libjpeg-turbo"))
    assert b"libjpeg-turbo" in zipfile.ZipFile(wheel).read(licence)
    metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
    required = [
        line for line in zipfile.ZipFile(wheel).read(metadata).decode().splitlines() if line.startswith("Requires-Dist")
    ]
    assert any(line.startswith("Requires-Dist: torch") and "extra == " in line for line in required)
    assert not any("torch" in line for line in required if "extra == " not in line)


def test_no_torch_and_no_tensorflow_come_with_it(core: Path) -> None:
    code = "import importlib.util as u; print([n for n in ('torch', 'tensorflow', 'simplejpeg') if u.find_spec(n)])"
    done = subprocess.run([str(core), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.fixture(scope="session")
def folder(core: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("core_files")
    no_torch_commands.make_files(made)
    return made


def viaduct(core: Path, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    script = core.with_name("viaduct")
    environment = bare_environment(core.parent)
    return subprocess.run([str(script), *command.split()], capture_output=True, text=True, cwd=folder, env=environment)


def test_every_command_that_needs_no_torch_works(core: Path, folder: Path) -> None:
    for command, (code, output) in no_torch_commands.WORKS.items():
        done = viaduct(core, folder, command)
        assert (done.returncode, output in done.stdout + done.stderr) == (code, True), f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_every_other_command_names_its_extra(core: Path, folder: Path) -> None:
    for command, extra in no_torch_commands.REFUSES.items():
        done = viaduct(core, folder, command)
        assert done.returncode == 2, f"{command}\n{done.stderr}"
        assert f"pip install 'viaduct[{extra}]'" in done.stderr, command
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", PYTHONS)
def test_the_extensions_work_on_each_python_without_compiler_and_system_libjpeg(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    interpreter = make_environment(tmp_path / "venv", python, "--no-deps", wheel, "numpy")
    image = tmp_path / "image.jpg"
    image.write_bytes(encode_photograph("small"))
    done = subprocess.run(
        [str(interpreter), "-c", PROBE, str(image)],
        capture_output=True,
        text=True,
        env=bare_environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["decoder"].startswith("the region of a crop with libjpeg-turbo")
    assert found["compiled"]
    assert [Path(library).parent.name for library in found["libraries"]] == ["viaduct.libs"]
    assert (found["crop"], found["resized"]) == computed_here(image)


def find_python(version: str) -> str | None:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(managed[-1]) if managed else shutil.which(f"python{version}")


def computed_here(image: Path) -> tuple[str, str]:
    """Return the same results from this installation's own extensions."""
    rows, columns = geometry.stretch_axis(3, 40, 32), geometry.stretch_axis(5, 50, 32)
    crop = np.empty((32, 32, 3), np.float32)
    if not region.decode_view(image.read_bytes(), rows, columns, crop):
        pytest.skip("no extension was compiled here to compare with")
    pixels = np.arange(48 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(48, 64, 3)
    resized = geometry.resample(pixels, rows, columns)
    return hashlib.sha256(crop).hexdigest(), hashlib.sha256(resized).hexdigest()


def test_a_missing_compiler_is_reported_with_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_wheel.py"), "--out", str(tmp_path / "dist")],
        capture_output=True,
        text=True,
        env={**os.environ, "CC": "no-such-compiler"},
    )
    assert done.returncode == 1
    assert "there is no compiler 'no-such-compiler'" in done.stderr
    assert "libjpeg62-turbo-dev" in done.stderr
    assert not (tmp_path / "dist").exists()


def test_a_source_install_without_a_compiler_goes_on(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(tree)],
        capture_output=True,
        text=True,
        env={**os.environ, "CC": "no-such-compiler"},
    )
    skip_offline(done)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "viaduct/cli.py" in names
    assert not any(name.endswith(".so") for name in names)
