from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from viaduct.profiling import roofline
from viaduct.profiling.record import Ceilings
from viaduct.profiling.roofline import compute_roofline_share, load_ceilings


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Ceilings that a stand-in measures, ever higher; the dtypes of each measurement."""
    done: list[list[str]] = []

    def measure(device: str, dtypes: Sequence[str]) -> Ceilings:
        done.append(list(dtypes))
        return Ceilings(100.0 * len(done), {dtype: 1000.0 * len(done) for dtype in dtypes})

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(roofline, "measure_ceilings", measure)
    return done


def find_cache(folder: Path) -> Path:
    (path,) = folder.glob("viaduct/ceilings-*.json")
    return path


def test_another_setting_is_measured_anew(measurements: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        load_ceilings("cpu", ["float32"])
    assert len(measurements) == 3
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    load_ceilings("cpu", ["float32"])
    assert len(measurements) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: json.dumps(json.loads(text) | {"key": {"device": "cpu", "description": "another processor"}}),
        lambda text: json.dumps(json.loads(text) | {"bandwidth": -1}),
        lambda text: json.dumps(json.loads(text) | {"flops": {"float32": float("nan")}}),
        lambda text: json.dumps(json.loads(text) | {"schema": 99}),
    ],
)
def test_a_damaged_or_foreign_cache_is_ignored(damage: Any, measurements: list[list[str]], tmp_path: Path) -> None:
    for _ in range(3):
        load_ceilings("cpu", ["float32"])
    path = find_cache(tmp_path)
    path.write_text(damage(path.read_text()))
    assert load_ceilings("cpu", ["float32"]) == Ceilings(400.0, {"float32": 4000.0})


def test_without_a_writable_cache_ceilings_are_measured_each_time(
    measurements: list[list[str]], tmp_path: Path
) -> None:
    (tmp_path / "viaduct").write_text("a file")
    assert load_ceilings("cpu", ["float32"]) == Ceilings(100.0, {"float32": 1000.0})


def test_the_best_of_three_measurements_is_kept(measurements: list[list[str]]) -> None:
    found = [load_ceilings("cpu", ["float32"]).flops["float32"] for _ in range(5)]
    assert found == [1000, 2000, 3000, 3000, 3000]


def test_a_further_dtype_is_measured_when_it_is_requested(measurements: list[list[str]]) -> None:
    load_ceilings("cpu", ["float32"])
    assert set(load_ceilings("cpu", ["int64", "bfloat16"]).flops) == {"bfloat16"}
    assert measurements == [["float32"], ["bfloat16"]]


def test_measuring_gives_figures_and_leaves_random_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viaduct.devices.ceilings.COPY_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr("viaduct.devices.ceilings.MATRIX_SIDE", {"cpu": 64})
    state = torch.get_rng_state()
    found = roofline.measure_ceilings("cpu", ["float32"])
    assert found.bandwidth > 0
    assert found.flops["float32"] > 0
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("flops", "bytes", "dtype"), [(None, 10, "float32"), (10, None, "float32"), (10, 10, "float16")]
)
def test_an_operator_without_work_or_ceiling_has_no_roofline_share(flops: Any, bytes: Any, dtype: str) -> None:
    assert compute_roofline_share(flops, bytes, dtype, 5.0, Ceilings(100.0, {"float32": 1000.0})) is None


def test_the_slower_of_computing_and_moving_bounds_an_operator() -> None:
    ceilings = Ceilings(bandwidth=1e9, flops={"float32": 1e10})
    assert compute_roofline_share(1e6, 1e4, "float32", 200.0, ceilings) == 0.5  # 100 µs of computing
    assert compute_roofline_share(1e4, 1e6, "float32", 2000.0, ceilings) == 0.5  # 1000 µs of moving


def test_a_copy_needs_no_ceiling_of_its_dtype() -> None:
    assert compute_roofline_share(0.0, 1e6, "int64", 2000.0, Ceilings(1e9, {})) == 0.5
