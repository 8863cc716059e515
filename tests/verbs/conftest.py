"""A finished run, one for each module of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_viaduct import viaduct
from verbs.short_run import QUICK


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "quick"
    answer = viaduct("train", *QUICK, "--run", run, "--save-every", "1")
    assert answer.returncode == 0, answer.stderr
    return run
