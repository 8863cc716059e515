"""The benchmark's variant of viaduct: which settings took effect."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from forked_viaduct import viaduct
from viaduct.verbs.bench import main, run_bench

QUICK = ("bench", "shapes_taster", "--device", "cpu", "--batch", "2", "--steps", "1", "--windows", "2")


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def defaults() -> dict[str, Any]:
    """Every flag as it is when nobody says anything, but for those that make it short."""
    given = {name: parameter.default for name, parameter in inspect.signature(main).parameters.items()}
    return {**given, "device": "cpu", "batch": 2, "steps": 1, "windows": 1, "warmup": 0, "profile": False}


def test_a_window_is_a_whole_number_of_sinks_and_a_device_without_capture_says_why(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    answer = viaduct(*QUICK, "--sink", "3", "--no-profile", "--json", figures)
    assert answer.returncode == 0, answer.stderr
    record = read(figures)
    assert (record["sink"], record["steps"], record["warmup"]) == (3, 3, 3)
    assert any("cpu captures no graphs" in note for note in record["notes"])
    assert (record["sink_on_device"], record["sink_obstacle"]) == (False, "cpu captures no graphs")
    assert "cpu captures no graphs" in answer.stdout


def test_what_was_run_stands_beside_what_was_requested(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = (
        "--mode",
        "eager",
        "--compile",
        "regional",
        "--kernels",
        "off",
        "--way",
        "eager",
        "--windows",
        "1",
        "--no-profile",
    )
    answer = viaduct(*QUICK, *words, "--json", figures)
    assert answer.returncode == 0, answer.stderr
    record = read(figures)
    assert (record["mode"], record["compile"], record["compiled"]) == ("eager", "regional", "off")
    assert (record["kernels"], record["own_kernels"]) == ("off", 0)
    assert record["machine"]["threads"] == 1
    assert "--compile regional has no effect in eager mode; --mode graph compiles." in record["notes"]
    assert "--way eager has no effect without --peer" in answer.stderr
    assert "1 window of 1 step, 1 variant in turn" in answer.stderr
    assert record["spread"] is None
    assert record["rows"][0]["spread"] == ""


# torch's own, which it hides by a way that does not reach here.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize(
    ("how", "named"), [("regional", "graph, regional"), ("whole", "graph, whole"), ("off", "graph")]
)
def test_the_title_of_ours_says_what_is_compiled(
    how: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.compile  # graphs are found as ever and run as they are: the compiler takes a minute
    monkeypatch.setattr(torch, "compile", lambda work, **options: real(work, backend="eager", dynamic=False))
    monkeypatch.setattr("sys.argv", ["viaduct"])
    run_bench({**defaults(), "recipe": "shapes_taster", "mode": "graph", "compile": how, "json": tmp_path / "it.json"})
    record = read(tmp_path / "it.json")
    assert record["way"].endswith(named)
    assert record["compiled"] == how
