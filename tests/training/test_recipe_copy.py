"""A run executes its own copy of a recipe, and no other file, whatever its recipe.json says."""

from __future__ import annotations

import importlib.util
import json
import py_compile
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from viaduct.errors import BadRun
from viaduct.recipes import load
from viaduct.recipes._fields import to_record
from viaduct.training.rundir import RunDir

OWN = """
from viaduct.recipes import Recipe, Shapes
from beside import word
from package.inner import number
def network(classes):
    import late
    return f"{word} {number} {late.when}"
recipe = Recipe(model=network, data=Shapes(8, 16))
"""
ALONE = "from viaduct.recipes import Recipe, Shapes\nrecipe = Recipe(model='resnet50', data=Shapes(8, 16))\n"
NEIGHBOURS = ("beside", "late", "package", "package.inner", "folder", "folder.inner")


@pytest.fixture(autouse=True)
def modules_stay_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    forget()


def forget() -> None:
    for name in NEIGHBOURS:
        sys.modules.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with a user's recipe and its modules."""
    folder = tmp_path / "mine"
    (folder / "package").mkdir(parents=True)
    (folder / "own.py").write_text(OWN)
    (folder / "beside.py").write_text("word = 'neighbour'\n")
    (folder / "late.py").write_text("when = 'late'\n")
    (folder / "unused.py").write_text("raise SystemError\n")
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "inner.py").write_text("from . import __name__ as number\n")
    return folder


def begin_run(run: Path, file: Path) -> RunDir:
    loaded = load(str(file))
    if callable(loaded.recipe.model):
        loaded.recipe.model(4)  # as a training builds it before the run is begun
    begun = RunDir(run)
    begun.record_start(loaded, {"name": loaded.name, "file": str(file), "recipe": to_record(loaded.recipe)})
    return begun


def rewrite(run: RunDir, **fields: Any) -> None:
    path = run.path / "recipe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    file = tmp_path / "alone.py"
    file.write_text(ALONE)
    return begin_run(tmp_path / "run", file)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A recipe outside of the run, which must not run."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n{ALONE}")
    return trap


def check_refusal(run: RunDir, words: str, trap: Path) -> None:
    with pytest.raises(BadRun, match=words):
        run.load_recipe()
    assert not (trap.parent / "sprung").exists()


@pytest.mark.parametrize("how", ["{trap}", "../trap.py", "./trap.py", "trap.py"])
def test_a_name_is_never_taken_for_a_path(run: RunDir, trap: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trap.parent)
    rewrite(run, name=how.format(trap=trap), file=None)
    check_refusal(run, "names a recipe that viaduct does not have", trap)


def test_the_path_of_the_original_is_not_followed(run: RunDir, trap: Path) -> None:
    shutil.copy(trap, run.path / "recipe.py")
    rewrite(run, file=str(trap))
    check_refusal(run, "recipe.py has changed since the run was begun", trap)
    (run.path / "recipe.py").unlink()
    check_refusal(run, "recipe.py is missing", trap)


@pytest.mark.parametrize("name", ["../trap.py", "{trap}", "recipe_modules/../../trap.py", "recipe_modules/../x.py", ""])
def test_a_listed_file_outside_of_the_run_is_refused(run: RunDir, trap: Path, name: str) -> None:
    rewrite(run, files={name.format(trap=trap): "0" * 64})
    check_refusal(run, "names a file that no run keeps", trap)


@pytest.mark.parametrize("files", [[], "recipe.py", {"recipe.py": 3}, None])
def test_a_list_of_files_that_is_none_is_damage(run: RunDir, trap: Path, files: Any) -> None:
    rewrite(run, files=files)
    check_refusal(run, 'its "files" must map file names to checksums', trap)


def test_links_out_of_the_run_are_refused(run: RunDir, folder: Path, trap: Path) -> None:
    (run.path / "recipe.py").unlink()
    (run.path / "recipe.py").symlink_to(trap)
    rewrite(run, files={})
    check_refusal(run, "outside of the run; it is not executed", trap)
    several = begin_run(run.path.with_name("several"), folder / "own.py")
    forget()
    shutil.move(several.path / "recipe_modules", trap.parent / "elsewhere")
    (several.path / "recipe_modules").symlink_to(trap.parent / "elsewhere")
    check_refusal(several, "outside of the run; it is not executed", trap)


def test_a_run_that_is_reached_through_a_link_is_a_run(run: RunDir) -> None:
    link = run.path.with_name("link")
    link.symlink_to(run.path)
    assert RunDir(link).load_recipe().recipe.model == "resnet50"


def test_a_compiled_file_in_the_run_is_not_executed(run: RunDir, trap: Path) -> None:
    cached = importlib.util.cache_from_source(str(run.path / "recipe.py"))
    py_compile.compile(str(trap), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert run.load_recipe().recipe.model == "resnet50"
    assert not (trap.parent / "sprung").exists()


def test_modules_beside_the_recipe_are_kept_with_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begin_run(tmp_path / "run", folder / "own.py")
    shutil.rmtree(folder)
    forget()
    model = run.load_recipe().recipe.model
    assert callable(model)
    assert model(4) == "neighbour package late"
    kept = {str(path.relative_to(run.path)) for path in run.path.rglob("*.py")}
    assert kept == {"recipe.py", *(f"recipe_modules/{name}.py" for name in ("beside", "late"))} | {
        f"recipe_modules/package/{name}.py" for name in ("__init__", "inner")
    }
    printed = capsys.readouterr().err
    assert f"Executing {run.path / 'recipe.py'}, the run's copy of its recipe, with 4 modules from " in printed


def test_a_module_that_somebody_put_beside_the_copies_is_not_imported(folder: Path, tmp_path: Path, trap: Path) -> None:
    run = begin_run(tmp_path / "run", folder / "own.py")
    forget()
    (run.path / "recipe_modules" / "late.py").unlink()
    shutil.copy(trap, run.path / "late.py")
    shutil.copy(trap, run.path / "recipe_modules" / "package" / "more.py")
    record = json.loads((run.path / "recipe.json").read_text())
    del record["files"]["recipe_modules/late.py"]
    rewrite(run, files=record["files"])
    model = run.load_recipe().recipe.model
    assert callable(model)
    sys.path[:] = [entry for entry in sys.path if entry != str(folder)]
    with pytest.raises(ModuleNotFoundError):
        model(4)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("package.more")
    assert not (trap.parent / "sprung").exists()


def test_a_changed_neighbour_does_not_continue_the_run(folder: Path, tmp_path: Path) -> None:
    run = begin_run(tmp_path / "run", folder / "own.py")
    (folder / "beside.py").write_text("word = 'other'\n")
    with pytest.raises(BadRun, match=r"beside\.py has changed since"):
        run.refuse_other_recipe(load(str(folder / "own.py")))


def test_two_runs_keep_their_modules_apart(folder: Path, tmp_path: Path) -> None:
    first = begin_run(tmp_path / "first", folder / "own.py")
    forget()
    (folder / "beside.py").write_text("word = 'other'\n")
    second = begin_run(tmp_path / "second", folder / "own.py")
    forget()
    words = []
    for run in (first, second, first):
        model = run.load_recipe().recipe.model
        assert callable(model)
        words.append(model(4).split()[0])
    assert words == ["neighbour", "other", "neighbour"]


def test_the_file_that_the_user_names_is_executed_instead(run: RunDir, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(ALONE.replace("resnet50", "resnet18"))
    assert run.load_recipe(other).recipe.data == run.load_recipe().recipe.data
    assert run.load_recipe(other).file == other


def test_a_run_of_an_earlier_viaduct_has_a_copy_and_no_checksum(run: RunDir) -> None:
    record = json.loads((run.path / "recipe.json").read_text())
    del record["files"]
    (run.path / "recipe.json").write_text(json.dumps(record))
    assert run.load_recipe().recipe.model == "resnet50"
