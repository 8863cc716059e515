"""The start-up hook: only the Python that viaduct started takes part, and the user's own hook still runs."""

from __future__ import annotations

import importlib
import runpy
import sys
import types
from pathlib import Path

import pytest

import viaduct

HOOK = Path(viaduct.__file__).parent / "scripts" / "hook"
VARIABLE, JOINED = "VIADUCT_PROFILE_PYTHON", "viaduct.profiling.worker"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the hook calls: our module's `join`, and the user's sitecustomize, which both only note it."""
    calls: list[str] = []
    worker = types.ModuleType(JOINED)
    worker.join = lambda: calls.append("join")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, JOINED, worker)
    monkeypatch.setitem(sys.modules, "sitecustomize", types.ModuleType("sitecustomize"))
    monkeypatch.setattr(sys, "calls", calls, raising=False)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.calls.append('own')\n")
    monkeypatch.setattr(sys, "path", [str(HOOK), str(tmp_path), *sys.path])
    for variable in (VARIABLE, "VIADUCT_REHEARSAL_PYTHON"):
        monkeypatch.delenv(variable, raising=False)
    return calls


@pytest.mark.parametrize("python", ["", "/usr/bin/another-python"])
def test_another_python_does_not_take_part(python: str, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, python)
    runpy.run_path(str(HOOK / "sitecustomize.py"))
    assert calls == ["own"]


def test_the_same_python_takes_part_before_the_users_own_hook(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, sys.executable)
    before = list(sys.path)
    runpy.run_path(str(HOOK / "sitecustomize.py"))
    assert calls == ["join", "own"]
    assert sys.path == before


def test_a_failing_hook_does_not_prevent_the_users_own(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no plan")

    monkeypatch.setenv(VARIABLE, sys.executable)
    monkeypatch.setattr(sys.modules[JOINED], "join", fail)
    with pytest.raises(OSError, match="no plan"):
        runpy.run_path(str(HOOK / "sitecustomize.py"))
    assert calls == ["own"]


def test_every_module_that_it_calls_has_the_function(calls: list[str]) -> None:
    names = runpy.run_path(str(HOOK / "sitecustomize.py"))["_MODULE_BY_VARIABLE"].values()
    assert JOINED in names
    assert all(callable(importlib.import_module(name).join) for name in names)
