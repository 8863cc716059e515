"""Planted faults are found: in a short network always, in ResNet-50 and AmoebaNet-D with `make test-all`."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from viaduct.comparison.drift import Options, compare  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "planted_faults.py"
FAULTS = (
    *("overflow", "batch norm epsilon", "transposed kernel", "missing residual add", "swapped channels"),
    *("stale weight", "wrong padding", "dropout", "label offset", "half-precision reduction"),
)

QUICK = ("batch norm epsilon", "missing residual add", "stale weight", "wrong padding", "label offset")


@pytest.fixture(scope="module")
def planted() -> Iterator[ModuleType]:
    """benchmarks/planted_faults.py, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("planted_faults", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_faults"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)
    del sys.modules["planted_faults"]


@pytest.fixture(scope="module")
def short(planted: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A ResNet of four bottlenecks, a quarter as wide, on images of 32x32."""
    folder = tmp_path_factory.mktemp("short")
    return planted.make_bench("resnet50_v1", folder, 32, blocks=(1, 1, 1, 1), filters=(16, 32, 64, 128))


def test_these_are_the_ten_faults(planted: ModuleType) -> None:
    assert tuple(planted.FAULTS) == FAULTS


@pytest.mark.parametrize("fault", QUICK)
@pytest.mark.lengthy
def test_a_planted_fault_is_found_and_named(planted: ModuleType, short: Any, fault: str) -> None:
    outcome, drift = planted.try_fault(short, fault, seed=0)
    assert outcome.origin == outcome.planted, drift.explanation.headline
    assert outcome.cause == outcome.expected, drift.explanation.causes


def test_without_a_fault_there_is_no_origin(planted: ModuleType, short: Any, tmp_path: Path) -> None:
    short.dump(copy.deepcopy(short.model), tmp_path / "again", planted.Planted("", "", ""))
    drift = compare(tmp_path / "again", short.truth() / "step_000000", Options(workers=1))
    assert drift.exit_code == 0
    assert drift.explanation.origin is None


@pytest.mark.lengthy
def test_bfloat16_against_float32_has_no_single_origin(planted: ModuleType, tmp_path: Path) -> None:
    bench = planted.make_bench("resnet50_v1", tmp_path, 32, filters=(8, 16, 32, 64))
    half = planted.Bench("half", bench.model, bench.images.bfloat16(), bench.labels, tmp_path)
    half.dump(copy.deepcopy(bench.model).bfloat16(), tmp_path / "half", planted.Planted("", "", ""))
    drift = compare(tmp_path / "half", bench.truth() / "step_000000", Options(workers=1))
    assert drift.explanation.origin is None
    assert drift.explanation.cause in (None, "accumulated rounding")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["resnet50_v1", "amoebanet_d"])
def test_of_ten_faults_nine_origins_and_seven_causes_are_found(
    planted: ModuleType, network: str, tmp_path: Path
) -> None:
    bench = planted.make_bench(network, tmp_path)
    outcomes = [planted.try_fault(bench, fault, seed=0)[0] for fault in FAULTS]
    assert sum(outcome.found for outcome in outcomes) >= 9, outcomes
    assert sum(outcome.named for outcome in outcomes) >= 7, outcomes
