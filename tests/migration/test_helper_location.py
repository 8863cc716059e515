"""The helper of `--to any` is a new file where scripts can import it; it never replaces another file."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forked_viaduct import python, viaduct
from migration.notebook_files import code, dump, notebook
from migration.test_walk import git
from migration.test_writing import contents
from viaduct.errors import BadValue
from viaduct.migration import helper_text
from viaduct.migration.inplace import write_in_place
from viaduct.migration.options import Options
from viaduct.migration.results import Outcome
from viaduct.migration.run import migrate_project
from viaduct.migration.writing import write_out

SCRIPT = (
    'import torch\n\nif __name__ == "__main__":\n    torch.cuda.synchronize()\n    print(torch.ones(1).cuda().device)\n'
)
HELPER = "accelerator_device.py"


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def migrate_to_any(path: Path) -> Outcome:
    return migrate_project(path, Options(to="any"))


def list_added_files(path: Path) -> list[str]:
    return [file.path for file in migrate_to_any(path).helper_files]


# ---- where


def test_a_project_without_device_code_gets_none(tmp_path: Path) -> None:
    project(tmp_path, {"model.py": "import torch\nprint(torch.ones(1))\n"})
    outcome = migrate_to_any(tmp_path)
    assert not outcome.helper_files
    assert not outcome.files_to_write


def test_somebody_elses_module_of_that_name_is_not_written_over(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT, HELPER: "mine = 1\n"})
    outcome = migrate_to_any(tmp_path)
    assert [file.path for file in outcome.helper_files] == ["accelerator_device_2.py"]
    assert "from accelerator_device_2 import accelerator" in outcome.by_path["train.py"].new_text
    write_in_place(outcome)
    assert (tmp_path / HELPER).read_text() == "mine = 1\n"


def test_neither_is_one_beside_a_single_script(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT, HELPER: "mine = 1\n"})
    assert list_added_files(tmp_path / "train.py") == ["accelerator_device_2.py"]


def test_a_folder_of_that_name_counts_too(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT, "accelerator_device/notes.txt": "x"})
    assert list_added_files(tmp_path) == ["accelerator_device_2.py"]


def test_a_helper_that_its_owner_has_changed_stays(tmp_path: Path) -> None:
    mine = helper_text.read_helper() + "# mine\n"
    project(tmp_path, {"train.py": SCRIPT, HELPER: mine})
    outcome = migrate_to_any(tmp_path)
    assert [file.path for file in outcome.files_to_write] == ["train.py"]
    write_in_place(outcome)
    assert (tmp_path / HELPER).read_text() == mine
    write_out(
        migrate_to_any(project(tmp_path / "alone", {"train.py": SCRIPT, HELPER: mine}) / "train.py"), tmp_path / "o", {}
    )
    assert (tmp_path / "o" / HELPER).read_text() == mine


@pytest.mark.parametrize(
    ("files", "places"),
    [
        (["train.py"], [HELPER]),
        (["train.py", "engine.py"], [HELPER]),
        (["tools/train.py", "tools/test.py"], [f"tools/{HELPER}"]),
        (["main.py", "lib/engine.py=main:lib.engine"], [HELPER]),
        (["lib/__init__.py", "lib/engine.py"], [HELPER]),
        (["tools/train.py:lib.engine", "lib/__init__.py", "lib/engine.py"], [HELPER]),
        (["lib/__init__.py", "lib/deep/__init__.py", "lib/deep/engine.py", "setup.py"], [f"lib/{HELPER}"]),
        (["src/lib/__init__.py", "src/lib/engine.py", "pyproject.toml"], [f"src/lib/{HELPER}"]),
    ],
)
def test_it_lies_where_the_scripts_look_for_their_modules(files: list[str], places: list[str], tmp_path: Path) -> None:
    """`a.py:m` imports m; `a.py=b:m` is imported by b as m."""
    texts: dict[str, str] = {}
    for file in files:
        name, _, by = file.partition("=")
        name, _, imported = name.partition(":")
        texts[name] = (f"from {imported} import x\n" if imported else "") + (SCRIPT if name[-3:] == ".py" else "")
        if by:
            texts["main.py"] = f"import {by.partition(':')[2]}\n{SCRIPT}"
    for name in [name for name in texts if name.endswith(("__init__.py", "setup.py", ".toml"))]:
        texts[name] = ""
    assert list_added_files(project(tmp_path, texts)) == places


def test_a_package_that_is_installed_imports_it_from_within(tmp_path: Path) -> None:
    project(tmp_path, {"setup.py": "", "lib/__init__.py": "", "lib/engine.py": SCRIPT})
    assert (
        "from lib.accelerator_device import accelerator" in migrate_to_any(tmp_path).by_path["lib/engine.py"].new_text
    )


def test_every_script_finds_it(tmp_path: Path) -> None:
    files = {
        "main.py": "import torch\nfrom lib.engine import move\nprint(move(torch.ones(1).cuda()).device)\n",
        "lib/__init__.py": "",
        "lib/engine.py": "import torch\n\ndef move(x):\n    torch.cuda.synchronize()\n    return x.cuda()\n",
    }
    write_in_place(migrate_to_any(project(tmp_path, files)))
    done = python(
        f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path({str(tmp_path / 'main.py')!r})"
    )
    assert done.stdout == "cpu\n", done.stderr


# ---- writing


def test_a_second_run_finds_nothing_to_do(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT})
    write_in_place(migrate_to_any(tmp_path))
    before = contents(tmp_path)
    outcome = migrate_to_any(tmp_path)
    assert not outcome.files_to_write
    assert not [finding for finding in outcome.findings if finding.status == "changed"]
    write_in_place(outcome)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_no_other_target_touches_the_helper(to: str, tmp_path: Path) -> None:
    project(tmp_path, {HELPER: helper_text.read_helper()})
    assert not migrate_project(tmp_path, Options(to=to)).changed_files  # type: ignore[arg-type]


def test_a_failure_leaves_no_helper_behind(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT})
    outcome = migrate_to_any(tmp_path)
    before = contents(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT + "# new\n")
    with pytest.raises(BadValue, match="changed while"):
        write_in_place(outcome)
    assert contents(tmp_path) == before | {"train.py": (SCRIPT + "# new\n").encode()}


def test_a_helper_that_appears_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT})
    outcome = migrate_to_any(tmp_path)
    (tmp_path / HELPER).write_text("mine = 1\n")
    with pytest.raises(BadValue, match="has appeared"):
        write_in_place(outcome)
    assert contents(tmp_path) == {"train.py": SCRIPT.encode(), HELPER: b"mine = 1\n"}


def test_the_patch_holds_the_new_file(tmp_path: Path) -> None:
    project(tmp_path / "project", {"train.py": SCRIPT})
    done = viaduct("migrate", ".", "--to", "any", cwd=tmp_path / "project")
    patch = done.stdout.partition("\nChanged")[0]
    assert f"--- /dev/null\n+++ {HELPER}\n" in patch
    write_out(migrate_to_any(tmp_path / "project"), tmp_path / "out", {})
    subprocess.run(["git", "apply", "-p0", "-"], input=patch, text=True, cwd=tmp_path / "project", check=True)
    assert contents(tmp_path / "project") == contents(tmp_path / "out")


def test_check_names_it_and_writes_nothing(tmp_path: Path) -> None:
    project(tmp_path, {"train.py": SCRIPT})
    done = viaduct("migrate", tmp_path, "--to", "any", "--check", "--quiet")
    assert done.returncode == 1
    assert f"would add {HELPER}\n" in done.stdout
    assert contents(tmp_path) == {"train.py": SCRIPT.encode()}


def test_reports_show_it(tmp_path: Path) -> None:
    project(tmp_path / "project", {"train.py": SCRIPT})
    git(tmp_path / "project", "init", "-q")
    git(tmp_path / "project", "add", ".")
    words = ["--json", str(tmp_path / "all.json"), "--report", str(tmp_path / "page.html"), "--in-place", "--force"]
    done = viaduct("migrate", tmp_path / "project", "--to", "any", *words)
    assert done.returncode == 0, done.stderr
    assert f"{HELPER} (new)" in done.stdout
    assert "Written: 2 files" in done.stderr
    record = json.loads((tmp_path / "all.json").read_text())
    assert [(addition["path"], addition["state"]) for addition in record["added"]] == [(HELPER, "added")]
    assert "class AnyAccelerator" in record["added"][0]["text"]
    assert "AnyAccelerator" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "project" / HELPER).read_text() == helper_text.render_helper({"device", "synchronize"})


def test_a_project_of_tensorflow_alone_is_refused(tmp_path: Path) -> None:
    project(tmp_path / "project", {"old.py": "import tensorflow as tf\n"})
    done = viaduct("migrate", tmp_path / "project", "--to", "any", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "device-neutral" in done.stderr
    assert not (tmp_path / "out").exists()


# ---- notebooks


def test_a_notebook_carries_the_helper_in_a_cell(tmp_path: Path) -> None:
    setup = code("from time import time\nimport torch")  # its names must survive the helper's
    use = code("x = torch.ones(1).cuda()\ntorch.cuda.synchronize()\nassert time() > 0\nprint(x.device)")
    (tmp_path / "n.ipynb").write_bytes(dump(notebook(setup, use)))
    outcome = migrate_to_any(tmp_path)
    assert not outcome.helper_files
    write_in_place(outcome)
    made = json.loads((tmp_path / "n.ipynb").read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in made if cell["cell_type"] == "code")
    assert "class AnyAccelerator" in text
    assert "from accelerator_device" not in text
    done = python(text)
    assert done.stdout == "cpu\n", done.stderr
    assert not migrate_to_any(tmp_path).changed_files


# ---- the helper itself


def test_it_needs_nothing_but_torch_and_an_old_python() -> None:
    tree = ast.parse(helper_text.read_helper(), feature_version=(3, 8))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"torch"}


CARD = """
import sys, types, torch
from importlib.machinery import ModuleSpec

class Scaler:
    pass

kind = KIND
plugin = types.ModuleType(f"torch_{kind}")
plugin.__spec__ = ModuleSpec(plugin.__name__, None)
sys.modules[plugin.__name__] = plugin
card = types.ModuleType(f"torch.{kind}")
card.device_count = lambda: COUNT
card.synchronize = lambda: "waited"
card.amp = types.SimpleNamespace(GradScaler=Scaler, custom_fwd="forward")
setattr(torch, kind, card)
sys.path.insert(0, FOLDER)
from accelerator_device import accelerator
print(accelerator.name(), accelerator.name(1), accelerator.name("1"), accelerator.name("cpu"), accelerator.backend())
assert accelerator.card(1) == f"{kind}:1" and accelerator.types is card if COUNT else accelerator.card() == "cuda"
print(accelerator.map_location(), accelerator.unless_cpu([1]))
print(accelerator.synchronize(), type(accelerator.GradScaler()).__name__, accelerator.activity())
"""


@pytest.mark.parametrize(("kind", "backend"), [("npu", "hccl"), ("mlu", "cncl")])
def test_a_card_is_found_and_named(kind: str, backend: str, tmp_path: Path) -> None:
    shutil.copy(helper_text.COMPLETE_HELPER, tmp_path / HELPER)
    done = python(CARD.replace("KIND", repr(kind)).replace("COUNT", "2").replace("FOLDER", repr(str(tmp_path))))
    names, devices, calls = done.stdout.splitlines()
    assert names == f"{kind} {kind}:1 {kind}:1 cpu {backend}"
    assert devices == "cpu [1]"
    assert calls.startswith("waited Scaler ")


def test_a_plug_in_without_a_card_is_the_cpu(tmp_path: Path) -> None:
    shutil.copy(helper_text.COMPLETE_HELPER, tmp_path / HELPER)
    done = python(CARD.replace("KIND", "'npu'").replace("COUNT", "0").replace("FOLDER", repr(str(tmp_path))))
    assert done.stdout.splitlines()[:2] == ["cpu cpu cpu cpu gloo", "cpu None"], done.stderr


ON_THE_CPU = """
import sys, warnings
warnings.simplefilter("error")
sys.path.insert(0, FOLDER)
import torch
from accelerator_device import accelerator
assert accelerator.is_available() is False and accelerator.device_count() == 0
accelerator.set_device(3), accelerator.synchronize(), accelerator.empty_cache(), accelerator.manual_seed_all(1)
assert accelerator.max_memory_allocated() == 0 and accelerator.get_device_name(0) == "CPU"
start, end = accelerator.Event(enable_timing=True), accelerator.Event(enable_timing=True)
start.record(), end.record(), end.synchronize()
assert start.elapsed_time(end) >= 0
with accelerator.stream(accelerator.Stream()), accelerator.device_index(1), accelerator.device_of(torch.ones(1)):
    x = torch.ones(2).to(accelerator.device(3), non_blocking=True)
accelerator.set_rng_state(accelerator.get_rng_state())
accelerator.set_rng_state(accelerator.get_rng_state("cuda:1"), device=1)
assert accelerator.initial_seed() == torch.initial_seed()
assert accelerator.device(accelerator.current_device()).type == "cpu"
assert accelerator.FloatTensor([1.0]).dtype == torch.float32
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = accelerator.GradScaler(1024.0, enabled=True)
with accelerator.autocast(dtype=torch.float16):
    loss = model(x).sum()
assert loss.dtype == torch.float32
scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()

@accelerator.autocast()
def within(x):
    return x
within(x)

with torch.autocast("cpu", dtype=torch.bfloat16):
    with accelerator.autocast(enabled=False):
        assert model(x).dtype == torch.bfloat16

assert accelerator.card() == "cuda" and accelerator.card(1) == "cuda:1"
assert torch.device("cpu") != torch.device(accelerator.card(0))
assert not isinstance(x, accelerator.types.FloatTensor)
assert isinstance(x, accelerator.FloatTensor)
assert accelerator.memory_stats() == {} and accelerator.get_rng_state_all() == []
accelerator.set_rng_state_all(accelerator.get_rng_state_all())

def raised(home):
    try:
        home.get_device_properties(0)
    except Exception as error:
        return repr(error)
assert raised(accelerator) == raised(torch.cuda) is not None
try:
    accelerator.get_device_property(0)
except AttributeError as error:
    print(error)
"""


def test_on_the_cpu_a_script_goes_on(tmp_path: Path) -> None:
    shutil.copy(helper_text.COMPLETE_HELPER, tmp_path / HELPER)
    done = python(ON_THE_CPU.replace("FOLDER", repr(str(tmp_path))))
    assert done.returncode == 0, done.stderr
    assert "module 'torch.cuda' has no attribute 'get_device_property'" in done.stdout
