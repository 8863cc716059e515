"""The doorway: instant help, lazy verbs, errors as exit codes, completion."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from viaduct.cli import VERBS

SOURCE = Path(__file__).parents[1] / "src" / "viaduct"


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200", **environment}
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["evaluate", "--help"],
        ["predict", "--help"],
        ["migrate", "--help"],
    ],
)
def test_help_needs_neither_torch_nor_numpy(words: list[str]) -> None:
    answer = python("-X", "importtime", "-m", "viaduct", *words)
    assert answer.returncode == 0
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in answer.stderr.splitlines() if "|" in line}
    assert not imported & {"torch", "numpy", "jinja2"}
    assert "viaduct" in answer.stdout


def test_listing_recipes_needs_no_torch() -> None:
    answer = python("-X", "importtime", "-m", "viaduct", "train", "--list")
    assert "shapes_taster" in answer.stdout
    assert " torch\n" not in answer.stderr


def test_every_verb_has_its_file_and_its_line_of_help() -> None:
    for verb in VERBS:
        assert (SOURCE / "verbs" / f"{verb}.py").is_file()
        assert python("-m", "viaduct", verb, "--help").returncode == 0


def test_an_unknown_verb_is_refused_with_the_closest() -> None:
    answer = python("-m", "viaduct", "trian")
    assert answer.returncode == 2
    assert "train" in answer.stderr


def test_the_shell_completes_verbs_and_flags() -> None:
    verbs = python("-m", "viaduct", _VIADUCT_COMPLETE="complete_bash", COMP_WORDS="viaduct tr", COMP_CWORD="1")
    assert verbs.stdout.split() == ["train"]
    flags = python(
        "-m", "viaduct", _VIADUCT_COMPLETE="complete_bash", COMP_WORDS="viaduct train --prec", COMP_CWORD="2"
    )
    assert flags.stdout.split() == ["--precision"]


# Imports run downhill. A room may import what stands below it in this list, never what stands above.
HILL = [
    ["verbs"],
    ["benching", "handover", "runs"],
    ["training"],
    ["recipes"],
    ["carrying"],
    ["comparison", "migration", "profiling", "rehearsal", "tuning"],
    ["reporting"],
    ["weights"],
    ["kernels"],
    ["models", "data", "devices", "cluster", "scripts"],
    ["extras", "search_space"],
    ["cards"],
    ["errors"],
    ["flags", "terminal", "torch_compat"],
]


def test_imports_run_downhill() -> None:
    height = {room: level for level, rooms in enumerate(HILL) for room in rooms}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages <= set(height), f"packages without a level: {packages - set(height)}"
    uphill = []
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                other = module.split(".")[1] if module.startswith("viaduct.") else ""
                sideways = other != room and height.get(other, 99) == height.get(room)
                if room in height and other in height and (height[other] < height[room] or sideways):
                    uphill.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert uphill == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--help"], ["models"], ["train", "--list"]])
def test_output_that_cannot_be_written_is_one_line_and_no_traceback(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        made = subprocess.run(
            [sys.executable, "-m", "viaduct", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert made.returncode == 2
    assert made.stderr.count("\n") == 1
    assert "standard output cannot be written: No space left on device" in made.stderr
