"""Errors of a full disk, lack of memory and small batches, as the user sees them."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from training.tiny_runs import After, change_part
from training.tiny_sessions import TINY, run_recipe
from viaduct.errors import BadValue, DiskFull, OutOfMemory
from viaduct.training.callbacks import MetricsFile
from viaduct.training.loop import Training
from viaduct.training.rundir import RunDir


@pytest.fixture(autouse=True)
def a_stored_recipe_can_be_reloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def test_a_full_disk_is_reported_whoever_finds_it_first(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: MetricsFile, kind: str, record: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MetricsFile, "write", no_room)
    with pytest.raises(
        DiskFull, match=r"run' cannot be written: No space left on device.\n  Checkpoints written before are kept"
    ):
        run_recipe(run)


def test_an_error_that_is_not_about_room_stays_what_it_is(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: MetricsFile, kind: str, record: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(MetricsFile, "write", unreadable)
    with pytest.raises(PermissionError):
        run_recipe(run)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("[enforce fail] can't allocate memory: 48 TB")])
def test_too_little_memory_is_named_with_what_to_try(run: RunDir, error: Exception) -> None:
    def fail(training: Training) -> None:
        raise error

    with pytest.raises(OutOfMemory, match="batches of 8 images of 16 pixels") as caught:
        run_recipe(run, replace(TINY, callbacks=(After(1, fail),)))
    assert "--accumulate 2" in caught.value.hints[0]


def test_other_errors_of_torch_are_not_taken_for_memory(run: RunDir) -> None:
    def fail(training: Training) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(BadValue, match=r"the recipe's callback After\.\w+ fails: .*shapes do not match"):
        run_recipe(run, replace(TINY, callbacks=(After(1, fail),)))


def test_a_batch_too_small_for_batch_norm_is_named(run: RunDir) -> None:
    recipe = change_part(replace(TINY, model="resnet18_v1"), "data", global_batch=1)
    with pytest.raises(BadValue, match="a single value per channel with a batch of 1"):
        run_recipe(run, recipe)
