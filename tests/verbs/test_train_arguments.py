"""The command line of `viaduct train`, read and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forked_viaduct import viaduct
from verbs.short_run import QUICK, check_refusal

PER_RANK = ("shapes_taster", "--batch-per-rank", "4", "--lr-per-rank", "0.01", "--steps", "2")


@pytest.mark.slow
def test_batch_and_rate_of_a_rank_are_multiplied_by_the_ranks(tmp_path: Path) -> None:
    """The seed's 128 images a card, and its rate times the cards."""
    for ranks in (1, 2):
        run = tmp_path / f"ranks{ranks}"
        answer = viaduct("train", *PER_RANK, "--device", "cpu", "--run", run, "--ranks", str(ranks))
        assert answer.returncode == 0, answer.stderr
        recipe = json.loads((run / "recipe.json").read_text())["recipe"]
        assert (recipe["data"]["global_batch"], recipe["optimizer"]["lr"]) == (4 * ranks, 0.01 * ranks)
    again = viaduct("train", *PER_RANK[:-1], "4", "--device", "cpu", "--run", run)
    assert again.returncode == 0, again.stderr
    assert "--batch-per-rank 4: the run was begun with data.global_batch 8 and keeps it" in again.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--batch", "8"], "--batch-per-rank 4 and --batch 8 contradict each other."),
        (["--lr", "0.1"], "--lr-per-rank 0.01 and --lr 0.1 contradict each other."),
        (["--set", "data.global_batch=9"], "--batch 4 and --set data.global_batch=9 contradict each other."),
        (["--lr-per-rank", "-1"], "--lr-per-rank is -1; it must be above 0."),
    ],
)
def test_what_contradicts_the_batch_of_a_rank_is_refused(tmp_path: Path, words: list[str], expected: str) -> None:
    answer = viaduct("train", *PER_RANK, *words, "--run", tmp_path / "run")
    assert answer.returncode == 2
    assert expected in answer.stderr
    assert not (tmp_path / "run").exists()


def test_the_flags_of_first_weights_must_mean_something(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = ("train", *QUICK, "--run", run)
    check_refusal(viaduct(*command, "--init-exclude", "head.*"), "--init-exclude without --init", "--init PATH")
    check_refusal(viaduct(*command, "--init-schedule", "continue"), "--init-schedule without --init")
    check_refusal(answer := viaduct(*command, "--init", run), "is the run itself", "another --run")
    assert "TensorFlow" not in answer.stderr
    assert not run.exists()


def test_freezing_random_weights_is_a_warning(tmp_path: Path) -> None:
    answer = viaduct("train", *QUICK, "--run", tmp_path / "run", "--freeze", "stem")
    assert answer.returncode == 0
    assert answer.stderr.startswith("Warning: --freeze 'stem' without --init: ")
