"""Without torch and TensorFlow: what works, what names its extra, and which errors stay what they are.

Packages are kept from being imported here; tests/test_wheel.py has an environment without them.
"""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import no_torch_commands
import viaduct
from viaduct import cli
from viaduct.extras import EXTRAS, MissingExtra, explain_import_error, install_line
from without_torch import block

TESTS = Path(__file__).parent
ROOT = TESTS.parent
HELP = [f"{verb} --help" for verb in cli.VERBS]
NEEDS_TORCH = {
    "viaduct.cluster.agent",
    "viaduct.cluster.rendezvous",
    "viaduct.migration.accelerator_device",  # is copied into migrated projects, and never imported here
}


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CommandResult]:
    """Every command, run one after the other in one process that cannot import torch."""
    folder = tmp_path_factory.mktemp("without_torch")
    no_torch_commands.make_files(folder)
    commands = [*HELP, *no_torch_commands.WORKS, *no_torch_commands.REFUSES]
    asked = folder / "commands.json"
    asked.write_text(json.dumps([command.split() for command in commands]))
    done = subprocess.run(
        [sys.executable, str(TESTS / "without_torch.py"), str(folder), str(asked)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    left = {path.name for path in folder.iterdir()}
    assert not left & {"run", "carried", "dump", "imported.safetensors", "exported", "jpegs.png"}
    return dict(zip(commands, (CommandResult(*row) for row in json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize("command", HELP)
def test_the_help_of_every_verb_needs_no_torch(command: str, answers: dict[str, CommandResult]) -> None:
    assert answers[command].code == 0, answers[command].err
    assert "Usage: viaduct" in answers[command].out


@pytest.mark.parametrize("command", no_torch_commands.WORKS)
def test_a_command_that_needs_no_torch_works_without(command: str, answers: dict[str, CommandResult]) -> None:
    code, output = no_torch_commands.WORKS[command]
    answer = answers[command]
    assert answer.code == code, answer.err
    assert output in answer.out + answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("command", no_torch_commands.REFUSES)
def test_a_command_that_needs_more_names_the_extra(command: str, answers: dict[str, CommandResult]) -> None:
    answer = answers[command]
    assert answer.code == 2, answer.err
    assert f"pip install 'viaduct[{no_torch_commands.REFUSES[command]}]'" in answer.err
    assert "Traceback" not in answer.err
    refusal = answer.err[answer.err.index(f"viaduct {command.split()[0]}") :]
    assert refusal.count("\n") == 2, refusal


def test_importing_what_reads_text_and_files_needs_no_torch() -> None:
    code = "import sys; from without_torch import block; sys.meta_path[:] = block()\nimport " + ", ".join(
        ["viaduct.cli", *modules_of("migration", "cluster", "verbs", "comparison.readers", "comparison.formats")]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=TESTS)
    assert done.returncode == 0, done.stderr


def modules_of(*packages: str) -> list[str]:
    found = []
    for package in packages:
        module = import_module(f"viaduct.{package}")
        found += [info.name for info in pkgutil.walk_packages(module.__path__, f"{module.__name__}.")]
    return [name for name in found if name not in NEEDS_TORCH]


def test_extras_are_those_of_the_project_file() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    core = project.split("dependencies = [")[1].split("]")[0]
    assert "torch" not in core
    assert "tensorflow" not in core
    for package, extra in EXTRAS.items():
        row = re.search(rf"^{extra} = \[(.*)\]$", project, re.MULTILINE)
        assert row is not None
        assert re.search(rf'"{package}(-cpu)?[><=]', row[1]), f"{package} is not in the extra {extra}"


# Which error it is


def catch_import_error(action: Callable[[], object]) -> ImportError:
    with pytest.raises(ImportError) as caught:
        action()
    return caught.value


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process where neither torch nor the codecs can be imported, though they are installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in EXTRAS or name == "viaduct.data.batches":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", block())


@pytest.mark.usefixtures("blocked")
def test_our_own_import_of_a_missing_package_names_the_extra() -> None:
    explained = explain_import_error(catch_import_error(lambda: import_module("viaduct.data.batches")))
    assert isinstance(explained, MissingExtra)
    assert explained.exit_code == 2
    assert explained.message == "this needs torch, which is not installed."
    assert explained.hints[0].startswith("pip install 'viaduct[train]'")


@pytest.mark.usefixtures("blocked")
def test_an_import_in_a_users_file_is_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    code = compile("import torch", str(file), "exec")
    assert explain_import_error(catch_import_error(lambda: exec(code, {}))) is None


def test_a_module_of_ours_that_does_not_exist_is_our_bug() -> None:
    error = catch_import_error(lambda: import_module("viaduct.verbs.nonsense"))
    assert explain_import_error(error) is None


def test_an_installed_package_that_lacks_a_part_is_not_called_missing() -> None:
    error = catch_import_error(lambda: import_module("numpy.nonsense"))
    assert explain_import_error(error) is None
    missing_part = ModuleNotFoundError("No module named 'torch'", name="torch")  # torch is installed here
    assert explain_import_error(missing_part) is None


@pytest.mark.usefixtures("blocked")
def test_a_recipe_that_imports_torch_is_named_with_its_line_and_the_extra(tmp_path: Path) -> None:
    from viaduct.errors import BadValue
    from viaduct.recipes import load

    file = tmp_path / "mine.py"
    file.write_text("\nimport torch\n")
    with pytest.raises(BadValue) as caught:
        load(str(file))
    assert caught.value.hints == (f"in {file}, line 2", install_line("torch"))


def test_tensorflow_is_not_promised_to_a_python_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    assert install_line("tensorflow") == "pip install 'viaduct[tf]'"
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert install_line("tensorflow").startswith("TensorFlow 2.15 needs Python 3.11 or older")


def test_the_folder_of_the_package_is_known() -> None:
    from viaduct import extras

    assert Path(viaduct.__file__).parent == extras.VIADUCT
