"""TensorFlow 1 programs in the structure of the public ones go through `viaduct carry`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from carrying.journeys import Journey
from command import viaduct

PROGRAMS = Path(__file__).with_name("programs")
pytestmark = pytest.mark.slow


def carried_program(folder: Path, source: str, *words: str) -> Journey:
    pytest.importorskip("tensorflow")
    shutil.copytree(PROGRAMS, folder / "programs")
    answer = viaduct("carry", f"programs/{source}", "--out", "carried", "--steps", "4", *words, cwd=folder)
    return Journey(answer, folder / "carried")


@pytest.mark.parametrize(
    ("name", "to"), [("resnet_mirrored", "npu"), ("words_session", "npu"), ("words_session", "mlu")]
)
def test_a_program_agrees_in_every_bit(name: str, to: str, tmp_path: Path) -> None:
    journey = carried_program(tmp_path, f"{name}.py", "--to", to)
    assert journey.code == 0, journey.said + journey.talk[-3000:]
    assert journey.record["verdict"] == "agrees"
    assert journey.record["bitwise"]


def test_the_branch_for_one_card_is_named_where_two_are_asked_for(tmp_path: Path) -> None:
    journey = carried_program(tmp_path, "resnet_mirrored.py", "--to", "mlu")
    assert journey.record["verdict"] == "not proved", journey.said + journey.talk[-3000:]
    assert journey.record["bitwise"]
    assert "1 edit was never executed" in journey.said
    assert 'OneDeviceStrategy("device:MLU:0")' in journey.said


def test_a_classifier_on_a_tpu_estimator_agrees_but_for_the_branch_that_needs_a_tpu(tmp_path: Path) -> None:
    journey = carried_program(tmp_path, "bert", "--entry", "run_classifier.py")
    assert journey.record["verdict"] == "not proved", journey.said + journey.talk[-3000:]
    assert "what ran agrees, but 2 edits were never executed" in journey.said
    assert "CrossShardOptimizer" in journey.said
