"""`make test-matrix` goes on after a failure, tells of it, and leaves nothing behind; no environment is built here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.training.test_loop" name="test_good"/>
<testcase classname="tests.training.test_loop" name="test_bad"><failure message="assert 0"/></testcase>
<testcase classname="tests.training.test_sink" name="test_broken"><error message="no fixture"/></testcase>
<testcase classname="tests.data.test_jpeg" name="test_tf"><skipped message="could not import 'tensorflow'"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def matrix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_versions", ROOT / "benchmarks" / "torch_versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torch_versions", module)
    spec.loader.exec_module(module)
    return module


def call(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> Any:
    """Return the exit code, or the message, of the script."""
    monkeypatch.setattr(sys, "argv", ["torch_versions.py", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        matrix.main()
    return ended.value.code


def pretend(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, failures: dict[str, int]) -> None:
    """Let environments be built at once, but for releases that are not among these; so many tests fail in each."""

    def build(environment: Path, source: Path, torch: str, python: str, log: Path) -> None:
        log.write_text("No matching distribution found\n")
        if torch.partition("==")[2] not in failures:
            raise subprocess.CalledProcessError(1, ["pip", "install", torch])

    def run_tests(outcome: Any, environment: Path, *others: Any) -> None:
        outcome.passed, outcome.failed, outcome.seconds = 7, failures[outcome.asked], 3.4
        outcome.failures = [f"tests/test_x.py::test_{number}" for number in range(outcome.failed)]

    monkeypatch.setattr(matrix, "build", build)
    monkeypatch.setattr(matrix, "run_tests", run_tests)
    monkeypatch.setattr(matrix, "copy_tree", lambda target: target)
    monkeypatch.setattr(matrix, "versions_in", lambda environment: (environment.name[6:], "2.4.6", "3.11.7"))


def test_releases_that_pass_are_a_table_and_exit_code_0(
    matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(matrix, monkeypatch, {"2.5.1": 0, "2.9.0": 0})
    assert call(matrix, monkeypatch, "2.5.1", "2.9.0", "--environments", tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [
        "| torch | python | passed | failed | skipped | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 2.5.1 | 3.11.7 | 7 | 0 | 0 | 3 |",
        "| 2.9.0 | 3.11.7 | 7 | 0 | 0 | 3 |",
    ]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["torch-2.5.1.log", "torch-2.9.0.log"]


def test_a_release_that_fails_or_cannot_be_installed_does_not_end_the_others(
    matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(matrix, monkeypatch, {"2.5.1": 1, "2.9.0": 0})
    words = ("2.99.0", "2.5.1", "2.9.0", "--environments", tmp_path / "envs", "--out", tmp_path / "out.json")
    assert call(matrix, monkeypatch, *words) == 1
    output = capsys.readouterr()
    assert "| 2.99.0 |  |  | could not: pip install torch==2.99.0 |  |  |" in output.out
    assert "| 2.5.1 | 3.11.7 | 7 | 1 | 0 | 3 |" in output.out
    assert "| 2.9.0 | 3.11.7 | 7 | 0 | 0 | 3 |" in output.out
    assert "torch 2.5.1: tests/test_x.py::test_0 failed" in output.err
    assert "No matching distribution found" in output.err
    record = json.loads((tmp_path / "out.json").read_text())
    assert [row["torch"] for row in record["rows"]] == ["2.99.0", "2.5.1", "2.9.0"]
    assert record["command"] == "python benchmarks/torch_versions.py 2.99.0 2.5.1 2.9.0"


def test_an_environment_is_kept_when_requested(
    matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(matrix, monkeypatch, {"2.5.1": 0})
    assert call(matrix, monkeypatch, "2.5.1", "--keep", "--environments", tmp_path) == 0
    assert (tmp_path / "torch-2.5.1").is_dir()


def test_a_run_in_which_nothing_passed_is_no_success(
    matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(matrix, monkeypatch, {"2.5.1": 0})
    monkeypatch.setattr(matrix, "run_tests", lambda *given: None)
    assert call(matrix, monkeypatch, "2.5.1", "--environments", tmp_path) == 1


def test_environments_are_not_built_inside_the_tree(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is inside the tree" in call(matrix, monkeypatch, "2.5.1", "--environments", ROOT / "build" / "x")
    assert not (ROOT / "build" / "x").exists()


@pytest.mark.parametrize(
    ("release", "requirement"), [("2.5.1", "torch==2.5.1"), ("2.5", "torch==2.5.*"), ("newest", "torch")]
)
def test_a_release_is_asked_of_pip(matrix: ModuleType, release: str, requirement: str) -> None:
    assert matrix.requirement_of(release) == requirement


@pytest.mark.parametrize("release", ["latest", "torch==2.5", "2", "-r x", "../2.5.1"])
def test_what_is_no_release_is_refused(matrix: ModuleType, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    with pytest.raises(SystemExit, match="is no release of torch"):
        matrix.requirement_of(release)


def test_failures_and_errors_are_counted_and_named(matrix: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    outcome = matrix.Outcome("2.5.1")
    matrix.read_report(outcome, report)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 2, 1)
    assert outcome.failures == [
        "tests/training/test_loop.py::test_bad",
        "tests/training/test_sink.py::test_broken",
    ]
    assert outcome.skip_reasons == {"could not import 'tensorflow'": 1}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this tree travelled without its history")
def test_the_copy_of_the_tree_has_what_git_has(matrix: ModuleType, tmp_path: Path) -> None:
    copy = matrix.copy_tree(tmp_path / "tree")
    assert (copy / "src/viaduct/cli.py").read_bytes() == (ROOT / "src/viaduct/cli.py").read_bytes()
    assert not list(copy.rglob("*.so"))
    assert not (copy / ".venv").exists()
