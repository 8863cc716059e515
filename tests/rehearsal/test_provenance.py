"""Every project file that a process executes is recorded, and loaded from the process's own tree."""

from __future__ import annotations
import __future__

import hashlib
import importlib.machinery
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from rehearsal.plans import make_plan
from viaduct.rehearsal import provenance
from viaduct.rehearsal.provenance import OwnLoader, OwnTreeFinder, Recorder, is_same_code
from viaduct.rehearsal.trees import Trees
from viaduct.scripts.runner import load_file

NET = "WIDTH = 1\n"


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """Return a recorder for the tree `own`, compared with `other`; both have net.py."""
    for name, source in (("own", NET), ("other", "WIDTH = 2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(source)
    return Recorder(make_plan(tmp_path), Trees(str(tmp_path / "own"), (str(tmp_path / "other"),)))


def entries(tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "record" / provenance.MODULES_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_without_two_trees_nothing_is_installed(tmp_path: Path) -> None:
    before = list(sys.meta_path)
    provenance.install(make_plan(tmp_path))
    assert provenance.find_installed() is None
    assert sys.meta_path == before


def test_without_a_recorder_a_script_stays_as_it_is(tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    script = load_file(Path(plan.script), ())
    assert provenance.compile_recorded(script) is script


def test_installed_packages_are_not_recorded(recorder: Recorder, tmp_path: Path) -> None:
    recorder.record("json", json.__file__, "", True)
    assert entries(tmp_path) == []


def test_a_file_is_recorded_once_for_each_content(recorder: Recorder, tmp_path: Path) -> None:
    path = str(tmp_path / "own" / "net.py")
    for source in (NET, NET, "WIDTH = 3\n"):
        recorder.compile_file(source.encode(), path, "net")
    recorded = entries(tmp_path)
    assert [entry["sha256"] for entry in recorded] == [
        hashlib.sha256(source.encode()).hexdigest() for source in (NET, "WIDTH = 3\n")
    ]
    assert (recorded[0]["position"], recorded[0]["tree"], recorded[0]["from_file"]) == ("net.py", "own", True)


def test_a_module_of_the_other_tree_is_imported_from_the_own_one(recorder: Recorder, tmp_path: Path) -> None:
    finder = OwnTreeFinder(recorder)
    theirs = importlib.util.spec_from_file_location("net", tmp_path / "other" / "net.py")
    assert theirs is not None
    spec = finder.map_spec("net", theirs)
    assert isinstance(spec.loader, OwnLoader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.WIDTH == 1
    assert [(entry["name"], entry["tree"]) for entry in entries(tmp_path)] == [("net", "own")]


def test_modules_outside_of_the_trees_are_loaded_as_ever(recorder: Recorder) -> None:
    spec = importlib.util.find_spec("json")
    assert spec is not None
    assert OwnTreeFinder(recorder).map_spec("json", spec) is spec


def test_a_stale_bytecode_cache_is_not_executed(recorder: Recorder, tmp_path: Path) -> None:
    loader = OwnLoader("net", str(tmp_path / "own" / "net.py"), recorder)
    with pytest.raises(OSError, match="not used"):
        loader.path_stats(loader.path)
    namespace: dict[str, Any] = {}
    exec(loader.get_code("net"), namespace)
    assert namespace["WIDTH"] == 1


def test_code_that_is_not_that_of_its_file_is_recorded_as_such(recorder: Recorder, tmp_path: Path) -> None:
    path = str(tmp_path / "own" / "net.py")
    recorder.audit("exec", (compile("WIDTH = 4\n", path, "exec", dont_inherit=True),))
    assert [entry["from_file"] for entry in entries(tmp_path)] == [False]
    recorder.audit("exec", (compile(NET, path, "exec", dont_inherit=True),))
    assert [entry["from_file"] for entry in entries(tmp_path)] == [False, True]


@pytest.mark.parametrize("flags", [0, __future__.annotations.compiler_flag])
def test_a_file_whose_text_is_executed_is_recorded(flags: int, recorder: Recorder, tmp_path: Path) -> None:
    path = tmp_path / "own" / "net.py"
    code = compile(NET, "<string>", "exec", flags=flags, dont_inherit=True)
    recorder.audit("exec", (code,))
    assert entries(tmp_path) == []  # the process has read no file with this text
    recorder.audit("open", (str(path), "r", 0))
    recorder.audit("exec", (code,))
    assert [entry["file"] for entry in entries(tmp_path)] == [str(path)]


def test_code_is_that_of_a_file_whatever_it_inherits_from_future_imports() -> None:
    code = compile("x = 1\n", "a.py", "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    assert is_same_code(b"x = 1\n", "a.py", code)
    assert not is_same_code(b"x = 2\n", "a.py", code)
    assert not is_same_code(b"x = (\n", "a.py", code)


def test_a_file_run_by_its_path_is_the_own_trees(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runpy, "_get_code_from_file", runpy._get_code_from_file)  # type: ignore[attr-defined]
    provenance.wrap_run_path(recorder)
    (tmp_path / "alone.py").write_text("WIDTH = 5\n")
    assert runpy.run_path(str(tmp_path / "alone.py"))["WIDTH"] == 5
    assert runpy.run_path(str(tmp_path / "other" / "net.py"))["WIDTH"] == 1
    net = [entry for entry in entries(tmp_path) if entry["position"] == "net.py"]
    assert [(entry["name"], entry["tree"]) for entry in net] == [("", "own")]
