from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from profiling.traces import make_event
from viaduct.profiling.events import nest_events
from viaduct.profiling.locations import ScriptFiles, locate_calls, read_call_lines


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("train.py", "nets/model.py", ".venv/lib/site-packages/other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def locate(
    project: Path, *functions: tuple[str, float, float], lines: dict[tuple[int, int], tuple[str, int]]
) -> list[str]:
    """Return the location inside of each Python function."""
    events = nest_events(make_event(name, start, duration, "python_function") for name, start, duration in functions)
    found = locate_calls(events, ScriptFiles(project, []), lines)
    return [found[id(event)] for event in events]


def test_files_of_packages_are_not_the_users(project: Path) -> None:
    files = ScriptFiles(project, [str(project / ".venv/lib/site-packages")])
    assert [files.find_name(name) for name in ("other.py", "torch/nn/functional.py", "<string>")] == ["", "", ""]


def test_without_a_folder_no_file_is_the_users(project: Path) -> None:
    assert ScriptFiles(None).find_name(str(project / "train.py")) == ""


def test_files_are_found_by_names_relative_to_any_folder_of_sys_path(project: Path) -> None:
    files = ScriptFiles(project, [str(project / "nets")])
    names = [files.find_name(name) for name in ("train.py", str(project / "train.py"), "model.py")]
    assert names == ["train.py", "train.py", "nets/model.py"]


def test_without_lines_of_calls_a_location_names_the_function(project: Path) -> None:
    functions = [("train.py(12): main", 0, 100), ("torch/_tensor.py(3): item", 10, 20)]
    assert locate(project, *functions, lines={}) == ["train.py in main()", "train.py in main()"]


def test_the_innermost_line_of_the_script_counts(project: Path) -> None:
    functions = [("train.py(12): main", 0, 100), ("torch/f.py(3): relu", 10, 50), ("<built-in relu>", 20, 5)]
    lines = {(10_000, 50_000): ("train.py", 17), (20_000, 5_000): ("torch/f.py", 8)}
    assert locate(project, *functions, lines=lines) == ["train.py in main()", "train.py:17", "train.py:17"]


def test_a_torch_without_a_tree_of_events_gives_no_lines() -> None:
    assert read_call_lines(SimpleNamespace(profiler=None), {5}) == {}
