"""Records of measurements: repetitions, exceeded ceilings, peers with less work."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from viaduct.benching import record
from viaduct.benching.counting import StepWork
from viaduct.benching.measure import VariantResult, reset_compiler
from viaduct.benching.shares import Shares
from viaduct.devices.timing import Sample
from viaduct.errors import BadValue
from viaduct.recipes import Ema, Lars, load

RECIPE = load("resnet18_imagenet").recipe
PEER = {"variant": "plain resnet18_v1, eager"}


class Still:
    def run_first_step(self) -> None: ...
    def __call__(self, steps: int) -> None: ...
    def close(self) -> None: ...


def run(milliseconds: float, shares: Shares) -> VariantResult:
    return VariantResult(
        "viaduct", "viaduct", "", Still(), StepWork(), seconds=Sample([milliseconds / 1000]), shares=shares
    )


def test_shares_of_repetitions_add_up_to_the_step_as_it_is_reported() -> None:
    quick = Shares({"convolution": 6.0, "optimizer": 1.0}, 2.0, 1.0, [{"name": "conv", "ms": 6.0}])
    slow = Shares({"convolution": 9.0, "copies": 2.0}, 1.0, 0.0, [{"name": "conv", "ms": 9.0}])
    found = record.build_time_record([run(10.0, quick), run(12.0, slow)], ms_per_step=11.0)
    assert sum(found["ms"].values()) + found["host_gaps_ms"] + found["data_wait_ms"] == pytest.approx(11.0)
    assert found["ms"]["convolution"] > found["ms"]["copies"] > found["ms"]["optimizer"]
    assert found["largest"] == [{"name": "conv", "ms": pytest.approx(9.0 * 11 / 12)}]


def test_a_repetition_whose_profile_failed_does_not_count_as_zero() -> None:
    quick = Shares({"convolution": 4.0, "optimizer": 2.0}, 1.0, 1.0)
    failed = Shares(why_not="the profiler saw no kernel")
    for repetitions in ([run(8.0, quick), run(8.0, failed)], [run(8.0, failed), run(8.0, quick)]):
        found = record.build_time_record(repetitions, ms_per_step=8.0)
        assert found["ms"] == pytest.approx({"convolution": 4.0, "optimizer": 2.0})
        assert found["host_gaps_ms"] == found["data_wait_ms"] == pytest.approx(1.0)
    assert record.build_time_record([run(8.0, failed)], ms_per_step=8.0) == {"why_not": "the profiler saw no kernel"}


def test_one_measurement_is_reported_as_it_was_made() -> None:
    found = record.build_time_record([run(10.0, Shares({"convolution": 6.0}, 3.0, 1.0))], ms_per_step=10.0)
    assert found["ms"] == pytest.approx({"convolution": 6.0})


def test_more_than_the_best_is_no_share_and_is_explained() -> None:
    assert record.compute_share(50, seconds=1.0, best=100.0) == 0.5
    assert record.compute_share(150, seconds=1.0, best=100.0) is None
    figures = {"matrix_share": None, "bandwidth_share": 0.5, "counted": {"flop": 150}}
    assert record.describe_exceeded_ceilings([figures], "fp16") == [
        "No matrix share is given for a step that multiplies faster than the large fp16 product."
    ]
    assert record.describe_exceeded_ceilings([{**figures, "matrix_share": 0.9}], "fp16") == []
    assert record.describe_exceeded_ceilings([{**figures, "counted": {"why_not": "it needs values"}}], "fp16") == []


def test_a_ratio_of_unlike_work_is_called_so() -> None:
    assert record.describe_unequal_work(RECIPE, [PEER]) == []
    assert record.describe_unequal_work(replace(RECIPE, optimizer=Lars()), []) == []
    (line,) = record.describe_unequal_work(replace(RECIPE, optimizer=Lars(), ema=Ema()), [PEER])
    assert line.startswith("Ours uses Lars and averaged weights, peers use plain SGD")
    (line,) = record.describe_unequal_work(replace(RECIPE, optimizer=lambda parameters: nn.Module()), [PEER])
    assert "an optimizer of its own" in line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders on this system")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.json")
    with pytest.raises(BadValue, match="is there already"):
        record.check_json_path(tmp_path / "p.json")


def test_what_was_never_compiled_is_not_forgotten_by_loading_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: asked.append("reset"))
    monkeypatch.setitem(sys.modules, "torch._dynamo", ModuleType("torch._dynamo"))  # as an interrupted import leaves it
    reset_compiler()
    assert asked == []
    vars(sys.modules["torch._dynamo"])["reset"] = None
    reset_compiler()
    assert asked == ["reset"]
