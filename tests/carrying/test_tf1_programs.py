"""TensorFlow 1 programs in the structure of the public ones go through `viaduct carry`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from carrying.carry_scripts import CarryResult
from forked_viaduct import viaduct

PROGRAMS = Path(__file__).with_name("programs")
pytestmark = pytest.mark.slow


def carry_program(folder: Path, source: str, *words: str, out: str = "carried", steps: int = 4) -> CarryResult:
    pytest.importorskip("tensorflow")
    shutil.copytree(PROGRAMS, folder / "programs", dirs_exist_ok=True)
    answer = viaduct("carry", f"programs/{source}", "--out", out, "--steps", str(steps), *words, cwd=folder)
    return CarryResult(answer, folder / out)


def check_agrees(result: CarryResult, bitwise: bool = True) -> None:
    assert result.code == 0, result.stdout + result.stderr[-3000:]
    assert result.record["verdict"] == "agrees"
    assert result.record["bitwise"] == bitwise


@pytest.mark.parametrize(
    ("name", "to"), [("resnet_mirrored", "npu"), ("words_session", "npu"), ("words_session", "mlu")]
)
def test_a_program_agrees_exactly(name: str, to: str, tmp_path: Path) -> None:
    check_agrees(carry_program(tmp_path, f"{name}.py", "--to", to))


def test_a_strategy_of_two_cards_and_the_branch_for_one_agree_by_two_commands(tmp_path: Path) -> None:
    result = carry_program(tmp_path, "resnet_mirrored.py", "--to", "mlu", "--", "--num_gpus", "1", out="one")
    assert result.record["verdict"] == "not proved", result.stdout + result.stderr[-3000:]
    assert result.record["bitwise"]
    assert "1 edit was never executed" in result.stdout
    assert "MirroredStrategy(devices=" in result.stdout
    check_agrees(carry_program(tmp_path, "resnet_mirrored.py", "--to", "mlu", "--earlier", "one"))


@pytest.mark.parametrize("to", ["npu", "mlu"])
def test_horovod_in_a_session_with_two_ranks_agrees_exactly(to: str, tmp_path: Path) -> None:
    result = carry_program(tmp_path, "digits_horovod.py", "--to", to, "--ranks", "2", steps=40)
    check_agrees(result)
    assert {pair["rank"] for pair in result.record["pairs"]} == {0, 1}


def test_a_classifier_on_a_tpu_estimator_agrees_but_for_the_branch_that_needs_a_tpu(tmp_path: Path) -> None:
    result = carry_program(tmp_path, "bert", "--entry", "run_classifier.py")
    assert result.record["verdict"] == "not proved", result.stdout + result.stderr[-3000:]
    assert "what ran agrees, but 2 edits were never executed" in result.stdout
    assert "CrossShardOptimizer" in result.stdout


def test_a_classifier_on_a_tpu_estimator_agrees_where_the_tpu_is_requested(tmp_path: Path) -> None:
    result = carry_program(tmp_path, "bert", "--entry", "run_classifier.py", "--", "--use_tpu=True")
    check_agrees(result, bitwise=False)  # the NPU's own GELU takes its product in another order


def test_a_classifier_on_a_tpu_estimator_agrees_on_the_mlu(tmp_path: Path) -> None:
    check_agrees(carry_program(tmp_path, "bert", "--entry", "run_classifier.py", "--to", "mlu"))
