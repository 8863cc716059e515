"""Statistics of arrays and tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from comparison.networks import dump_training, find_tensor
from viaduct.comparison import Dump
from viaduct.comparison.readers.viaduct_dump import read

pytestmark = pytest.mark.usefixtures("one_thread")


def test_statistics_alone_agree_with_those_of_tensors(tmp_path: Path) -> None:
    full, alone = dump_training(tmp_path / "a"), dump_training(tmp_path / "b", statistics_only=True)
    assert not list((tmp_path / "b").rglob("*.npy"))
    assert len(full.tensors) == len(alone.tensors)
    for first, second in zip(full.tensors, alone.tensors, strict=True):
        assert second.path is None
        assert not second.fault
        assert first.statistics is not None
        assert second.statistics == pytest.approx(dict(first.statistics), rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("statistics_only", [False, True])
def test_integers_that_float64_rounds_survive_the_index(tmp_path: Path, statistics_only: bool) -> None:
    model = nn.Identity()
    with Dump(model, tmp_path, statistics_only=statistics_only):
        model(torch.tensor([2**53 + 1, -(2**63)]))
    statistics = find_tensor(read(tmp_path), "network", "output").statistics
    assert statistics is not None
    assert (int(statistics["min"]), int(statistics["max"])) == (-(2**63), 2**53 + 1)


@pytest.mark.parametrize("statistics_only", [False, True])
def test_nan_and_inf_are_counted_and_survive_the_index(tmp_path: Path, statistics_only: bool) -> None:
    model = nn.Identity()
    with Dump(model, tmp_path, statistics_only=statistics_only):
        model(torch.tensor([1.0, float("nan"), float("inf"), -3.0]))
        model(torch.tensor([float("nan")]))
    side = read(tmp_path)
    some = find_tensor(side, "network", "output").statistics
    assert some is not None
    assert (some["min"], some["max"], some["nan"], some["inf"]) == (-3, 1, 1, 1)
    none = find_tensor(side, "network", "output", call=1).statistics
    assert none is not None
    assert np.isnan(none["min"])
