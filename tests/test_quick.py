from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from quick import STARTERS, TESTS, heavy_import, is_quick


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import subprocess\n", "subprocess"),
        ("def test() -> None:\n    from multiprocessing import Pool\n", "multiprocessing"),
        ("import tensorflow.compat.v1 as tf\n", "tensorflow.compat.v1"),
        ("from forked_viaduct import viaduct\n", "forked_viaduct"),
        ("from training.ranks import run_on_ranks\n", "training.ranks, which imports multiprocessing.connection"),
        ("from training import ranks\n", "training.ranks, which imports multiprocessing.connection"),
        ("import json\nfrom viaduct import devices\nfrom training.tiny_runs import RECIPE\n", None),
    ],
)
def test_what_starts_processes_or_needs_tensorflow_is_left_out(tmp_path: Path, text: str, reason: str | None) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert heavy_import(path) == reason


def test_a_helper_in_the_same_folder_is_looked_into() -> None:
    browsing = TESTS / "reporting" / "test_in_browser.py"
    assert heavy_import(browsing) == "reporting.browser, which imports subprocess"


@pytest.mark.gpu
def test_a_test_on_a_card_may_start_the_compiler(request: pytest.FixtureRequest) -> None:
    assert not is_quick(request.node)


def test_most_modules_are_quick() -> None:
    modules = [path for path in TESTS.rglob("test_*.py") if heavy_import(path) is None]
    assert len(modules) > 200


@pytest.mark.parametrize("name", STARTERS)
def test_a_quick_test_that_starts_a_process_fails(name: str) -> None:
    refuse = getattr(os, name)
    assert refuse.__name__ == "refuse"
    with pytest.raises(pytest.fail.Exception, match=r"mark it with @pytest\.mark\.process"):
        refuse()


def test_a_process_that_a_library_starts_fails_it_too() -> None:
    popen = sys.modules["subprocess"].Popen
    with pytest.raises(pytest.fail.Exception, match=r"mark it with @pytest\.mark\.process"):
        popen(["true"])


def test_tensorflow_is_not_there_in_the_quick_part(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--quick"):
        with pytest.raises(ImportError):
            __import__("tensorflow")
        assert not [name for name in sys.modules if name.startswith("tensorflow.")]
