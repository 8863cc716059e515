"""Processes that the profiled script starts: a session begins with their import of torch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from viaduct.profiling import script_job, worker
from viaduct.profiling.worker import TorchFinder, end_worker, join

JOB: Any = object()


def find_finders() -> list[Any]:
    return [finder for finder in sys.meta_path if isinstance(finder, TorchFinder)]


@pytest.fixture(autouse=True)
def restore_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])


def test_a_process_without_a_job_and_the_scripts_own_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_job, "load_job", lambda: None)
    join()
    monkeypatch.setattr(script_job, "load_job", lambda: JOB)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", worker.CHILD])
    join()
    assert find_finders() == []


def test_a_session_starts_after_torch_was_imported_and_torch_has_its_own_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("weights = 3\n")
    spec = importlib.util.spec_from_file_location("torch", tmp_path / "torch.py")
    assert spec is not None
    original = spec.loader
    monkeypatch.setattr(script_job, "load_job", lambda: JOB)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "…"])
    monkeypatch.setattr(worker.importlib.util, "find_spec", lambda name: spec)
    join()
    (finder,) = find_finders()
    assert finder.find_spec("numpy", None) is None
    assert finder.find_spec("torch", None) is spec
    assert find_finders() == [], "the first import alone is of interest"
    torch = importlib.util.module_from_spec(spec)
    started: list[Any] = []
    monkeypatch.setattr(worker, "start_session", lambda job: started.append((job, torch.weights)))
    assert spec.loader is not None
    spec.loader.exec_module(torch)
    assert started == [(JOB, 3)]
    assert torch.__loader__ is torch.__spec__.loader is original  # type: ignore[union-attr]


def test_a_python_without_torch_fails_as_it_does_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.importlib.util, "find_spec", lambda name: None)
    sys.meta_path.insert(0, TorchFinder(JOB))
    assert find_finders()[0].find_spec("torch", None) is None


def test_a_worker_that_has_taken_its_steps_ends_without_a_failure() -> None:
    with pytest.raises(SystemExit) as ended:
        end_worker()
    assert ended.value.code == 0
