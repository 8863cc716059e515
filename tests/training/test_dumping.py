"""`viaduct train --dump-steps`: the run is the same run, and its steps are in RUN/dump."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training.tiny_runs import (
    RECIPE,
    After,
    Recorder,
    build_dropout_network,
    build_normed_network,
    build_training,
    change_part,
    train_recipe,
)
from viaduct.comparison.dump_options import DumpOptions
from viaduct.comparison.readers.viaduct_dump import read
from viaduct.errors import BadValue
from viaduct.recipes import Precision, Recipe, Thor
from viaduct.training.dumping import Dumping, check_dump
from viaduct.training.rundir import RunDir

FORGETFUL = replace(RECIPE, model=build_dropout_network, epochs=1)


def losses(recipe: Recipe, folder: Path, options: DumpOptions | None = None) -> list[float]:
    folder.mkdir()
    recorder = Recorder()
    dumping = [Dumping(options)] if options else []
    train_recipe(recipe, RunDir(folder), *dumping, recorder)
    for callback in dumping:
        callback.close()
    return [loss for record in recorder.logs for loss in record.losses]


@pytest.mark.parametrize(
    "recipe",
    [FORGETFUL, change_part(FORGETFUL, "data", workers=2), replace(FORGETFUL, accumulate=2)],
    ids=["", "workers", "parts"],
)
def test_losses_are_the_same_bits_with_a_dump(tmp_path: Path, recipe: Recipe) -> None:
    plain = losses(recipe, tmp_path / "plain")
    assert losses(recipe, tmp_path / "dumped", DumpOptions("0,2-3")) == plain
    side = read(tmp_path / "dumped")
    assert {tensor.step for tensor in side.tensors} == {0, 2, 3}
    assert side.settings["mode"] == "eager"
    assert side.settings["precision"] == "fp32"
    assert {"network", "labels", "loss", "0"} <= {tensor.op for tensor in side.tensors}


def test_a_cast_network_is_dumped_with_its_master_weights(tmp_path: Path) -> None:
    recipe = replace(RECIPE, model=build_normed_network, epochs=1, precision=Precision("O2"))
    losses(recipe, tmp_path / "run", DumpOptions("1"))
    side = read(tmp_path / "run")
    dtypes = {(tensor.op, tensor.role, tensor.parameter): tensor.dtype for tensor in side.tensors}
    assert dtypes["0", "output", ""] in ("bfloat16", "float16")
    assert dtypes["0", "parameter", "weight"] == "float32"
    assert dtypes["0", "update", "weight"] == "float32"
    assert ("1", "parameter", "running_mean") in dtypes
    assert all(call == 0 for call in {tensor.call for tensor in side.tensors})  # no evaluation in it


def test_a_resumed_run_dumps_the_steps_that_it_takes(tmp_path: Path) -> None:
    """Step numbers go on where the run was left, and the steps are the same."""
    single, parts = tmp_path / "whole", tmp_path / "parts"
    losses(FORGETFUL, single, DumpOptions("3"))
    parts.mkdir()
    first = build_training(FORGETFUL, RunDir(parts), After(2, lambda run: run.save() and run.request_stop("enough")))
    with first.train_batches, first.validation:
        first.fit()
    from viaduct.training.checkpoint import find_newest_intact

    saved, _ = find_newest_intact(RunDir(parts).checkpoints)
    assert saved is not None
    dumping = Dumping(DumpOptions("0,3"))
    second = build_training(FORGETFUL, RunDir(parts), dumping)
    second.restore(saved)
    with second.train_batches, second.validation:
        second.fit()
    dumping.close()
    assert "Not dumped: step 0" in dumping.describe_outcome()[0]
    for left, other in zip(read(single).tensors, read(parts).tensors, strict=True):
        assert left.tensor_index == other.tensor_index
        assert np.array_equal(np.load(str(left.path)), np.load(str(other.path)), equal_nan=True)


def test_nothing_dumped_is_reported(tmp_path: Path) -> None:
    options = DumpOptions("99")
    dumping = Dumping(options)
    run = tmp_path / "run"
    run.mkdir()
    train_recipe(FORGETFUL, RunDir(run), dumping)
    dumping.close()
    assert "this session did not take step 99" in dumping.describe_outcome()[0]


@pytest.mark.parametrize(
    ("level", "ranks", "optimizer"),
    [("op", 1, RECIPE.optimizer), ("module", 2, RECIPE.optimizer), ("module", 1, Thor(0.1))],
)
def test_what_graph_mode_cannot_show_is_refused(level: str, ranks: int, optimizer: Any) -> None:
    options = DumpOptions("0", level=level)
    check_dump(options, replace(RECIPE, optimizer=optimizer), ranks)
    with pytest.raises(BadValue, match="graph mode"):
        check_dump(options, replace(RECIPE, mode="graph", optimizer=optimizer), ranks)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_graph_mode_is_dumped_compiled(tmp_path: Path) -> None:
    sides: list[Any] = []
    for mode in ("eager", "graph"):
        recipe = replace(RECIPE, model=build_normed_network, epochs=1, mode=mode)
        losses(recipe, tmp_path / mode, DumpOptions("1"))
        sides.append(read(tmp_path / mode))
    assert sides[1].settings["mode"] == "graph"
    for left, other in zip(*(side.tensors for side in sides), strict=True):
        assert left.tensor_index == other.tensor_index
        assert np.allclose(np.load(str(left.path)), np.load(str(other.path)), atol=1e-4)
